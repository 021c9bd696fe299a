// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that owns a partition's nodes: started, found again, waited for by pidfd.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use colony_node::pidfd::Pidfd;
use colony_node::task::TaskId;

use super::unresponsive::stopped_reason;

/// A process that owns nodes.
#[derive(Debug)]
pub(super) struct Process {
    pidfd: Pidfd,
    owner: TaskId,
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
    pub(super) fn owner(&self) -> io::Result<TaskId> {
        TaskId::of(self.0.id().cast_signed()).map_err(io::Error::other)
    }

    /// Its number is stored: it begins.
    pub(super) fn begin(mut self) -> io::Result<Process> {
        let (pidfd, owner) = (Pidfd::open(self.0.id())?, self.owner()?);
        if let Some(mut input) = self.0.stdin.take() {
            // one that has ended by now is found by its pidfd
            let _ = input.write_all(b"g");
        }
        Ok(Process { pidfd, owner, child: Some(self.0) })
    }

    /// Its number could not be stored.
    pub(super) fn abandon(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The process that another daemon has started, if it has not ended.
    pub(super) fn find(owner: TaskId) -> Option<Self> {
        let pidfd = Pidfd::open(u32::try_from(owner.tid).ok()?).ok()?;
        let process = Self { pidfd, owner, child: None };
        // the descriptor is of the process with that number now, which may have been used again: the start tells
        owner.lives().then_some(process)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// The reason why it does not answer, if it is stopped.
    pub(super) fn stopped_reason(&self) -> Option<String> {
        stopped_reason(self.owner)
    }

    pub(super) fn kill(&self) {
        self.pidfd.kill();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_again_by_its_number_and_its_start() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        let owner = TaskId::of(child.id().cast_signed()).expect("it runs");
        let found = Process::find(owner).expect("it runs");
        assert!(
            Process::find(TaskId { start_ticks: owner.start_ticks + 1, ..owner }).is_none(),
            "another process"
        );
        assert!(!found.has_ended() && found.stopped_reason().is_none());
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(owner.tid), nix::sys::signal::SIGSTOP)
            .expect("it is ours");
        while found.stopped_reason().is_none() {
            std::thread::yield_now();
        }
        let text = found.stopped_reason().expect("stopped");
        assert!(text.contains(&format!("kill -CONT {}", owner.tid)), "{text}");
        found.kill();
        assert!(!child.wait().expect("ours").success());
        assert!(found.has_ended());
        assert!(Process::find(owner).is_none());
    }
}
