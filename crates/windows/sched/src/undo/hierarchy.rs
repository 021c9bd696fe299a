// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hierarchy of control groups that this node's agents and daemons share: version 1, with a name and no controllers.
//!
//! It is mounted nowhere. Each process that changes the node has a group in it, and so has each job.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use colony_ledger::state::lock;
use colony_node::task::TaskId;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The name of the hierarchy.
const NAME: &std::ffi::CStr = c"colony-undo";
/// Beginning of the names of groups of processes that change the node.
pub(super) const PROCESS: &str = "colony-undo.";
/// Beginning of the names of groups of jobs.
pub(super) const JOB: &str = "colony-job.";

/// Longest wait for the kernel to free the hierarchy of the same name that was used before. Some 20 ms are usual; a busy
/// machine needs more.
const FREE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to make a hierarchy.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The hierarchy, mounted nowhere but here.
#[derive(Debug)]
pub(super) struct Hierarchy {
    /// Its topmost group.
    root: OwnedFd,
    /// The mount of `root`; `None` once it is [closed](Self::close_mount).
    mount: Option<OwnedFd>,
}

impl Hierarchy {
    /// Opens the hierarchy, and makes one where there is none.
    ///
    /// While the kernel still frees the hierarchy of the same name that was used before, the kernel refuses a new one
    /// (`EBUSY`). This is a passing state: the call tries again until [`FREE_TIMEOUT`] is over.
    ///
    /// # Errors
    /// The kernel's answer to the last attempt.
    pub(super) fn open() -> io::Result<Self> {
        retry_while_busy(FREE_TIMEOUT, Self::open_once)
    }

    /// As [`open`](Self::open), without waiting. `EBUSY` says that the hierarchy is being freed, and has no groups.
    pub(super) fn open_once() -> io::Result<Self> {
        const FSOPEN_CLOEXEC: u32 = 1;
        const FSMOUNT_CLOEXEC: u32 = 1;
        const SET_FLAG: u32 = 0;
        const SET_STRING: u32 = 1;
        const CREATE: u32 = 6;
        // SAFETY: every pointer is to a string that ends in 0 and outlives its call, or null where the call takes that; a
        // descriptor the kernel has just made is nobody else's.
        unsafe {
            // A context is of use for one attempt: the kernel refuses each later one on the same context with EBUSY.
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
            let mount =
                descriptor(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0))?;
            let root =
                openat(&mount, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
            Ok(Self { root, mount: Some(mount) })
        }
    }

    /// Closes the mount now; the groups stay within reach. To close it, the kernel waits until all CPUs have been through the scheduler
    /// (`synchronize_rcu_expedited`), and keeps every other mount waiting. For a process that keeps the hierarchy for as long as its job
    /// lives, this would otherwise be part of its exit: a job in a real-time class can hold that up for 10 s (Linux 6.18), and the kernel
    /// starts the release agent, which would end the class, only after the exit.
    pub(super) fn close_mount(mut self) -> Self {
        self.mount = None;
        self
    }

    pub(super) fn write(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.open_to_write(file)?.write_all(bytes)
    }

    pub(super) fn open_to_write(&self, file: &str) -> io::Result<File> {
        Ok(openat(&self.root, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    pub(super) fn open_file(&self, file: &str) -> io::Result<File> {
        Ok(openat(&self.root, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    /// Makes a group.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.root, name, Mode::S_IRWXU)?)
    }

    /// The groups in it.
    pub(super) fn groups(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(format!("/proc/self/fd/{}", self.root.as_raw_fd())) else {
            return Vec::new();
        };
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        names.filter(|n| owner(n).is_some()).collect()
    }

    /// Removes a group. One with processes in it stays: the kernel calls again when they have ended.
    pub(super) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.root, name, UnlinkatFlags::RemoveDir);
    }
}

/// Calls `attempt` until the answer is another one than `EBUSY`, or `timeout` is over.
fn retry_while_busy<T>(timeout: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(BUSY_PAUSE);
            }
            answer => return answer,
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
pub(super) fn owner(name: &str) -> Option<TaskId> {
    let mut numbers = name.strip_prefix(PROCESS).or_else(|| name.strip_prefix(JOB))?.split('.');
    Some(TaskId { tid: numbers.next()?.parse().ok()?, start_ticks: numbers.next()?.parse().ok()? })
}

/// Returns `true` if process `pid` is in a group that has a release agent.
pub(super) fn serves_a_job(pid: i32) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|l| l.contains(":name=colony-undo:/colony-undo."))
}

/// Keeps all others from the hierarchy until it is dropped.
pub(super) fn alone() -> io::Result<File> {
    lock("lock", FREE_TIMEOUT)
}

/// Returns `true` if the hierarchy exists.
pub(super) fn is_present() -> bool {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    text.lines().any(|l| l.split(':').nth(1) == Some("name=colony-undo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_kernel_is_asked_again_and_any_other_answer_is_final() {
        let busy = || io::Error::from_raw_os_error(libc::EBUSY);
        let mut attempts = 0;
        let third = retry_while_busy(FREE_TIMEOUT, || {
            attempts += 1;
            if attempts < 3 { Err(busy()) } else { Ok(attempts) }
        });
        assert_eq!(third.expect("free at last"), 3);
        let refused = retry_while_busy(FREE_TIMEOUT, || {
            attempts += 1;
            Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM))
        });
        assert_eq!((refused.expect_err("final").raw_os_error(), attempts), (Some(libc::EPERM), 4));
        let never = retry_while_busy(Duration::ZERO, || Err::<(), _>(busy()));
        assert_eq!(never.expect_err("the time is over").raw_os_error(), Some(libc::EBUSY));
    }
}
