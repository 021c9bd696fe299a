// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of a run: started, signalled, waited for.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use colony_client::Client;
use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use colony_pages::{Launch, Watch};
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid};

use super::config::{Ending, RunConfig};
use super::signals::{Event, ProgramSignals, Received, Signals, Suspension};
use crate::SchedError;
use crate::job::Job;
use crate::spare::Reservation;
use crate::undo::release;

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
        let inherited = signals.of_program();
        let mut command = command(config, cpus, inherited, reservation)?;
        if let Some(daemon) = daemon {
            daemon.join_on_start(&mut command).map_err(|e| SchedError::Daemon(e.to_string()))?;
        }
        let attempt = Attempt::mark_before_exec(&mut command)?;
        if let Some(pages) = &mut pages {
            pages.prepare(&mut command, inherited.mask_bits());
        }
        let cpu_before_ns = children_cpu_ns();
        let child = command.spawn().map_err(|source| {
            let command = command.get_program().to_string_lossy().into_owned();
            if attempt.has_reached_exec() {
                return SchedError::Command { command, source };
            }
            match daemon.map(Client::last_error) {
                Some(refusal) if !refusal.trim().is_empty() => SchedError::Daemon(refusal.trim().into()),
                _ => SchedError::Start { command, source },
            }
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

    /// Passes signals on until the program ends, stops with it, and looks at the memory that is left for its pages. Orphans
    /// of the job that end meanwhile are waited for too.
    pub(super) fn wait(
        &self,
        signals: &Signals,
        job: &Job,
        mut pages: Option<&mut Watch>,
    ) -> Result<Ended, SchedError> {
        let mut suspension = Suspension::default();
        loop {
            // on every event: a signal may have been read in the place of `SIGCHLD`
            if let Some(ending) = self.read_changes(&mut suspension)? {
                self.reap_orphans(job);
                return Ok(Ended { ending, cpu_ns: children_cpu_ns().saturating_sub(self.cpu_before_ns) });
            }
            suspension.follow();
            let timeout = pages.as_deref_mut().and_then(Watch::check_headroom);
            match signals.next(timeout)? {
                Event::Child => self.reap_orphans(job),
                Event::Signal(signal) => {
                    suspension.note_signal(signal);
                    if !self.has_from_group(signal, job) {
                        signal.pass_on(self.pid);
                    }
                }
                Event::Timeout => {}
            }
        }
    }

    /// Returns `true` if a process of the job has sent the signal to its whole process group, to which the program and this
    /// process belong: `kill 0` in a script. A process of the job that sends a signal to this process alone looks the same.
    fn has_from_group(&self, signal: Received, job: &Job) -> bool {
        let Some(sender) = signal.sender() else { return false };
        let group = Some(getpgrp());
        if getpgid(Some(sender)).ok() != group || getpgid(Some(self.pid)).ok() != group {
            return false;
        }
        let is_member = || sender == self.pid || job.processes().contains(&sender.as_raw());
        is_member() || {
            job.refresh();
            is_member()
        }
    }

    /// Waits for orphans of the job that have ended. Other children of this process, the guardian among
    /// them, are left to those who started them.
    fn reap_orphans(&self, job: &Job) {
        for pid in job.orphans().into_iter().filter(|&pid| pid != self.pid()) {
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
    }

    /// Reads the changes of the program that the kernel has to tell, up to its end.
    fn read_changes(&self, suspension: &mut Suspension) -> Result<Option<Ending>, SchedError> {
        while let Some(status) = change_of(self.pid)? {
            if libc::WIFEXITED(status) {
                return Ok(Some(Ending::Exited(libc::WEXITSTATUS(status))));
            }
            if libc::WIFSIGNALED(status) {
                return Ok(Some(Ending::Killed(libc::WTERMSIG(status))));
            }
            if libc::WIFSTOPPED(status) {
                suspension.note_stop(libc::WSTOPSIG(status));
            } else {
                suspension.note_continuation();
            }
        }
        Ok(None)
    }
}

/// The command of the program, whose process takes its signals, its group and its CPUs before it starts.
fn command(
    config: &RunConfig,
    cpus: &CpuSet,
    signals: ProgramSignals,
    reservation: Option<&Reservation>,
) -> Result<Command, SchedError> {
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
    let way_out = release::way_out();
    let parent = getpid();
    let prepare = move || {
        signals.restore()?;
        // out of the group whose end the kernel tells of: that is for what serves the job, not for the job
        move_to(way_out);
        move_to(entry);
        bound.as_ref().map_or(Ok(()), |cpus| cpu::bind(0, cpus)).map_err(io::Error::other)?;
        // if the parent has been killed, its changes may be undone already, and nobody would unbind this process
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only system calls are made; they take no lock and, on their
    // good path, no memory.
    unsafe { command.pre_exec(prepare) };
    Ok(command)
}

/// The status of a child that has changed. By number: the statuses of `nix` have no real-time signals.
fn change_of(pid: Pid) -> Result<Option<libc::c_int>, SchedError> {
    let mut status = 0;
    let kinds = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: the kernel writes into `status`, which lives on this stack.
    match unsafe { libc::waitpid(pid.as_raw(), &raw mut status, kinds) } {
        0 => Ok(None),
        -1 => match Errno::last() {
            Errno::EINTR => Ok(None),
            e => Err(SchedError::system("waiting for the program")(e)),
        },
        _ => Ok(Some(status)),
    }
}

/// Tells whether a child came as far as `execve`. An error before is no fault of the program.
struct Attempt {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Attempt {
    /// Has the command's process leave a mark when all that was prepared so far has been done.
    fn mark_before_exec(command: &mut Command) -> Result<Self, SchedError> {
        let failed =
            |source| SchedError::System { what: "making a pipe for the start of the program", source };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let fd = writer.as_raw_fd();
        let mark = move || {
            // SAFETY: the descriptor is open as long as the process that was forked has not become the program.
            let _ = nix::unistd::write(unsafe { BorrowedFd::borrow_raw(fd) }, b"!");
            Ok(())
        };
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(mark) };
        Ok(Self { reader, writer })
    }

    /// Returns `true` if there is a mark. The process has ended.
    fn has_reached_exec(self) -> bool {
        let Self { mut reader, writer } = self;
        drop(writer);
        reader.read(&mut [0]).is_ok_and(|bytes| bytes > 0)
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
