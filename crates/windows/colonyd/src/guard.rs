// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guard: a process that undoes the changes of the daemon when the daemon ends, however it ends. It unmounts the tree,
//! gives the job's tasks the CPUs back that they had, and removes the socket of the metrics and the health file.
//!
//! A FUSE mount stays in place when its daemon dies, and every program that looks at it gets `Transport endpoint is not
//! connected`. The guard waits on a socket whose other end only the daemon has: `kill -9`
//! closes it too. It keeps the privilege to unmount, so that the daemon can give that up. Scheduling
//! classes are restored by the agent's [guardian](colony_sched::guardian).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use caps::Capability;
use colony_node::task::TaskId;
use colony_sched::binding::{self, Bound};
use colony_sched::log;
use colony_sched::undo::mount::{remove_directory, wait_for_death};
use colony_sched::undo::{DAEMON, NodeChanges, SocketFile, UndoFile, arm_again, arm_or_log};
use serde::{Deserialize, Serialize};

use crate::health::HealthFile;
use crate::mount::{self, Place};
use crate::privileges;

/// First argument of a process that is a guard.
const GUARD_ARGUMENT: &str = "--guard-of-mount";

/// Time that the end of a daemon may take on a busy node.
const DYING: Duration = Duration::from_secs(60);

/// The byte that the guard sends when it is ready.
const READY: u8 = b'r';

/// A message of the daemon to its guard: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// These tasks are about to be bound.
    Bound(Vec<Bound>),
    /// The processes of the job, by which orphans of tasks that were bound are found.
    Processes(Vec<TaskId>),
    /// The job has ended, and its tasks have their CPUs back.
    Ended,
    /// The socket where monitors ask.
    Socket(SocketFile),
    /// An orderly end.
    Unmount,
}

/// Records the changes of a message in `recorded`.
fn record(recorded: &mut NodeChanges, message: Message) {
    match message {
        Message::Bound(changes) => {
            binding::prune(&mut recorded.bound);
            recorded.bound.extend(changes);
        }
        Message::Processes(now) => recorded.processes = now,
        Message::Ended => (recorded.bound, recorded.processes) = Default::default(),
        Message::Socket(made) => recorded.socket = Some(made),
        Message::Unmount => {}
    }
}

/// The daemon's copy of what the guard knows, and the undo file with the same content.
#[derive(Debug)]
struct Ledger {
    recorded: NodeChanges,
    file: Option<UndoFile<NodeChanges>>,
}

impl Ledger {
    fn new(place: &Place) -> Self {
        let recorded =
            NodeChanges { mount: place.path().to_owned(), remove: place.created(), ..NodeChanges::default() };
        let file = UndoFile::new(DAEMON).and_then(|file| file.save(&recorded).map(|()| file));
        let file = file
            .inspect_err(|e| tracing::warn!("nobody undoes the death of colonyd and its guard at once: {e}"))
            .ok();
        Self { recorded, file }
    }

    fn write_down(&mut self, message: Message) -> io::Result<()> {
        record(&mut self.recorded, message);
        self.file.as_ref().map_or(Ok(()), |file| file.save(&self.recorded))
    }
}

/// The guard, as the daemon sees it.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    line: UnixStream,
    ledger: Arc<Mutex<Ledger>>,
}

impl Guard {
    /// Starts the guard of `place` from this very program, and waits until it watches.
    pub(crate) fn start(place: &Place) -> io::Result<Self> {
        let (mut line, theirs) = UnixStream::pair()?;
        arm_or_log();
        let ledger = Ledger::new(place);
        let child = Command::new("/proc/self/exe")
            .arg0("colonyd-guard")
            .arg(GUARD_ARGUMENT)
            .arg(place.path())
            .arg(if place.created() { "remove" } else { "keep" })
            .args(ledger.file.as_ref().map(UndoFile::path))
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()?;
        line.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut said = [0];
        line.read_exact(&mut said)?;
        line.set_read_timeout(None)?;
        // a guard that was stopped must not hold up the daemon
        line.set_write_timeout(Some(Duration::from_secs(2)))?;
        Ok(Self { child, line, ledger: Arc::new(Mutex::new(ledger)) })
    }

    /// Tells the guard which socket to remove if the daemon dies.
    pub(crate) fn socket(&self, made: &SocketFile) -> io::Result<()> {
        self.teller()?.tell(Message::Socket(made.clone()))
    }

    /// A way to tell the guard which tasks are bound.
    pub(crate) fn teller(&self) -> io::Result<Teller> {
        Ok(Teller { line: self.line.try_clone()?, ledger: Arc::clone(&self.ledger) })
    }

    /// Something that blocks until the guard has gone.
    pub(crate) fn watch(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let mut line = self.line.try_clone()?;
        Ok(move || {
            let _ = line.read(&mut [0]);
        })
    }

    /// Has the guard unmount the tree, and returns when that is done.
    pub(crate) fn unmount(mut self) -> io::Result<()> {
        tell(&self.line, &Message::Unmount)?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("the guard could not unmount")) }
    }
}

/// The daemon's way to tell the guard what to undo.
#[derive(Debug)]
pub(crate) struct Teller {
    line: UnixStream,
    ledger: Arc<Mutex<Ledger>>,
}

impl Teller {
    /// Tells the guard that these tasks are about to be bound.
    pub(crate) fn bound(&self, changes: &[Bound]) -> io::Result<()> {
        self.tell(Message::Bound(changes.to_vec()))
    }

    /// Tells the guard which processes the job has now.
    pub(crate) fn processes(&self, processes: &[TaskId]) -> io::Result<()> {
        self.tell(Message::Processes(processes.to_vec()))
    }

    /// Tells the guard that no task is bound any more.
    pub(crate) fn ended(&self) -> io::Result<()> {
        self.tell(Message::Ended)
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        tell(&self.line, &message)?;
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).write_down(message)
    }
}

fn tell(mut line: &UnixStream, message: &Message) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    line.write_all(&text)
}

/// If this process was started as a guard, does that work; then its exit code.
pub fn guard_main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != GUARD_ARGUMENT {
        return None;
    }
    let (Some(path), Some(then), undo) = (arguments.next(), arguments.next(), arguments.next()) else {
        log::say(format_args!("colonyd: {GUARD_ARGUMENT} is for colonyd's own use"));
        return Some(ExitCode::from(2));
    };
    let code = guard(&PathBuf::from(path), then == "remove");
    if let Some(undo) = undo.filter(|_| code == ExitCode::SUCCESS) {
        let _ = std::fs::remove_file(undo);
    }
    Some(code)
}

fn guard(path: &Path, remove: bool) -> ExitCode {
    outlive_the_daemon();
    let Ok(mut line) = nix::unistd::dup(io::stdin()).map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    if line.write_all(&[READY]).is_err() {
        return ExitCode::FAILURE;
    }
    let mut recorded = NodeChanges::default();
    let orderly = listen(line, &mut recorded);
    recorded.undo_at_once();
    // nobody keeps it up to date any more
    HealthFile::beside(path).remove();
    let gone = if orderly { mount::detach_path(path).is_ok() } else { wait_for_death(path, DYING) };
    if remove {
        remove_directory(path);
    }
    if !gone {
        log::say(format_args!("colonyd-guard: cannot unmount {}; try: umount -l {0}", path.display()));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Reads messages until the daemon ends, and records the changes to undo. Returns whether the daemon ended in order.
fn listen(line: UnixStream, recorded: &mut NodeChanges) -> bool {
    for message in BufReader::new(line).split(b'\n') {
        match message.map(|m| serde_json::from_slice(&m)) {
            Ok(Ok(Message::Unmount)) => return true,
            Ok(Ok(message)) => {
                record(recorded, message);
                if let Err(e) = arm_again() {
                    log::say(format_args!("colonyd-guard: the kernel starts no release agent any more: {e}"));
                }
            }
            // half a message: the daemon died within it, and has not bound what it could not tell
            Ok(Err(_)) | Err(_) => return false,
        }
    }
    false
}

/// Ignores signals, and gives up every privilege except those to unmount and to bind tasks.
fn outlive_the_daemon() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    let _ = nix::unistd::setsid();
    for s in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler.
        let _ = unsafe { signal(s, SigHandler::SigIgn) };
    }
    let mut kept = privileges::to_schedule(false);
    kept.push(Capability::CAP_SYS_ADMIN);
    privileges::keep_only(&kept).unwrap_or_else(|e| {
        log::say(format_args!("colonyd-guard: keeps more privileges than it needs: {e}"));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_node::cpu::CpuSet;

    #[test]
    fn changes_of_an_ended_job_are_not_undone_again() {
        let (daemon, guard) = UnixStream::pair().expect("a pair");
        let task = TaskId { tid: 1, start_ticks: 2 };
        let cpus: CpuSet = std::iter::once(0).collect();
        let bound = Bound { task, old: cpus.clone(), new: cpus };
        let ledger = Arc::new(Mutex::new(Ledger { recorded: NodeChanges::default(), file: None }));
        let teller = Teller { line: daemon, ledger: Arc::clone(&ledger) };
        let mut recorded = NodeChanges::default();
        for ended in [false, true] {
            teller
                .bound(std::slice::from_ref(&bound))
                .and_then(|()| teller.processes(&[task]))
                .expect("it hears");
            if ended {
                teller.ended().expect("it hears");
            }
        }
        tell(&teller.line, &Message::Unmount).expect("it hears");
        assert!(listen(guard, &mut recorded));
        assert!(recorded.bound.is_empty() && recorded.processes.is_empty(), "{recorded:?}");
        let written = &ledger.lock().expect("no panic").recorded;
        assert!(written.bound.is_empty() && written.processes.is_empty(), "{written:?}");
    }
}
