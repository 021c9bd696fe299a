// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that owns a partition's nodes: started, found again, waited for by pidfd.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::store::Owner;

/// A process that owns nodes.
#[derive(Debug)]
pub(super) struct Process {
    pidfd: OwnedFd,
    /// If this daemon has started it.
    child: Option<Child>,
}

/// A process that waits until its number is stored.
pub(super) struct Waiting(Child);

impl Waiting {
    /// Starts a partition service, in a session of its own: it does not end with the daemon, or with its terminal.
    pub(super) fn start(program: &Path, setup: &Path, log: &Path) -> io::Result<Self> {
        let log = File::options().append(true).create(true).open(log)?;
        let mut command = Command::new(program);
        command.arg(setup).current_dir("/").stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        // SAFETY: between fork and exec only one system call is made, and nothing is allocated.
        unsafe { command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?)) };
        Ok(Self(command.spawn()?))
    }

    /// The number to store.
    pub(super) fn owner(&self) -> io::Result<Owner> {
        let pid = self.0.id();
        let started = started(pid).ok_or_else(|| io::Error::other("the process has ended"))?;
        Ok(Owner { pid, started })
    }

    /// Its number is stored: it begins.
    pub(super) fn begin(mut self) -> io::Result<Process> {
        let pidfd = open(self.0.id())?;
        if let Some(mut input) = self.0.stdin.take() {
            // one that has ended by now is found by its pidfd
            let _ = input.write_all(b"g");
        }
        Ok(Process { pidfd, child: Some(self.0) })
    }

    /// Its number could not be stored.
    pub(super) fn abandon(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The process that another daemon has started, if it has not ended.
    pub(super) fn find(owner: Owner) -> Option<Self> {
        let process = Self { pidfd: open(owner.pid).ok()?, child: None };
        // the descriptor is of the process with that number now, which may have been used again: the start tells
        (started(owner.pid) == Some(owner.started) && !process.has_ended()).then_some(process)
    }

    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    pub(super) fn kill(&self) {
        let none: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: no information is passed with the signal, as the call allows.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), libc::SIGKILL, none, 0) };
    }

    /// How it ended, if that is known.
    pub(super) fn end(&mut self) -> String {
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("exit status {code}"),
            Some((None, Some(signal))) => format!("signal {signal}"),
            _ => "its status is unknown".to_owned(),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory of ours is passed.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(opened) {
        // SAFETY: the kernel has just made it, and nothing else has it.
        Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// When a process started, in ticks since the host booted (`proc(5)`, `/proc/PID/stat`, field 22).
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // the fields follow the name, which may have any bytes
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
    fields.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_again_by_its_number_and_its_start() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        let owner = Owner { pid: child.id(), started: started(child.id()).expect("it runs") };
        let found = Process::find(owner).expect("it runs");
        assert!(Process::find(Owner { started: owner.started + 1, ..owner }).is_none(), "another process");
        assert!(!found.has_ended());
        found.kill();
        assert!(!child.wait().expect("ours").success());
        assert!(found.has_ended());
        assert!(Process::find(owner).is_none());
    }
}
