//! The last resort: the kernel starts a program of ours when the last of our processes has died.
//!
//! A hierarchy of control groups (version 1) with no controllers, only a name, has a release agent: a program that the
//! kernel starts as root when the last process of a group has ended, however it ended (cgroups-v1, section 1.4). The process
//! that changes the node puts itself into such a group, its guardians inherit that, and its jobs leave it. So no order of
//! kills leaves a node changed. The hierarchy is mounted nowhere; the release agent removes it.
//!
//! This needs root in the first namespaces of the node, and a kernel with control groups of version 1. Without, the other
//! readers of the [undo files](super) remain.

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use colony_node::task::TaskId;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Beginning of the names of hierarchies and groups.
const PREFIX: &str = "colony-undo.";
/// How long a hierarchy may take to go: the kernel frees groups a while after their removal, on a busy node a long while.
const GOING: Duration = Duration::from_secs(60);
/// The longest rest between two looks whether it has gone.
const REST: Duration = Duration::from_millis(320);
/// The parent of all kernel threads.
const KTHREADD: &str = "2";
/// Inode of the first pid namespace in `/proc`.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The group of this process, once it is in one.
static ARMED: OnceLock<Result<Armed, String>> = OnceLock::new();

struct Armed {
    /// `cgroup.procs` of the group above: a process that writes there leaves.
    outside: OwnedFd,
}

/// Has the kernel start this very program when this process and all it starts from now on are dead. Once for a process.
///
/// # Errors
/// Why it cannot be here.
pub(crate) fn arm() -> Result<(), String> {
    ARMED.get_or_init(|| set_up().map_err(|e| e.to_string())).as_ref().map(drop).map_err(Clone::clone)
}

/// The descriptor by which a child of this process leaves the group, by writing `0`.
pub(crate) fn way_out() -> Option<RawFd> {
    ARMED.get()?.as_ref().ok().map(|armed| armed.outside.as_raw_fd())
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
    let root = Hierarchy::open(&name)?;
    root.write("release_agent", program.as_os_str().as_bytes())?;
    mkdirat(&root.0, name.as_str(), Mode::S_IRWXU)?;
    let joined = root
        .write(&format!("{name}/notify_on_release"), b"1")
        .and_then(|()| root.write(&format!("{name}/cgroup.procs"), b"0"));
    if let Err(e) = joined {
        root.remove(&name);
        return Err(e);
    }
    let outside = openat(&root.0, "cgroup.procs", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    Ok(Armed { outside })
}

/// A hierarchy with this name, mounted nowhere but here.
struct Hierarchy(OwnedFd);

impl Hierarchy {
    /// Opens it; makes it where there is none.
    fn open(name: &str) -> io::Result<Self> {
        const FSOPEN_CLOEXEC: u32 = 1;
        const FSMOUNT_CLOEXEC: u32 = 1;
        const SET_FLAG: u32 = 0;
        const SET_STRING: u32 = 1;
        const CREATE: u32 = 6;
        let name = CString::new(name)?;
        // SAFETY: every pointer is to a string that ends in 0 and outlives its call, or null where the call takes that; a
        // descriptor the kernel has just made is nobody else's.
        unsafe {
            let context = descriptor(libc::syscall(libc::SYS_fsopen, c"cgroup".as_ptr(), FSOPEN_CLOEXEC))?;
            let null = std::ptr::null::<libc::c_char>();
            for (command, key, value) in [
                (SET_FLAG, c"none".as_ptr(), null),
                (SET_STRING, c"name".as_ptr(), name.as_ptr()),
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

    fn write(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let opened = openat(&self.0, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        std::fs::File::from(opened).write_all(bytes)
    }

    /// Whether the group `name` has no process in it, or is not there.
    fn is_empty(&self, name: &str) -> bool {
        let path = format!("{name}/cgroup.procs");
        let Ok(opened) = openat(&self.0, path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        else {
            return true;
        };
        std::fs::File::from(opened).read(&mut [0]).is_ok_and(|n| n == 0)
    }

    /// Removes the group, and lets the hierarchy go.
    fn remove(self, name: &str) {
        let _ = unlinkat(&self.0, name, UnlinkatFlags::RemoveDir);
        drop(self);
        // it goes with its last mount, but not while the kernel still frees the group
        let since = Instant::now();
        let mut rest = Duration::from_millis(10);
        while since.elapsed() < GOING && present().iter().any(|n| n == name) {
            std::thread::sleep(rest);
            rest = (2 * rest).min(REST);
            drop(Self::open(name));
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

/// The names of our hierarchies on this node.
fn present() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let names = text.lines().filter_map(|l| l.split(':').nth(1)?.strip_prefix("name="));
    names.filter(|n| owner(n).is_some()).map(str::to_owned).collect()
}

/// The process a group or hierarchy is named after.
fn owner(name: &str) -> Option<TaskId> {
    let (tid, start) = name.strip_prefix(PREFIX)?.split_once('.')?;
    Some(TaskId { tid: tid.parse().ok()?, start_ticks: start.parse().ok()? })
}

/// The process whose group has become empty, if the kernel started this program to say so: the first argument is the path
/// of the group then.
pub(crate) fn released(argument: &Path) -> Option<TaskId> {
    owner(argument.to_str()?.strip_prefix('/')?)
}

/// Removes the hierarchies of processes that are dead: of `ended`, which is about to be, and of those whose release agent
/// could not be started.
pub(crate) fn clean_up(ended: Option<TaskId>) {
    for name in present() {
        let Some(owner) = owner(&name) else { continue };
        if ended != Some(owner) && owner.is_running_process().unwrap_or(true) {
            continue;
        }
        let Ok(hierarchy) = Hierarchy::open(&name) else { continue };
        // guardians still at work are in it: the kernel calls when they have ended
        if hierarchy.is_empty(&name) {
            hierarchy.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_group_of_ours_is_a_release() {
        assert_eq!(released(Path::new("/colony-undo.7.90")), Some(TaskId { tid: 7, start_ticks: 90 }));
        for other in ["colony-undo.7.90", "/colony-undo.7", "/colony-undo.x.y", "/7.90", "--help", ""] {
            assert_eq!(released(Path::new(other)), None, "{other}");
        }
    }
}
