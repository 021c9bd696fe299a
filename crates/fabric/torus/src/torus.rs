// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rank, and its messages to other ranks.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::environment::{Environment, Place, WaitLimits};
use crate::layout::{CHANNELS, PAYLOAD_BYTES};
use crate::links::Links;
use crate::packet::Kind;
use crate::wait::Wait;
use crate::{Dims, Direction, Error, Window, environment};

/// This process's (or thread's) place among the ranks of a job.
///
/// Between two ranks messages arrive in the order in which they were sent. When a `Torus` is dropped its
/// rank has left: ranks that wait for it get [`Error::Left`].
#[derive(Debug)]
pub struct Torus {
    links: Links,
    wait_limits: WaitLimits,
    /// Passes done, by channel.
    pub(crate) passes: [Cell<u64>; CHANNELS],
}

impl Drop for Torus {
    fn drop(&mut self) {
        self.links.window().leave(self.links.rank());
    }
}

impl Torus {
    /// Bytes of a packet.
    pub const PACKET_BYTES: usize = PAYLOAD_BYTES;

    /// Joins the window that the environment names, as the rank that it says:
    ///
    /// | variable | |
    /// |---|---|
    /// | `COLONY_TORUS` | `<hex address>:<hex bytes>` of memory that the kernel has mapped, or the path of a file |
    /// | `COLONY_RANK`, `COLONY_SIZE` | this rank, and how many there are |
    /// | `COLONY_TORUS_DIMS` | `x,y,z`; may be left out |
    /// | `COLONY_TORUS_TIMEOUT` | seconds to wait for another rank at most; 60 where left out |
    /// | `COLONY_TORUS_SPINS` | looks before the CPU is offered to others; where left out 1000, or 10 where there are more ranks than CPUs |
    ///
    /// # Errors
    /// [`Error::Environment`], [`Error::Window`], [`Error::File`], [`Error::Taken`], [`Error::Aborted`].
    pub fn join() -> Result<Self, Error> {
        let environment = Environment::here()?;
        let window = match &environment.place {
            Place::File(path) => Window::open(path)?,
            &Place::Memory { address, bytes } => {
                let base = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
                let there = |b: &NonNull<_>| b.is_aligned() && environment::may_be_window(address, bytes);
                let base = base.filter(there).ok_or_else(|| Error::Environment {
                    name: environment::WINDOW,
                    reason: format!("gives an address where no window can be, {address:#x}"),
                })?;
                // SAFETY: a compute node's kernel has mapped these bytes for this program, for as long as it
                // runs; the variable is its word for it, as the auxiliary vector is for others. Elsewhere they
                // are mapped, and memory that only windows are made of.
                unsafe { Window::at(base, bytes, false)? }
            }
        };
        let dims = window.layout().dims();
        let contradicts = |name, reason: String| Err(Error::Environment { name, reason });
        if environment.size != dims.ranks() {
            let reason = format!("is {}, and the window has {} ranks", environment.size, dims.ranks());
            return contradicts(environment::SIZE, reason);
        }
        if let Some(d) = environment.dims.filter(|&d| d != dims) {
            return contradicts(environment::DIMS, format!("is {d}, and the window's torus {dims}"));
        }
        Self::with(Arc::new(window), environment.rank, environment.wait_limits)
    }

    /// Joins a window of this process as one of its ranks: ranks may be threads.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Taken`], [`Error::Aborted`].
    pub fn attach(window: Arc<Window>, rank: usize) -> Result<Self, Error> {
        let wait_limits = WaitLimits::of(window.layout().dims().ranks());
        Self::with(window, rank, wait_limits)
    }

    fn with(window: Arc<Window>, rank: usize, wait_limits: WaitLimits) -> Result<Self, Error> {
        let ranks = window.layout().dims().ranks();
        if rank >= ranks {
            return Err(Error::Rank { rank, ranks });
        }
        window.check_abort()?;
        window.take(rank)?;
        Ok(Self { links: Links::new(window, rank), wait_limits, passes: Default::default() })
    }

    /// The same, with another longest wait for a step of another rank.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.wait_limits.timeout = timeout;
        self
    }

    /// Returns `true` if the kernel has mapped the window for this program: it runs on a compute node.
    #[must_use]
    pub fn is_on_node(&self) -> bool {
        !self.window().is_own_mapping()
    }

    /// This rank.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.links.rank()
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.dims().ranks()
    }

    /// The torus.
    #[must_use]
    pub fn dims(&self) -> Dims {
        self.window().layout().dims()
    }

    /// The rank one link away.
    #[must_use]
    pub fn neighbor(&self, direction: Direction) -> usize {
        self.dims().neighbor(self.rank(), direction)
    }

    /// Ends the job: every rank that waits, or will, gets [`Error::Aborted`].
    pub fn abort(&self) {
        self.window().abort_by(self.rank());
    }

    /// Sends a message; returns when its last packet is in the other rank's inbox. That rank takes packets out while it sends,
    /// receives or waits for others, and keeps up to 4 to 16 KB of each rank ([`credits`](crate::layout::Layout::credits))
    /// until it receives them. So a longer message is on its way only while the other rank receives: where two ranks send each
    /// other such messages, use [`exchange`](Self::exchange).
    ///
    /// # Errors
    /// [`Error`], of its second half.
    pub fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check_rank(to)?;
        let mut sending = Sending::new(to, bytes, Kind::Message);
        self.run(|torus| Ok((sending.step(torus)?, (!sending.done).then_some(to))))
    }

    /// Receives the next message of a rank and gives its length.
    ///
    /// # Errors
    /// [`Error::Truncated`] where it is longer than `bytes`; else as [`send`](Self::send).
    pub fn recv(&self, from: usize, bytes: &mut [u8]) -> Result<usize, Error> {
        self.check_rank(from)?;
        let mut receiving = Receiving::new(from, bytes, Kind::Message);
        self.run(|torus| Ok((receiving.step(torus)?, (!receiving.done).then_some(from))))?;
        receiving.length()
    }

    /// Receives the next message of a rank, of any length up to `limit`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_vec(&self, from: usize, limit: usize) -> Result<Vec<u8>, Error> {
        self.check_rank(from)?;
        let (mut bytes, mut length) = (Vec::new(), 0);
        self.run(|torus| {
            let mut payload = [0; PAYLOAD_BYTES];
            let Some((packet_length, more)) = torus.links.pop(from, &mut payload, Kind::Message)? else {
                return Ok((false, Some(from)));
            };
            length += packet_length;
            if length <= limit {
                bytes.extend_from_slice(&payload[..packet_length]);
            }
            Ok((true, more.then_some(from)))
        })?;
        if length > limit { Err(Error::Truncated { from, length, room: limit }) } else { Ok(bytes) }
    }

    /// Sends a message to one rank while it receives one from another (or the same); gives the length of
    /// the latter.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn exchange(&self, to: usize, send: &[u8], from: usize, recv: &mut [u8]) -> Result<usize, Error> {
        self.exchange_as(Kind::Message, (to, send), (from, recv))
    }

    pub(crate) fn exchange_as(
        &self,
        kind: Kind,
        (to, send): (usize, &[u8]),
        (from, recv): (usize, &mut [u8]),
    ) -> Result<usize, Error> {
        self.check_rank(to)?;
        self.check_rank(from)?;
        let (mut sending, mut receiving) = (Sending::new(to, send, kind), Receiving::new(from, recv, kind));
        self.run(|torus| {
            let progress = sending.step(torus)? | receiving.step(torus)?;
            let next = if receiving.done { (!sending.done).then_some(to) } else { Some(from) };
            Ok((progress, next))
        })?;
        receiving.length()
    }

    /// Puts one packet of a message into the inbox of a rank, at most [`PACKET_BYTES`](Self::PACKET_BYTES) of it; `more` says
    /// that the message goes on. Returns `false` if there is no room now. For programs that never wait; such a program
    /// makes no use of [`send`](Self::send) and its kind.
    ///
    /// # Errors
    /// [`Error`], of its second half.
    pub fn try_send(&self, to: usize, packet: &[u8], more: bool) -> Result<bool, Error> {
        self.check_rank(to)?;
        self.window().check_abort()?;
        let packet = &packet[..packet.len().min(PAYLOAD_BYTES)];
        self.links.push(to, packet, more, Kind::Message)
    }

    /// Appends the next packet of a rank to `into`, if there is one. Returns whether its message goes on.
    ///
    /// # Errors
    /// [`Error`], of its second half.
    pub fn try_recv(&self, from: usize, into: &mut Vec<u8>) -> Result<Option<bool>, Error> {
        self.check_rank(from)?;
        let mut payload = [0; PAYLOAD_BYTES];
        let Some((length, more)) = self.links.pop(from, &mut payload, Kind::Message)? else {
            return Ok(None);
        };
        into.extend_from_slice(&payload[..length]);
        Ok(Some(more))
    }

    /// A rank whose next packet is here, for [`try_recv`](Self::try_recv): the one whose packet came first, if no packets were
    /// left to wait before; `None` if there is no packet.
    ///
    /// # Errors
    /// [`Error`], of its second half.
    pub fn arrived(&self) -> Result<Option<usize>, Error> {
        self.links.arrived()
    }

    /// Returns an error if a rank has ended the job.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn check_abort(&self) -> Result<(), Error> {
        self.window().check_abort()
    }

    fn check_rank(&self, rank: usize) -> Result<(), Error> {
        let ranks = self.size();
        if rank < ranks { Ok(()) } else { Err(Error::Rank { rank, ranks }) }
    }

    /// Repeats `step`, which says whether it got on and for which rank it waits, until that is none.
    fn run(&self, mut step: impl FnMut(&Self) -> Result<(bool, Option<usize>), Error>) -> Result<(), Error> {
        let mut wait = self.wait(None);
        loop {
            let next = step(self).and_then(|(progress, next)| {
                let Some(rank) = next else { return Ok(false) };
                if progress {
                    wait.progress();
                } else {
                    wait.once(rank)?;
                }
                Ok(true)
            });
            match next {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(e) => return Err(self.failed(e)),
            }
        }
    }

    /// A wait, with this rank's longest or another.
    #[inline]
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Wait<'_> {
        let timeout = timeout.unwrap_or(self.wait_limits.timeout);
        Wait::new(&self.links, WaitLimits { timeout, ..self.wait_limits })
    }

    pub(crate) fn window(&self) -> &Window {
        self.links.window()
    }

    /// Tells the other ranks that this one cannot go on.
    pub(crate) fn failed(&self, error: Error) -> Error {
        self.abort();
        error
    }
}

/// A message on its way out.
struct Sending<'a> {
    to: usize,
    rest: &'a [u8],
    kind: Kind,
    done: bool,
}

impl<'a> Sending<'a> {
    const fn new(to: usize, bytes: &'a [u8], kind: Kind) -> Self {
        Self { to, rest: bytes, kind, done: false }
    }

    /// Pushes what there is room for; whether that was anything.
    fn step(&mut self, torus: &Torus) -> Result<bool, Error> {
        let mut progress = false;
        while !self.done {
            let (packet, rest) = self.rest.split_at(self.rest.len().min(PAYLOAD_BYTES));
            if !torus.links.push(self.to, packet, !rest.is_empty(), self.kind)? {
                break;
            }
            (self.rest, self.done, progress) = (rest, rest.is_empty(), true);
        }
        Ok(progress)
    }
}

/// A message on its way in.
struct Receiving<'a> {
    from: usize,
    bytes: &'a mut [u8],
    got: usize,
    kind: Kind,
    done: bool,
}

impl<'a> Receiving<'a> {
    const fn new(from: usize, bytes: &'a mut [u8], kind: Kind) -> Self {
        Self { from, bytes, got: 0, kind, done: false }
    }

    /// Pops what is there; whether that was anything.
    fn step(&mut self, torus: &Torus) -> Result<bool, Error> {
        let mut progress = false;
        while !self.done {
            let at = self.got.min(self.bytes.len());
            let Some((length, more)) = torus.links.pop(self.from, &mut self.bytes[at..], self.kind)? else {
                break;
            };
            self.got += length;
            (self.done, progress) = (!more, true);
        }
        Ok(progress)
    }

    fn length(&self) -> Result<usize, Error> {
        let (length, room) = (self.got, self.bytes.len());
        if length > room { Err(Error::Truncated { from: self.from, length, room }) } else { Ok(length) }
    }
}
