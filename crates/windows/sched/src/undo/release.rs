// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last resort: the kernel starts a program of ours when the last of our processes has died.
//!
//! A hierarchy of control groups (version 1) with no controllers, only a name, has a release agent: a program that the
//! kernel starts as root when the last process of a group has ended, however it ended (cgroups-v1, section 1.4). Each process
//! that changes the node puts itself into a group of its own, its guardians inherit that, and its jobs leave it. So no order
//! of kills leaves a node changed.
//!
//! All such processes of a node share one hierarchy, which is mounted nowhere. Its release agent is a [copy](super::program)
//! of the program of the process that came last: each can undo what any other did. The last group takes the hierarchy and the
//! copy with it, if the kernel has freed the groups before by then; an empty hierarchy is used again.
//!
//! This needs root in the first namespaces of the node, and a kernel with control groups of version 1. Without, the other
//! readers of the [undo files](super) remain.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use colony_node::task::TaskId;

use super::file::has_files;
use super::group::JobGroup;
use super::hierarchy::{Hierarchy, JOB, PROCESS, alone, is_present, owner, serves_a_job};
use super::program;

/// Number of attempts of the last process to remove the hierarchy, and its pause before the first one: the kernel frees
/// groups a while after their removal.
const TRIES: u32 = 5;
const REST: Duration = Duration::from_millis(20);
/// Inode of the first pid namespace in `/proc`.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// The file of the hierarchy with the path of the release agent.
const AGENT: &str = "release_agent";

/// The group of this process, once it is in one.
static ARMED: OnceLock<Armed> = OnceLock::new();
/// Held by the thread that arms this process.
static ARMING: Mutex<()> = Mutex::new(());

/// The reason for which the kernel starts no release agent for this process.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The effective user is another one than root.
    #[error("a release agent needs root")]
    NeedsRoot,
    /// The kernel would look for the process or for the program in other namespaces than those of this process.
    #[error("this process is in a container, and the kernel starts release agents outside of it")]
    InContainer,
    /// The kernel has no named hierarchies of control groups.
    #[error("this kernel has no control groups of version 1 ({0})")]
    NoHierarchies(#[source] io::Error),
    /// The kernel can, and something failed.
    #[error("{what}: {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl ArmError {
    /// Returns `true` if no process with these privileges can have a release agent on this node, and `false` if another attempt
    /// may succeed.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        !matches!(self, Self::System { .. })
    }

    fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

struct Armed {
    /// `cgroup.procs` of the group above: a process that writes there leaves.
    outside: OwnedFd,
    hierarchy: Arc<Hierarchy>,
    me: TaskId,
}

/// Has the kernel start a copy of this program when this process and all it starts from now on are dead. Does nothing if this
/// process has a release agent. A failed attempt leaves nothing behind, and the next call is another attempt.
///
/// # Errors
/// [`ArmError`]: this node cannot have a release agent, or a step failed.
pub fn arm() -> Result<(), ArmError> {
    let _alone = ARMING.lock().unwrap_or_else(PoisonError::into_inner);
    if ARMED.get().is_none() {
        let armed = set_up()?;
        // this thread alone sets the value
        let _ = ARMED.set(armed);
    }
    Ok(())
}

/// As [`arm`]; a failure goes to the log. The changes of this process would stay until the next program of Colony starts if all
/// processes that could undo them were killed at once.
pub fn arm_or_log() {
    if let Err(why) = arm() {
        let what =
            "if all processes of Colony were killed at once, their changes would stay until one starts again";
        match why.is_permanent() {
            true => tracing::debug!("{what}: {why}"),
            false => tracing::warn!("{what}: {why}"),
        }
    }
}

/// Arms the kernel again if somebody has removed or changed the release agent since. For a process that lives as long as the
/// changes do, at each change. Does nothing if this process has no release agent.
///
/// # Errors
/// As [`arm`].
pub fn arm_again() -> io::Result<()> {
    if !serves_a_job(std::process::id().cast_signed()) {
        return Ok(());
    }
    let _alone = alone()?;
    let hierarchy = Hierarchy::open()?;
    let mut agent = String::new();
    hierarchy.open_file(AGENT)?.read_to_string(&mut agent)?;
    if Path::new(agent.trim_end_matches('\n')) == program::path() && program::is_installed() {
        return Ok(());
    }
    tracing::warn!("somebody has removed or changed {}; it is there again", program::path().display());
    program::install()?;
    hierarchy.write(AGENT, program::path().as_os_str().as_bytes())
}

/// The descriptor by which a child of this process leaves the group, by writing `0`.
pub(crate) fn way_out() -> Option<RawFd> {
    ARMED.get().map(|armed| armed.outside.as_raw_fd())
}

/// A new group for a job of this process, if the kernel [tells](arm) of its death.
pub(crate) fn new_job_group() -> Option<JobGroup> {
    let armed = ARMED.get()?;
    JobGroup::new(&armed.hierarchy, armed.me)
}

fn set_up() -> Result<Armed, ArmError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(ArmError::NeedsRoot);
    }
    // the release agent gets numbers of processes of the first namespace
    let namespace =
        std::fs::read_link("/proc/self/ns/pid").map_err(ArmError::system("reading the pid namespace"))?;
    if namespace.as_os_str() != FIRST_PID_NAMESPACE {
        return Err(ArmError::InContainer);
    }
    let me = TaskId::of(std::process::id().cast_signed()).map_err(io::Error::other);
    let me = me.map_err(ArmError::system("reading the start time of this process"))?;
    let _alone = alone().map_err(ArmError::system("locking the control groups for undo"))?;
    let root = Hierarchy::open().map_err(|e| match e.raw_os_error() {
        // without the file system, and with cgroup_no_v1=named on the kernel's command line
        Some(libc::ENODEV | libc::ENOENT) => ArmError::NoHierarchies(e),
        _ => ArmError::System { what: "making the control groups for undo", source: e },
    })?;
    let root = Arc::new(root.close_mount());
    remove_dead(&root, None, || ());
    let outside = root.open_to_write("cgroup.procs");
    let outside = outside.map_err(ArmError::system("opening the control group for jobs"))?.into();
    // Before the copy is made: joining takes the kernel tens of milliseconds, and if this process is killed in that time, the copy
    // would be left to nobody.
    let name = join_group(&root, me).map_err(ArmError::system("joining a control group for undo"))?;
    name_release_agent(&root).inspect_err(|_| leave_group(&root, &name))?;
    Ok(Armed { outside, hierarchy: root, me })
}

/// Copies the program, and names the copy to the kernel.
fn name_release_agent(root: &Hierarchy) -> Result<(), ArmError> {
    program::install().map_err(ArmError::system("copying the release agent"))?;
    // with other mounts, the path may mean another file to the kernel, or none
    if !program::is_seen_by_the_kernel() {
        program::remove();
        return Err(ArmError::InContainer);
    }
    let named = root.write(AGENT, program::path().as_os_str().as_bytes());
    named.map_err(ArmError::system("naming the release agent to the kernel"))
}

/// Moves this process, `me`, into a new group whose end the kernel tells the release agent of. Returns the name of the group.
fn join_group(root: &Hierarchy, me: TaskId) -> io::Result<String> {
    let name = format!("{PROCESS}{}.{}", me.tid, me.start_ticks);
    root.make(&name)?;
    let joined = root
        .write(&format!("{name}/notify_on_release"), b"1")
        .and_then(|()| root.write(&format!("{name}/cgroup.procs"), b"0"));
    joined.inspect_err(|_| root.remove(&name))?;
    Ok(name)
}

/// Undoes [`join_group`].
fn leave_group(root: &Hierarchy, name: &str) {
    // nothing is in this process's name yet: the kernel may start the release agent for it or not
    let _ = root.write(&format!("{name}/notify_on_release"), b"0");
    let _ = root.write("cgroup.procs", b"0");
    root.remove(name);
}

/// The process whose group has become empty, if the kernel started this program to say so: the first argument is the path
/// of the group then.
pub(crate) fn released(argument: &Path) -> Option<TaskId> {
    let name = argument.to_str()?.strip_prefix('/')?;
    owner(name).filter(|_| name.starts_with(PROCESS))
}

/// Removes the groups of processes that are dead, and that of `ended`, which is about to be. A group stays as long as there is
/// something to undo for its process: the kernel starts no release agent for a group that is removed. Calls `no_process_is_left` if
/// only groups of jobs are left: to remove these may take seconds on a busy node.
fn remove_dead(hierarchy: &Arc<Hierarchy>, ended: Option<TaskId>, no_process_is_left: impl FnOnce()) {
    let is_over = |name: &str| {
        let is_dead = |of: TaskId| !of.is_running_process().unwrap_or(true) && !has_files(of);
        owner(name).is_some_and(|of| ended == Some(of) || is_dead(of))
    };
    let (of_jobs, of_processes): (Vec<_>, Vec<_>) =
        hierarchy.groups().into_iter().partition(|name| name.starts_with(JOB));
    of_processes.iter().filter(|name| is_over(name)).for_each(|name| hierarchy.remove(name));
    if !hierarchy.groups().iter().any(|name| name.starts_with(PROCESS)) {
        no_process_is_left();
    }
    let of_jobs = of_jobs.iter().filter(|name| is_over(name));
    of_jobs.for_each(|name| JobGroup::of_hierarchy(hierarchy, name).dissolve());
}

/// Removes the groups of dead processes and of `ended`, and, where no other is left, the copy of the program and the hierarchy.
pub(crate) fn clean_up(ended: Option<TaskId>) {
    for time in 0..TRIES {
        let Ok(alone) = alone() else { return };
        // looked at again each time: somebody else may use the hierarchy, or have removed it
        if !is_present() {
            // a process that was killed while it armed itself may have left the copy
            program::remove();
            return;
        }
        let is_empty = match Hierarchy::open_once() {
            Ok(hierarchy) => {
                let hierarchy = Arc::new(hierarchy);
                // nobody needs the copy for the groups of jobs that are left
                remove_dead(&hierarchy, ended, program::remove);
                hierarchy.groups().is_empty()
            }
            // it is being freed
            Err(e) => e.kind() == io::ErrorKind::ResourceBusy,
        };
        if !is_empty {
            return;
        }
        program::remove();
        drop(alone);
        // the hierarchy goes with its last mount, but not while the kernel still frees a group
        std::thread::sleep(REST * 4u32.pow(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_group_of_ours_is_a_release() {
        assert_eq!(released(Path::new("/colony-undo.7.90")), Some(TaskId { tid: 7, start_ticks: 90 }));
        for other in [
            "/colony-job.7.90.0",
            "colony-undo.7.90",
            "/colony-undo.7",
            "/colony-undo.x.y",
            "/7.90",
            "--help",
            "",
        ] {
            assert_eq!(released(Path::new(other)), None, "{other}");
        }
    }
}
