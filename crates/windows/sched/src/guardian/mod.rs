// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guardian: a process of its own that puts tasks back into their own class when the agent dies.
//!
//! It is this very program, started again (`/proc/self/exe`) in a session of its own, and told over a
//! socket which tasks there are and which class each has of its own. When the agent ends, however that was,
//! it puts back every task and what descends from it, and exits. It runs above the job's priority, asleep,
//! so that a job that spins on all CPUs cannot keep it from acting. When the guardian dies, the agent starts another one at
//! once; when both die, the undo file says what is left to do.

mod message;
mod watch;

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::cpu::CpuSet;
use colony_node::pidfd::Pidfd;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::SchedError;
use crate::binding::keep_off;
use crate::undo::release;
use message::READY;

pub(crate) use message::Message;

/// The name of a guardian's process.
pub(crate) const NAME: &CStr = c"colony-guardian";
/// The first argument of a guardian.
const ARGUMENT: &str = "--colony-guardian";
/// Timeout for a guardian to get ready, or to take a message.
const TIMEOUT: Duration = Duration::from_secs(2);

static ASKED: AtomicBool = AtomicBool::new(false);

/// Becomes the guardian if this process was started as one, and then does not return.
pub(crate) fn main_if_asked() {
    ASKED.store(true, Ordering::Release);
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|a| a == ARGUMENT) {
        let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
        let code = match (number().map(u8::try_from), number()) {
            (Some(Ok(priority)), Some(silence_ms)) => {
                let undo = arguments.next().map(PathBuf::from);
                watch::watch(priority, Duration::from_millis(silence_ms), undo.as_deref())
            }
            _ => 2,
        };
        std::process::exit(code);
    }
}

/// The thread that starts guardians: it is above the job's priority, and the guardian hears of its end.
#[derive(Debug)]
pub(crate) struct Starter {
    ask: Sender<()>,
    get: Receiver<Result<Guardian, SchedError>>,
}

impl Starter {
    /// Starts the thread. Its guardians run at `SCHED_FIFO` `priority`, as it does, act by themselves if
    /// they hear nothing for `silence`, and remove the undo file `undo` when they have acted. They keep off the job's
    /// CPUs `cpus`: what the kernel does after the death of all of them begins on the CPU they were on.
    pub(crate) fn new(
        priority: u8,
        silence: Duration,
        undo: Option<PathBuf>,
        cpus: CpuSet,
    ) -> Result<Self, SchedError> {
        // guardians are in the group whose end the kernel tells of, as this process is
        release::arm_or_log();
        let (ask, asked) = channel();
        let (give, get) = channel();
        let body = move || {
            // the agent has tried the class before
            let _ = class::set_not_inherited(0, Class::Fifo(priority));
            keep_off(&cpus);
            let start = || Guardian::start(priority, silence, undo.as_deref());
            while asked.recv().is_ok() && give.send(start()).is_ok() {}
        };
        std::thread::Builder::new().name("colony-starter".into()).spawn(body).map_err(|source| {
            SchedError::System { what: "starting the thread that starts guardians", source }
        })?;
        Ok(Self { ask, get })
    }

    /// Starts a guardian.
    pub(crate) fn start(&self) -> Result<Guardian, SchedError> {
        let gone = || SchedError::Guardian("the thread that starts it has ended".into());
        self.ask.send(()).map_err(|_| gone())?;
        self.get.recv().map_err(|_| gone())?
    }
}

/// The agent's end of its guardian.
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Child,
    link: UnixStream,
}

impl Guardian {
    fn start(priority: u8, silence: Duration, undo: Option<&Path>) -> Result<Self, SchedError> {
        if !ASKED.load(Ordering::Acquire) {
            return Err(SchedError::Guardian(
                "this program does not call colony_sched::main_if_asked at its start".into(),
            ));
        }
        let error = |e: io::Error| SchedError::Guardian(e.to_string());
        let (link, its) = UnixStream::pair().map_err(error)?;
        link.set_read_timeout(Some(TIMEOUT)).map_err(error)?;
        link.set_write_timeout(Some(TIMEOUT)).map_err(error)?;
        let child = Command::new("/proc/self/exe")
            .args([ARGUMENT, &priority.to_string(), &silence.as_millis().to_string()])
            .args(undo)
            .current_dir("/")
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(error)?;
        let mut guardian = Self { child, link };
        let mut ready = [0];
        match guardian.link.read_exact(&mut ready) {
            Ok(()) if ready == [READY] => Ok(guardian),
            Ok(()) => Err(SchedError::Guardian("it does not speak as one".into())),
            Err(e) => Err(SchedError::Guardian(format!("it did not get ready: {e}"))),
        }
    }

    /// Calls `ended` from a thread of its own when the guardian has ended, however it ended. Without the kernel's help
    /// (`pidfd_open`, Linux 5.3) that is seen when the guardian is told something.
    pub(crate) fn on_end(&self, ended: impl FnOnce() + Send + 'static) {
        let Ok(end) = Pidfd::open(self.child.id()) else { return };
        let wait = move || {
            let mut source = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            while poll(&mut source, PollTimeout::NONE) == Err(Errno::EINTR) {}
            ended();
        };
        // without a thread it is seen when the guardian is told something
        let _ = std::thread::Builder::new().name("colony-guardian".into()).spawn(wait);
    }

    /// The process number of the guardian.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Tells it something.
    ///
    /// # Errors
    /// If the guardian has died, or does not read any more.
    pub(crate) fn tell(&mut self, message: Message) -> io::Result<()> {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        self.link.write_all(&line)
    }
}

impl Drop for Guardian {
    /// Ends the link, upon which the guardian acts, unless it was told [`Message::Done`], and exits.
    fn drop(&mut self) {
        let _ = self.link.shutdown(std::net::Shutdown::Both);
        let asked = Instant::now();
        while asked.elapsed() < TIMEOUT {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                // ended, or waited for by someone else
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
