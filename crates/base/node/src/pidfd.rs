// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes by descriptor (`pidfd_open(2)`, Linux 5.3): the end of a process wakes `poll`, and a signal never reaches another
//! process that has been given the same number.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A descriptor of a process. It is readable once the process has ended.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this number now.
    ///
    /// # Errors
    /// The system's error: no such process, no free descriptor, or a kernel before Linux 5.3.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(opened) {
            // SAFETY: the kernel has just made it, and nothing else has it.
            Ok(fd @ 0..) => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Kills the process by `SIGKILL`, unless it has ended.
    pub fn kill(&self) {
        let none: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: no information is passed with the signal, as the call allows.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), libc::SIGKILL, none, 0) };
    }

    /// Returns `true` if the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_killed_and_its_end_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        let pidfd = Pidfd::open(child.id()).expect("it runs");
        assert!(!pidfd.has_ended());
        pidfd.kill();
        assert!(!child.wait().expect("ours").success());
        assert!(pidfd.has_ended());
        pidfd.kill();
        assert!(Pidfd::open(child.id()).is_err());
    }
}
