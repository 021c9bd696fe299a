// SPDX-License-Identifier: MIT OR Apache-2.0
//! In the process that owns a partition: its boot process, and the emulators there.

use std::collections::BTreeMap;
use std::io::{self, PipeReader};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use colony_node::descriptor::close_on_exec_from;
use colony_vm::{VmError, qemu};

use super::protocol::{Refusal, Report, Request, VERSION, pair, receive, send};
use crate::CnkError;
use crate::death::Cause;

/// Timeout for the end of a killed emulator, on a busy machine with much memory to give back.
const KILLED: Duration = Duration::from_secs(10);

/// Timeout for the boot process to start an emulator.
const BOOTED: Duration = Duration::from_secs(60);

/// A boot process. Dropping it ends it, and all emulators that it has started.
#[derive(Debug)]
pub(crate) struct Booter {
    child: Option<Child>,
    link: Arc<Link>,
    /// One request to boot at a time: answers have no number.
    asking: Mutex<()>,
}

/// The socket to the boot process, and its reports.
#[derive(Debug)]
struct Link {
    socket: UnixStream,
    /// Process id of the boot process; 0 for one that is a thread of a test.
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Its answer to the last request to boot.
    answer: Option<Report>,
    /// The ends of the emulators that have ended, by number.
    ended: BTreeMap<u64, String>,
    /// It has ended, and so has every emulator.
    over: bool,
}

impl Booter {
    /// Starts the boot process: the program `colony-boot` at this path.
    ///
    /// # Errors
    /// If it cannot be started, or is of another version.
    pub(crate) fn start(program: &Path) -> Result<Self, CnkError> {
        let io = |source| CnkError::Boot { program: program.to_owned(), source };
        let (ours, theirs) = pair().map_err(io)?;
        let mut command = Command::new(program);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(|| close_on_exec_from(3)) };
        let child = command.spawn().map_err(io)?;
        // its copy of the other end would keep the socket open after the boot process has ended
        drop(command);
        Self::on(ours, Some(child)).map_err(io)
    }

    /// With a boot process at the other end of this socket.
    fn on(socket: UnixStream, child: Option<Child>) -> io::Result<Self> {
        let pid = child.as_ref().map_or(0, Child::id);
        let link = Arc::new(Link { socket, pid, state: Mutex::default(), changed: Condvar::new() });
        let booter = Self { child, link, asking: Mutex::default() };
        match receive::<Report>(&booter.link.socket)? {
            Some((Report::Ready { version }, _)) if version == VERSION => {}
            Some((Report::Ready { version }, _)) => {
                return Err(io::Error::other(format!("it is version {version}, and this is {VERSION}")));
            }
            other => return Err(io::Error::other(format!("it reported {other:?} first"))),
        }
        let link = booter.link.clone();
        std::thread::Builder::new().name("colony-boot".into()).spawn(move || link.listen())?;
        Ok(booter)
    }

    /// Starts an emulator with these arguments and these descriptors; what it writes on its console is read from the pipe.
    ///
    /// # Errors
    /// If the emulator does not start, or the boot process has ended.
    pub(crate) fn boot(
        &self,
        arguments: Vec<String>,
        fds: Vec<OwnedFd>,
    ) -> Result<(Emulator, PipeReader), CnkError> {
        let failed = || CnkError::io("booting a node");
        let (console, writer) = io::pipe().map_err(failed())?;
        let all: Vec<_> = std::iter::once(writer.as_fd()).chain(fds.iter().map(|fd| fd.as_fd())).collect();
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        send(&self.link.socket, &Request::Boot(arguments), &all).map_err(failed())?;
        let mut state = self.link.wait_while(|s| s.answer.is_none() && !s.over, BOOTED);
        match state.answer.take() {
            Some(Report::Booted { number, pid }) => {
                Ok((Emulator { number, pid, link: self.link.clone() }, console))
            }
            Some(Report::Refused(Refusal::Missing(reason))) => Err(qemu::missing(reason).into()),
            Some(Report::Refused(Refusal::Wrong(text))) => Err(VmError::Wrong(text).into()),
            Some(Report::Refused(Refusal::System(text))) => Err(failed()(io::Error::other(text))),
            _ if state.over => Err(failed()(io::Error::other("the boot process has ended"))),
            _ => Err(failed()(io::Error::new(io::ErrorKind::TimedOut, "the boot process does not answer"))),
        }
    }

    /// Returns `true` if the boot process has ended, and with it every emulator.
    pub(crate) fn is_over(&self) -> bool {
        self.link.lock().over
    }

    /// Process id of the boot process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Booter {
    fn drop(&mut self) {
        let _ = self.link.socket.shutdown(Shutdown::Both);
        let Some(child) = &mut self.child else { return };
        let since = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if since.elapsed() > KILLED {
                // it was stopped; its emulators die with it
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Link {
    /// Takes reports until the boot process ends.
    fn listen(&self) {
        loop {
            let report = receive::<Report>(&self.socket);
            let mut state = self.lock();
            match report {
                Ok(Some((Report::Ended { number, how }, _))) => {
                    state.ended.insert(number, how);
                }
                Ok(Some((answer, _))) => state.answer = Some(answer),
                Ok(None) | Err(_) => state.over = true,
            }
            self.changed.notify_all();
            if state.over {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while this holds, no longer than `limit`.
    fn wait_while(&self, holds: impl Fn(&State) -> bool, limit: Duration) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |s| holds(s));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// An emulator. Clones are of the same one.
#[derive(Clone, Debug)]
pub(crate) struct Emulator {
    number: u64,
    pid: u32,
    link: Arc<Link>,
}

impl Emulator {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The way it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Cause> {
        let state = self.link.lock();
        let over = || state.over.then_some(Cause::BootProcess { pid: self.link.pid });
        state.ended.get(&self.number).cloned().map(Cause::Emulator).or_else(over)
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(&self) {
        if self.ended().is_none() && send(&self.link.socket, &Request::Kill(self.number), &[]).is_ok() {
            drop(self.link.wait_while(|s| !s.over && !s.ended.contains_key(&self.number), KILLED));
        }
    }
}

#[cfg(test)]
impl Booter {
    /// A boot process that is a thread of this test.
    pub(crate) fn in_thread() -> Self {
        let (ours, theirs) = pair().expect("a pair of sockets");
        std::thread::spawn(move || super::server::serve(&theirs));
        Self::on(ours, None).expect("it is ready")
    }
}
