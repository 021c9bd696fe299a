// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of a run: started, signalled, waited for.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use colony_client::Client;
use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use colony_pages::Launch;
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::config::{Ending, RunConfig};
use crate::SchedError;
use crate::job::Job;
use crate::spare::Reservation;
use crate::undo::release;

/// Signals that are meant for the program.
const FORWARDED: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals held back from this thread, to be read one by one; let through again at the end.
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    pub(super) fn block() -> Result<Self, SchedError> {
        let failed = SchedError::system("taking signals for the program");
        let mut set: SigSet = FORWARDED.into_iter().collect();
        set.add(Signal::SIGCHLD);
        let before = SigSet::thread_get_mask().map_err(&failed)?;
        set.thread_block().map_err(&failed)?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).map_err(&failed)?;
        Ok(Self { fd, before })
    }

    /// The mask of before: bit n-1 for signal n.
    fn before_bits(&self) -> u64 {
        self.before.iter().fold(0, |bits, signal| bits | 1 << (signal as i32 - 1))
    }

    /// Waits for a signal: one to forward, or `None` for the news that a child changed.
    fn next(&self) -> Result<Option<Signal>, SchedError> {
        match self.fd.read_signal() {
            Ok(Some(info)) => {
                // From a terminal the program has got it already: the kernel sends to the whole group.
                let from_a_process = info.ssi_code <= 0;
                let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
                Ok(signal.filter(|s| from_a_process && FORWARDED.contains(s)))
            }
            Ok(None) | Err(Errno::EINTR) => Ok(None),
            Err(e) => Err(SchedError::system("reading signals for the program")(e)),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that arrives after the program's end has no receiver: it must not kill this process on the way out.
        while let Ok(pending) = nix::poll::poll(
            &mut [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&self.fd), nix::poll::PollFlags::POLLIN)],
            nix::poll::PollTimeout::ZERO,
        ) {
            if pending == 0 || self.fd.read_signal().is_err() {
                break;
            }
        }
        let _ = self.before.thread_set_mask();
    }
}

/// The end of a program.
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) cpu_ns: u64,
}

/// The program of a run.
pub(super) struct Child {
    pid: Pid,
    /// CPU time of children waited for before it started.
    cpu_before_ns: u64,
}

impl Child {
    /// Starts the program, as a member of the daemon's job where there is one.
    pub(super) fn start(
        config: &RunConfig,
        cpus: &CpuSet,
        signals: &Signals,
        daemon: Option<&Client>,
        reservation: Option<&Reservation>,
        mut pages: Option<&mut Launch>,
    ) -> Result<Self, SchedError> {
        let Some((program, arguments)) = config.command.split_first() else {
            return Err(SchedError::Config {
                what: "there is no program to run".into(),
                advice: "name one after `--`",
            });
        };
        let mut command = Command::new(program);
        command.args(arguments);
        let bound = (config.cpus.is_some() || reservation.is_some()).then(|| cpus.clone());
        let entry = reservation.and_then(Reservation::entry).map(AsRawFd::as_raw_fd);
        let mask = signals.before;
        let way_out = release::way_out();
        let prepare = move || {
            mask.thread_set_mask()?;
            // out of the group whose end the kernel tells of: that is for what serves the job, not for the job
            move_to(way_out);
            move_to(entry);
            bound.as_ref().map_or(Ok(()), |cpus| cpu::bind(0, cpus)).map_err(std::io::Error::other)
        };
        // SAFETY: between fork and exec only four system calls are made; they take no lock and, on their
        // good path, no memory.
        unsafe { command.pre_exec(prepare) };
        if let Some(daemon) = daemon {
            daemon.join_on_start(&mut command).map_err(|e| SchedError::Daemon(e.to_string()))?;
        }
        if let Some(pages) = &mut pages {
            pages.prepare(&mut command, signals.before_bits());
        }
        let cpu_before_ns = children_cpu_ns();
        let child = command.spawn().map_err(|source| match daemon.map(Client::last_error) {
            Some(refusal) if !refusal.trim().is_empty() => SchedError::Daemon(refusal.trim().into()),
            _ => SchedError::Command { command: program.to_string_lossy().into_owned(), source },
        })?;
        let pid = child.id().cast_signed();
        if let Some(pages) = pages {
            pages.place(pid);
        }
        Ok(Self { pid: Pid::from_raw(pid), cpu_before_ns })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Returns `true` if it has ended and is a zombie.
    pub(super) fn has_ended(&self) -> bool {
        task::stat(self.pid()).is_ok_and(|s| s.state == b'Z')
    }

    /// Passes signals on until the program ends; orphans of the job that end meanwhile are waited for too.
    pub(super) fn wait(&self, signals: &Signals, job: &Job) -> Result<Ended, SchedError> {
        loop {
            if let Some(ending) = self.ending()? {
                self.reap_orphans(job);
                return Ok(Ended { ending, cpu_ns: children_cpu_ns().saturating_sub(self.cpu_before_ns) });
            }
            self.reap_orphans(job);
            if let Some(signal) = signals.next()? {
                // it may have ended just now
                let _ = kill(self.pid, signal);
            }
        }
    }

    /// Waits for orphans of the job that have ended. Other children of this process, the guardian among
    /// them, are left to those who started them.
    fn reap_orphans(&self, job: &Job) {
        for pid in job.orphans().into_iter().filter(|&pid| pid != self.pid()) {
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
    }

    fn ending(&self) -> Result<Option<Ending>, SchedError> {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => Ok(Some(Ending::Exited(code))),
            Ok(WaitStatus::Signaled(_, signal, _)) => Ok(Some(Ending::Killed(signal as i32))),
            Ok(_) | Err(Errno::EINTR) => Ok(None),
            Err(e) => Err(SchedError::system("waiting for the program")(e)),
        }
    }
}

/// Enters the group whose `cgroup.procs` is open.
fn move_to(group: Option<RawFd>) {
    if let Some(fd) = group {
        // SAFETY: the descriptor is open as long as the process that was forked.
        let _ = nix::unistd::write(unsafe { BorrowedFd::borrow_raw(fd) }, b"0");
    }
}

/// CPU time of all children this process has waited for, and of theirs.
fn children_cpu_ns() -> u64 {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|u| (u.user_time().num_nanoseconds() + u.system_time().num_nanoseconds()).max(0).unsigned_abs())
        .unwrap_or(0)
}
