// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that wait: the queue that keeps one of them from stalling the others (SC06 paper, 4.1).
//!
//! A call that cannot go on says what it waits for, and is made again from its request when that may be there; what
//! it has moved so far is kept in its [`Progress`]. Each has an `epoll` of its own for the descriptors it waits for,
//! so that no two waits for the same file get in each other's way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use colony_fship::Request;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// The events for which a call waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Descriptors of the system, with the events of `epoll`.
    pub(crate) on: Vec<(RawFd, i32)>,
    /// Room in these outputs of the job.
    pub(crate) outputs: [bool; 2],
    /// Made again at this time whatever happens.
    pub(crate) until: Option<Instant>,
    /// Made again after this time: for what cannot be waited for.
    pub(crate) every: Option<Duration>,
    /// Made again when the others have had their turn.
    pub(crate) now: bool,
}

impl Wait {
    pub(crate) fn on(fd: RawFd, events: i32) -> Self {
        Self { on: vec![(fd, events)], ..Self::default() }
    }

    /// For room in output `n`.
    pub(crate) fn for_room(n: usize) -> Self {
        Self { outputs: std::array::from_fn(|output| output == n), ..Self::default() }
    }
}

/// Progress of a call that is made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes moved.
    pub(crate) done: u64,
    /// Its deadline.
    pub(crate) deadline: Option<Instant>,
    /// It was made before.
    pub(crate) again: bool,
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) process: usize,
    /// Channel of the reply.
    pub(super) channel: usize,
    pub(super) request: Request,
    pub(super) progress: Progress,
    outputs: [bool; 2],
    timer: Option<Instant>,
    /// Keeps it registered.
    _epoll: Option<Epoll>,
}

/// The calls that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    next: u64,
    all: BTreeMap<u64, Waiting>,
    timers: BTreeSet<(Instant, u64)>,
    /// Calls that continue when the others have had their turn.
    turn: VecDeque<u64>,
}

impl Queue {
    /// Adds a call; `epoll` hears of its descriptors under `token(id)`.
    pub(super) fn add(
        &mut self,
        (process, channel): (usize, usize),
        request: Request,
        progress: Progress,
        wait: &Wait,
        epoll: &Epoll,
        token: fn(u64) -> u64,
    ) -> io::Result<()> {
        let id = self.next;
        self.next += 1;
        let own = (!wait.on.is_empty()).then(|| listen(&wait.on)).transpose()?;
        if let Some(own) = &own {
            epoll.add(&own.0, EpollEvent::new(EpollFlags::EPOLLIN, token(id)))?;
        }
        let again = wait.every.map(|d| Instant::now() + d);
        let timer = [wait.until, again].into_iter().flatten().min();
        self.timers.extend(timer.map(|at| (at, id)));
        if wait.now {
            self.turn.push_back(id);
        }
        let waiting =
            Waiting { process, channel, request, progress, outputs: wait.outputs, timer, _epoll: own };
        self.all.insert(id, waiting);
        Ok(())
    }

    /// Takes a call out, to make it again or to end it.
    pub(super) fn take(&mut self, id: u64) -> Option<Waiting> {
        let waiting = self.all.remove(&id)?;
        if let Some(at) = waiting.timer {
            self.timers.remove(&(at, id));
        }
        Some(waiting)
    }

    /// Calls of a process.
    pub(super) fn of(&self, process: usize) -> Vec<u64> {
        self.ids(|w| w.process == process)
    }

    /// Calls that wait for room in an output.
    pub(super) fn for_output(&self, output: usize) -> Vec<u64> {
        self.ids(|w| w.outputs[output])
    }

    fn ids(&self, which: impl Fn(&Waiting) -> bool) -> Vec<u64> {
        self.all.iter().filter(|(_, w)| which(w)).map(|(&id, _)| id).collect()
    }

    /// The call of a process with this number on this channel.
    pub(super) fn find(&self, process: usize, channel: usize, seq: u32) -> Option<u64> {
        let it = |w: &Waiting| (w.process, w.channel, w.request.seq) == (process, channel, seq);
        self.all.iter().find(|(_, w)| it(w)).map(|(&id, _)| id)
    }

    /// Calls whose time has come, and those whose turn it is.
    pub(super) fn due(&mut self, now: Instant) -> Vec<u64> {
        let mut due: Vec<u64> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|&(_, id)| id).collect();
        due.extend(self.turn.drain(..));
        due
    }

    /// The time at which [`Queue::due`] returns something; `now` if it does already.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if !self.turn.is_empty() {
            return Some(now);
        }
        self.timers.first().map(|&(at, _)| at)
    }
}

/// An `epoll` for these descriptors. What it refuses (regular files) is always ready, and nobody waits for it.
fn listen(on: &[(RawFd, i32)]) -> io::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut merged: BTreeMap<RawFd, i32> = BTreeMap::new();
    for &(fd, events) in on {
        *merged.entry(fd).or_default() |= events;
    }
    for (fd, events) in merged {
        // SAFETY: a descriptor that the process of this call has open; only looked at here
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        match epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::from_bits_truncate(events), 0)) {
            Ok(()) | Err(nix::Error::EPERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(epoll)
}
