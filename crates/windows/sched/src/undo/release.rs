// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last resort: the kernel starts a program of ours when the last of our processes has died.
//!
//! A hierarchy of control groups (version 1) with no controllers, only a name, has a release agent: a program that the
//! kernel starts as root when the last process of a group has ended, however it ended (cgroups-v1, section 1.4). Each process
//! that changes the node puts itself into a group of its own, its guardians inherit that, and its jobs leave it. So no order
//! of kills leaves a node changed.
//!
//! All such processes of a node share one hierarchy, which is mounted nowhere. Its release agent is the program of the one
//! that came last: each can undo what any other did. The last group takes the hierarchy with it, if the kernel has freed the
//! groups before by then; an empty one is used again.
//!
//! This needs root in the first namespaces of the node, and a kernel with control groups of version 1. Without, the other
//! readers of the [undo files](super) remain.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use colony_node::task::TaskId;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::file::folder;
use super::group::{self, JobGroup};

/// The name of the hierarchy.
const NAME: &std::ffi::CStr = c"colony-undo";
/// Beginning of the names of groups.
const PREFIX: &str = "colony-undo.";
/// How often the last one tries to have the hierarchy go, and how long it rests before the first time: the kernel frees
/// groups a while after their removal.
const TRIES: u32 = 5;
const REST: Duration = Duration::from_millis(20);
/// The parent of all kernel threads.
const KTHREADD: &str = "2";
/// Inode of the first pid namespace in `/proc`.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The group of this process, once it is in one.
static ARMED: OnceLock<Result<Armed, String>> = OnceLock::new();

struct Armed {
    /// `cgroup.procs` of the group above: a process that writes there leaves.
    outside: OwnedFd,
    hierarchy: Arc<Hierarchy>,
    me: TaskId,
}

/// Has the kernel start this very program when this process and all it starts from now on are dead. Once for a process.
///
/// # Errors
/// Why it cannot be here.
pub fn arm() -> Result<(), String> {
    ARMED.get_or_init(|| set_up().map_err(|e| e.to_string())).as_ref().map(drop).map_err(Clone::clone)
}

/// The descriptor by which a child of this process leaves the group, by writing `0`.
pub(crate) fn way_out() -> Option<RawFd> {
    ARMED.get()?.as_ref().ok().map(|armed| armed.outside.as_raw_fd())
}

/// The hierarchy and this process, if it is in a group.
pub(super) fn armed() -> Option<(Arc<Hierarchy>, TaskId)> {
    let armed = ARMED.get()?.as_ref().ok()?;
    Some((Arc::clone(&armed.hierarchy), armed.me))
}

/// Whether process `pid` is in a group that a release agent is for.
pub(super) fn serves_a_job(pid: i32) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|l| l.contains(":name=colony-undo:/colony-undo."))
}

fn set_up() -> io::Result<Armed> {
    if !nix::unistd::geteuid().is_root() {
        return Err(io::Error::other("it needs root"));
    }
    let namespace = |process: &str, kind: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}"));
    // the kernel starts the program where its own threads are, and elsewhere a path may mean another file
    if namespace("self", "pid")?.as_os_str() != FIRST_PID_NAMESPACE
        || namespace("self", "mnt")? != namespace(KTHREADD, "mnt")?
    {
        return Err(io::Error::other("this process is in a container"));
    }
    let program = std::env::current_exe()?;
    let me = TaskId::of(std::process::id().cast_signed()).map_err(io::Error::other)?;
    let name = format!("{PREFIX}{}.{}", me.tid, me.start_ticks);
    let _alone = alone()?;
    let root = Arc::new(Hierarchy::open()?);
    root.remove_dead(None);
    root.write("release_agent", program.as_os_str().as_bytes())?;
    root.make(&name)?;
    let joined = root
        .write(&format!("{name}/notify_on_release"), b"1")
        .and_then(|()| root.write(&format!("{name}/cgroup.procs"), b"0"));
    if let Err(e) = joined {
        root.remove(&name);
        return Err(e);
    }
    let outside = root.open_to_write("cgroup.procs")?.into();
    Ok(Armed { outside, hierarchy: root, me })
}

/// Keeps all others from the hierarchy until it is dropped.
fn alone() -> io::Result<File> {
    let lock = File::create(folder()?.join("lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// The hierarchy, mounted nowhere but here.
#[derive(Debug)]
pub(super) struct Hierarchy(OwnedFd);

impl Hierarchy {
    /// Opens it; makes it where there is none.
    fn open() -> io::Result<Self> {
        const FSOPEN_CLOEXEC: u32 = 1;
        const FSMOUNT_CLOEXEC: u32 = 1;
        const SET_FLAG: u32 = 0;
        const SET_STRING: u32 = 1;
        const CREATE: u32 = 6;
        // SAFETY: every pointer is to a string that ends in 0 and outlives its call, or null where the call takes that; a
        // descriptor the kernel has just made is nobody else's.
        unsafe {
            let context = descriptor(libc::syscall(libc::SYS_fsopen, c"cgroup".as_ptr(), FSOPEN_CLOEXEC))?;
            let null = std::ptr::null::<libc::c_char>();
            for (command, key, value) in [
                (SET_FLAG, c"none".as_ptr(), null),
                (SET_STRING, c"name".as_ptr(), NAME.as_ptr()),
                (CREATE, null, null),
            ] {
                let fd = context.as_raw_fd();
                if libc::syscall(libc::SYS_fsconfig, fd, command, key, value, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            descriptor(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0)).map(Self)
        }
    }

    pub(super) fn write(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.open_to_write(file)?.write_all(bytes)
    }

    pub(super) fn open_to_write(&self, file: &str) -> io::Result<File> {
        Ok(openat(&self.0, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    pub(super) fn open_file(&self, file: &str) -> io::Result<File> {
        Ok(openat(&self.0, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    /// Makes a group.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::S_IRWXU)?)
    }

    /// The groups in it.
    fn groups(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(format!("/proc/self/fd/{}", self.0.as_raw_fd())) else {
            return Vec::new();
        };
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        names.filter(|n| owner(n).is_some()).collect()
    }

    /// Removes a group. One with processes in it stays: the kernel calls again when they have ended.
    pub(super) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.0, name, UnlinkatFlags::RemoveDir);
    }

    /// Removes the groups of processes that are dead, and that of `ended`, which is about to be.
    fn remove_dead(self: &Arc<Self>, ended: Option<TaskId>) {
        for name in self.groups() {
            let of = owner(&name);
            if of.is_some_and(|of| ended == Some(of) || !of.is_running_process().unwrap_or(true)) {
                match name.starts_with(group::PREFIX) {
                    true => JobGroup::of_hierarchy(self, &name).dissolve(),
                    false => self.remove(&name),
                }
            }
        }
    }
}

/// # Safety
/// `answer` is what a system call gave that makes a descriptor.
unsafe fn descriptor(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: as the caller says, nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process a group is named after.
fn owner(name: &str) -> Option<TaskId> {
    let mut numbers = name.strip_prefix(PREFIX).or_else(|| name.strip_prefix(group::PREFIX))?.split('.');
    Some(TaskId { tid: numbers.next()?.parse().ok()?, start_ticks: numbers.next()?.parse().ok()? })
}

/// The processes in group `name`, which a dead agent has left. Where the hierarchy has gone, so has the group, and an empty
/// one does as well.
pub(super) fn group_of_a_dead_agent(name: &str) -> Option<JobGroup> {
    if !name.starts_with(group::PREFIX) {
        return None;
    }
    Some(JobGroup::of_hierarchy(&Arc::new(Hierarchy::open().ok()?), name))
}

/// The process whose group has become empty, if the kernel started this program to say so: the first argument is the path
/// of the group then.
pub(crate) fn released(argument: &Path) -> Option<TaskId> {
    let name = argument.to_str()?.strip_prefix('/')?;
    owner(name).filter(|_| name.starts_with(PREFIX))
}

/// Whether the hierarchy is there.
fn is_present() -> bool {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    text.lines().any(|l| l.split(':').nth(1) == Some("name=colony-undo"))
}

/// Removes the groups of dead processes and of `ended`, and, where no other is left, the hierarchy.
pub(crate) fn clean_up(ended: Option<TaskId>) {
    for time in 0..TRIES {
        // looked at again each time: somebody else may use the hierarchy, or have removed it
        let left = match (is_present(), alone()) {
            (true, Ok(_alone)) => Hierarchy::open().map_or(0, |hierarchy| {
                let hierarchy = Arc::new(hierarchy);
                hierarchy.remove_dead(ended);
                hierarchy.groups().len()
            }),
            _ => return,
        };
        if left > 0 {
            return;
        }
        // it goes with its last mount, but not while the kernel still frees a group
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
