// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node of the job: its window, its channels, its bells.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use colony_fship::layout::{self, CHANNELS};
use colony_fship::message::own;
use colony_fship::ring::{Bell, Consumer, Producer, Refused, SLOTS};
use colony_fship::{Reply, Request};

use super::window::Window;
use crate::{JobError, Rule, node};

/// Progress of a node in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not asked for work yet.
    Booting,
    /// It has asked, and waits until all others have.
    Ready,
    /// Its processes run.
    Running,
    /// Its processes have ended; it has not asked for more work yet.
    Ended,
    /// It has asked for more work.
    Idle,
    /// Nothing is expected of it any more.
    Lost,
}

/// A channel: a CPU of the node.
pub(super) struct Channel {
    requests: Consumer<'static, Request>,
    replies: Producer<'static, Reply>,
    /// Number of its process among the job's, as long as it runs.
    pub(super) process: Option<usize>,
    /// Requests that have no reply yet.
    pub(super) open: usize,
    /// Looked at without being rung for.
    pub(super) hot: bool,
    /// It was cold since its last request.
    slept: bool,
    /// Time at which its last request was done.
    pub(super) active: Instant,
    /// Value of looking for requests: it grows with each request that came while the worker looked, and falls with each
    /// sleep.
    worth: u8,
    /// Number of times it went cold.
    sleeps: u32,
}

impl Channel {
    /// Time to look for the next request. If looking was not worth it lately, no time is spent on it, except for a
    /// trial now and then.
    pub(super) fn spin_time(&self, spin: Duration) -> Duration {
        if self.worth > 0 || self.sleeps.is_multiple_of(TRIAL) { spin } else { Duration::ZERO }
    }

    /// A request has come; nobody had to ring for it unless the channel had slept.
    pub(super) fn found(&mut self) {
        if !std::mem::take(&mut self.slept) {
            self.worth = (self.worth + 2).min(WORTH);
        }
    }
}

/// A node.
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) window: Window,
    pub(super) stage: Stage,
    /// Deadline for it to ask for more work, after its processes ended.
    pub(super) deadline: Option<Instant>,
    pub(super) channels: Vec<Channel>,
    /// It has rung. Before, its bell may not work yet: a virtual machine runs its program even before it has taken
    /// the daemon's bell from its socket, and drops what is rung then.
    pub(super) heard: bool,
    /// Heard by the worker.
    pub(super) bell: OwnedFd,
    bells: [OwnedFd; CHANNELS],
}

impl Node {
    pub(super) fn new(number: u32, window: Window, bell: OwnedFd, bells: [OwnedFd; CHANNELS]) -> Self {
        let channel = |n| Channel {
            // SAFETY: the supervisor gives a node to one worker at a time, whose one `Node` of it this is
            requests: unsafe { Consumer::new(window.requests(n)) },
            // SAFETY: as above
            replies: unsafe { Producer::new(window.replies(n)) },
            process: None,
            open: 0,
            hot: false,
            active: Instant::now(),
            slept: false,
            worth: WORTH / 2,
            sleeps: 0,
        };
        let channels = (0..CHANNELS).map(channel).collect();
        Self { number, window, stage: Stage::Booting, deadline: None, channels, heard: false, bell, bells }
    }

    /// Answers the request for work: its processes are in place.
    pub(super) fn begin(&mut self) -> Result<(), JobError> {
        let node = self.number;
        let misbehaved = |rule| JobError::NodeMisbehaved { node, rule };
        let request = self.take(0).map_err(misbehaved)?;
        let request = request
            .filter(|r| r.call == own::NEXT_JOB)
            .ok_or_else(|| misbehaved(Rule::Order("a call".into())))?;
        if request.args[0] != u64::from(colony_fship::VERSION) {
            let (theirs, ours) = (request.args[0] as u32, colony_fship::VERSION);
            return Err(JobError::Version { node, theirs, ours });
        }
        self.stage = Stage::Running;
        self.reply(0, request.seq, 0).map_err(misbehaved)
    }

    /// The next request of channel `n`.
    pub(super) fn take(&mut self, n: usize) -> Result<Option<Request>, Rule> {
        let channel = &mut self.channels[n];
        // each request has a reply, and there is room for so many: more are not asked for by a sound kernel
        let request = channel.requests.pop().map_err(|_| Rule::Ring)?;
        if request.is_some() {
            channel.open += 1;
            if channel.open > SLOTS {
                return Err(Rule::Flood);
            }
        }
        Ok(request)
    }

    /// Answers, and rings if the node sleeps.
    pub(super) fn reply(&mut self, n: usize, seq: u32, result: i64) -> Result<(), Rule> {
        let channel = &mut self.channels[n];
        channel.open = channel.open.saturating_sub(1);
        match channel.replies.push(Reply { seq, flags: 0, result }) {
            Ok(Bell::Ring) => self.ring(n),
            Ok(Bell::Silent) => {}
            Err(Refused::Full) => return Err(Rule::Flood),
            Err(Refused::Corrupt) => return Err(Rule::Ring),
        }
        Ok(())
    }

    /// A request of channel `n` gets no reply.
    pub(super) fn forgo(&mut self, n: usize) {
        let channel = &mut self.channels[n];
        channel.open = channel.open.saturating_sub(1);
    }

    fn ring(&self, n: usize) {
        node::ring(&self.bells[n]);
    }

    /// Tells the process on channel `n` of a signal.
    pub(super) fn signal(&mut self, n: usize, signal: u32) {
        self.window.signals(n).fetch_or(1 << (signal - 1), Ordering::SeqCst);
        self.ring(n);
    }

    /// No signal is left from an earlier job.
    pub(super) fn forget_signals(&self) {
        for n in 0..CHANNELS {
            self.window.signals(n).store(0, Ordering::SeqCst);
        }
    }

    /// Returns `true` if something is expected of it, and its bell was never heard.
    pub(super) fn is_unheard(&self) -> bool {
        !self.heard && matches!(self.stage, Stage::Booting | Stage::Running | Stage::Ended)
    }

    /// Returns `true` if channel `n` has a request that was not taken yet.
    pub(super) fn asks(&self, n: usize) -> bool {
        self.channels[n].requests.waiting()
    }

    /// Returns `true` if its next request is for a job.
    pub(super) fn wants_job(&self) -> bool {
        matches!(self.channels[0].requests.peek(), Ok(Some(request)) if request.call == own::NEXT_JOB)
    }

    /// Goes to sleep over channel `n`; `false` if it asks for something.
    pub(super) fn may_sleep(&mut self, n: usize) -> bool {
        let channel = &mut self.channels[n];
        let sleeps = channel.requests.may_sleep();
        channel.hot = !sleeps;
        if sleeps {
            channel.slept = true;
            channel.worth = channel.worth.saturating_sub(1);
            channel.sleeps = channel.sleeps.wrapping_add(1);
        }
        sleeps
    }

    /// Looks at channel `n` from now on.
    pub(super) fn wake(&mut self, n: usize, now: Instant) {
        let channel = &mut self.channels[n];
        if !channel.hot {
            channel.requests.wake();
            channel.hot = true;
            channel.active = now;
        }
    }

    /// The crash record of the last process on channel `n` that ended by a fault.
    pub(super) fn crash(&self, n: usize) -> layout::CrashRecord {
        self.window.get(layout::crash_at(n))
    }

    /// Words of the kernel, as text.
    pub(super) fn log(&self, at: u64, length: u64) -> Option<String> {
        let inside =
            length <= layout::LOG_SIZE && at.checked_add(length).is_some_and(|end| end <= layout::LOG_SIZE);
        let all: [u8; layout::LOG_SIZE as usize] = inside.then(|| self.window.get(layout::LOG_AT))?;
        let words = String::from_utf8_lossy(&all[at as usize..(at + length) as usize]).into_owned();
        Some(words.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "?"))
    }
}

/// The most that looking for requests can be worth.
const WORTH: u8 = 16;
/// One of so many sleeps of a channel comes after a look for requests, whatever that was worth.
const TRIAL: u32 = 16;

/// A crash record for people.
pub(super) fn describe(c: &layout::CrashRecord) -> String {
    const NAMES: [&str; 16] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];
    let name = i32::try_from(c.signal).ok().and_then(|n| nix::sys::signal::Signal::try_from(n).ok());
    let name = name.map_or_else(|| format!("signal {}", c.signal), |s| s.to_string());
    let mut text = match c.vector {
        255 => name,
        n => format!("{name}: exception {n}, error code {:#x}, address {:#x}", c.error, c.address),
    };
    text += &format!("\n  rip {:016x}  flags {:016x}  fs {:016x}", c.rip, c.rflags, c.fs_base);
    for (four, names) in c.registers.chunks(4).zip(NAMES.chunks(4)) {
        text.push('\n');
        for (value, name) in four.iter().zip(names) {
            text += &format!("  {name:>3} {value:016x}");
        }
    }
    text
}
