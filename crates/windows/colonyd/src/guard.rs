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
use colony_ledger::OwnerId;
use colony_sched::undo::mount::{remove_directory, wait_for_death};
use colony_sched::undo::{DAEMON, MountNamespace, NodeChanges, SocketFile, UndoFile, arm_again, arm_or_log};
use colony_sched::{above_all_jobs, log};
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
    /// The owner, in the ledger of affinities, of the tasks that the daemon binds.
    Affinities(OwnerId),
    /// The daemon is about to change the node.
    Change,
    /// The socket where monitors ask.
    Socket(SocketFile),
    /// An orderly end.
    Unmount,
}

/// Records the changes of a message in `recorded`.
fn record(recorded: &mut NodeChanges, message: Message) {
    match message {
        Message::Affinities(owner) => recorded.affinities = Some(owner),
        Message::Socket(made) => recorded.socket = Some(made),
        Message::Change | Message::Unmount => {}
    }
}

/// The daemon's copy of what the guard knows, and the undo file with the same content.
#[derive(Debug)]
struct Record {
    recorded: NodeChanges,
    file: Option<UndoFile<NodeChanges>>,
}

impl Record {
    fn new(place: &Place) -> Self {
        let mut recorded =
            NodeChanges { mount: place.path().to_owned(), remove: place.created(), ..NodeChanges::default() };
        let file = MountNamespace::here().and_then(|namespace| {
            recorded.namespace = Some(namespace);
            let file = UndoFile::new(DAEMON)?;
            file.save(&recorded).map(|()| file)
        });
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
    record: Arc<Mutex<Record>>,
}

impl Guard {
    /// Starts the guard of `place` from this very program, and waits until it watches.
    pub(crate) fn start(place: &Place) -> io::Result<Self> {
        let (mut line, theirs) = UnixStream::pair()?;
        arm_or_log();
        let record = Record::new(place);
        let child = Command::new("/proc/self/exe")
            .arg0("colonyd-guard")
            .arg(GUARD_ARGUMENT)
            .arg(place.path())
            .arg(if place.created() { "remove" } else { "keep" })
            .args(record.file.as_ref().map(UndoFile::path))
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
        Ok(Self { child, line, record: Arc::new(Mutex::new(record)) })
    }

    /// Tells the guard which socket to remove if the daemon dies.
    pub(crate) fn socket(&self, made: &SocketFile) -> io::Result<()> {
        self.teller()?.tell(Message::Socket(made.clone()))
    }

    /// A way to tell the guard which tasks are bound.
    pub(crate) fn teller(&self) -> io::Result<Teller> {
        Ok(Teller { line: self.line.try_clone()?, record: Arc::clone(&self.record) })
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
    record: Arc<Mutex<Record>>,
}

impl Teller {
    /// Tells the guard by which owner the daemon binds tasks.
    pub(crate) fn affinities(&self, owner: OwnerId) -> io::Result<()> {
        self.tell(Message::Affinities(owner))
    }

    /// Tells the guard that tasks are about to be bound. Only with a guard that listens is anything changed.
    pub(crate) fn change(&self) -> io::Result<()> {
        self.tell(Message::Change)
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        tell(&self.line, &message)?;
        self.record.lock().unwrap_or_else(PoisonError::into_inner).write_down(message)
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
    let is_unmounted = || {
        recorded.undo_at_once();
        // nobody keeps it up to date any more
        HealthFile::beside(path).remove();
        let gone = if orderly { mount::detach_path(path).is_ok() } else { wait_for_death(path, DYING) };
        if remove {
            remove_directory(path);
        }
        gone
    };
    if !above_all_jobs(is_unmounted) {
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
    let _ = nix::sys::prctl::set_name(c"colonyd-guard");
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
    use colony_ledger::Affinities;

    #[test]
    fn the_guard_and_the_undo_file_know_the_owner_of_changed_affinities() {
        let (daemon, guard) = UnixStream::pair().expect("a pair");
        let record = Arc::new(Mutex::new(Record { recorded: NodeChanges::default(), file: None }));
        let teller = Teller { line: daemon, record: Arc::clone(&record) };
        if !colony_testing::machine::has_undo_folder() {
            return;
        }
        let affinities = Affinities::new().expect("a folder");
        teller.affinities(affinities.owner()).and_then(|()| teller.change()).expect("it hears");
        tell(&teller.line, &Message::Unmount).expect("it hears");
        let mut recorded = NodeChanges::default();
        assert!(listen(guard, &mut recorded));
        assert_eq!(recorded.affinities, Some(affinities.owner()));
        assert_eq!(record.lock().expect("no panic").recorded.affinities, Some(affinities.owner()));
    }
}
