// SPDX-License-Identifier: MIT OR Apache-2.0
//! The floor of a checkpoint's time: the same bytes, copied once and exchanged with the buddy, without the runtime.
//!
//! Rank 0 tells all ranks to begin. Each rank copies its state into memory that it has used before, sends the copy to its
//! buddy while it receives that of another rank, and tells rank 0. The sockets are Unix sockets with buffers
//! as long as the runtime's.

use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair};
use serde::{Deserialize, Serialize};

use super::told::Floor;

/// Attempts without progress before a rank sleeps.
const SPINS: u32 = 100;
/// The most bytes of one read or write.
const PIECE: usize = 64 << 10;
/// Bytes that a socket holds, as the runtime has it.
const SEND_BYTES: usize = 512 << 10;
/// The longest wait for another rank.
const WAIT: Duration = Duration::from_secs(60);

/// The buddy of a rank: that of the runtime when all ranks are on one machine.
fn buddy(rank: u32, ranks: u32) -> u32 {
    (rank + ranks / 2) % ranks
}

/// The connections of all ranks, which each rank inherits.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// From each rank to its buddy.
    data: Vec<[OwnedFd; 2]>,
    /// From rank 0 to each other rank.
    star: Vec<[OwnedFd; 2]>,
}

/// The numbers of their descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Descriptors {
    data: Vec<[i32; 2]>,
    star: Vec<[i32; 2]>,
}

impl Connections {
    /// Connects the ranks.
    pub(super) fn new(ranks: u32) -> io::Result<Self> {
        let pair = || {
            let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::empty());
            pair.map(|(one, other)| [one, other]).map_err(io::Error::from)
        };
        let data = (0..ranks).map(|_| pair()).collect::<io::Result<_>>()?;
        let star = (1..ranks).map(|_| pair()).collect::<io::Result<_>>()?;
        Ok(Self { data, star })
    }

    pub(super) fn descriptors(&self) -> Descriptors {
        let numbers = |pairs: &[[OwnedFd; 2]]| {
            pairs.iter().map(|pair| pair.each_ref().map(AsRawFd::as_raw_fd)).collect::<Vec<_>>()
        };
        Descriptors { data: numbers(&self.data), star: numbers(&self.star) }
    }
}

/// The connections of one rank.
#[derive(Debug)]
pub(super) struct Sockets {
    to: UnixStream,
    from: UnixStream,
    /// To all other ranks at rank 0, to rank 0 at the others.
    star: Vec<UnixStream>,
    is_root: bool,
}

impl Descriptors {
    /// The connections of a rank that has inherited these descriptors.
    ///
    /// # Safety
    /// The descriptors are open, and nothing else in the process uses those of this rank.
    pub(super) unsafe fn of_rank(&self, rank: u32) -> io::Result<Sockets> {
        let ranks = self.data.len() as u32;
        let sender = (0..ranks).find(|other| buddy(*other, ranks) == rank);
        let missing =
            || io::Error::new(ErrorKind::InvalidInput, format!("there is no connection of rank {rank}"));
        let to = self.data.get(rank as usize).ok_or_else(missing)?[0];
        let from = sender.and_then(|sender| self.data.get(sender as usize)).ok_or_else(missing)?[1];
        let star: Vec<i32> = match rank.checked_sub(1) {
            None => self.star.iter().map(|pair| pair[0]).collect(),
            Some(place) => vec![self.star.get(place as usize).ok_or_else(missing)?[1]],
        };
        let open = |number: i32, waits: bool| {
            // SAFETY: the caller says that the descriptor is open and used by nothing else
            let stream = unsafe { UnixStream::from_raw_fd(number) };
            stream.set_nonblocking(!waits)?;
            setsockopt(&stream, SndBuf, &SEND_BYTES)?;
            stream.set_read_timeout(Some(WAIT))?;
            Ok::<_, io::Error>(stream)
        };
        let star = star.into_iter().map(|number| open(number, true)).collect::<io::Result<_>>()?;
        Ok(Sockets { to: open(to, false)?, from: open(from, false)?, star, is_root: rank == 0 })
    }
}

/// The memory of one rank.
struct Memory {
    state: Vec<u8>,
    copy: Vec<u8>,
    received: Vec<u8>,
    threads: usize,
}

impl Memory {
    fn copy_state(&mut self) {
        let Self { state, copy, threads, .. } = self;
        if *threads < 2 {
            return copy.copy_from_slice(state);
        }
        let part = state.len().div_ceil(*threads).max(1);
        std::thread::scope(|scope| {
            for (to, from) in copy.chunks_mut(part).zip(state.chunks(part)) {
                scope.spawn(|| to.copy_from_slice(from));
            }
        });
    }
}

impl Sockets {
    /// Sends all bytes of `out` to the buddy, and at the same time fills `into` from the rank whose buddy this is.
    fn exchange(&mut self, out: &[u8], into: &mut [u8]) -> io::Result<()> {
        let (mut sent, mut got, mut idle) = (0, 0, 0);
        let piece = |at: usize, length: usize| at..(at + PIECE).min(length);
        let moved = |result: io::Result<usize>| match result {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => Ok(bytes),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(e) => Err(e),
        };
        while sent < out.len() || got < into.len() {
            let before = sent + got;
            if sent < out.len() {
                sent += moved(self.to.write(&out[piece(sent, out.len())]))?;
            }
            if got < into.len() {
                let piece = piece(got, into.len());
                got += moved(self.from.read(&mut into[piece]))?;
            }
            idle = if sent + got == before { idle + 1 } else { 0 };
            if idle > SPINS {
                self.wait(sent < out.len(), got < into.len())?;
            }
        }
        Ok(())
    }

    fn wait(&self, sends: bool, receives: bool) -> io::Result<()> {
        let flags = |wanted: bool, flags| if wanted { flags } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(self.to.as_fd(), flags(sends, PollFlags::POLLOUT)),
            PollFd::new(self.from.as_fd(), flags(receives, PollFlags::POLLIN)),
        ];
        match poll(&mut fds, PollTimeout::try_from(WAIT).unwrap_or(PollTimeout::MAX)) {
            Ok(0) => Err(io::Error::new(ErrorKind::TimedOut, "another rank does not answer")),
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Copies and exchanges once. Returns the time of the copy.
    fn once(&mut self, memory: &mut Memory) -> io::Result<Duration> {
        let began = Instant::now();
        memory.copy_state();
        let copied = began.elapsed();
        let Memory { copy, received, .. } = memory;
        self.exchange(copy, received)?;
        black_box(received);
        Ok(copied)
    }

    /// One repetition; at rank 0, its times.
    fn repetition(&mut self, memory: &mut Memory) -> io::Result<Option<Floor>> {
        if !self.is_root {
            self.star[0].read_exact(&mut [0])?;
            let copied = self.once(memory)?.as_nanos() as u64;
            self.star[0].write_all(&copied.to_le_bytes())?;
            return Ok(None);
        }
        let began = Instant::now();
        self.star.iter_mut().try_for_each(|other| other.write_all(&[1]))?;
        let mut longest = self.once(memory)?;
        for other in &mut self.star {
            let mut copied = [0; 8];
            other.read_exact(&mut copied)?;
            longest = longest.max(Duration::from_nanos(u64::from_le_bytes(copied)));
        }
        let total_s = began.elapsed().as_secs_f64();
        Ok(Some(Floor { memcpy_s: longest.as_secs_f64(), total_s }))
    }

    /// Repeats the floor for `bytes` of this rank, copied by so many threads. Rank 0 gets the times.
    pub(super) fn floor(&mut self, bytes: usize, threads: u32, repetitions: u32) -> io::Result<Vec<Floor>> {
        let state: Vec<u8> = (0..bytes).map(|byte| (byte * 7) as u8).collect();
        // not zeroed memory of the system, which would be there only at the first use
        let (copy, received) = (vec![1; bytes], vec![2; bytes]);
        let mut memory = Memory { state, copy, received, threads: threads as usize };
        let mut floors = Vec::new();
        for _ in 0..repetitions {
            floors.extend(self.repetition(&mut memory)?);
        }
        if memory.received != memory.state {
            return Err(io::Error::new(ErrorKind::InvalidData, "bytes have changed on their way"));
        }
        Ok(floors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_buddy_and_is_that_of_one() {
        for ranks in 2..9 {
            let mut buddies: Vec<u32> = (0..ranks).map(|rank| buddy(rank, ranks)).collect();
            assert!((0..).zip(&buddies).all(|(rank, buddy): (u32, _)| rank != *buddy));
            buddies.sort_unstable();
            assert!((0..ranks).eq(buddies));
        }
    }

    #[test]
    fn all_ranks_exchange_all_bytes_also_those_that_no_socket_holds_at_once() {
        for (ranks, bytes, threads) in [(2, 0, 1), (2, 3_000_000, 1), (3, 100_001, 2), (4, 7, 3)] {
            let connections = Connections::new(ranks).expect("connected");
            let descriptors = connections.descriptors();
            // each rank owns its own from here
            std::mem::forget(connections);
            // SAFETY: they are open, and each rank has others
            let sockets = (0..ranks).map(|rank| unsafe { descriptors.of_rank(rank) }.expect("there"));
            let threads: Vec<_> = sockets
                .map(|mut sockets| {
                    std::thread::spawn(move || sockets.floor(bytes, threads, 3).expect("exchanged"))
                })
                .collect();
            for (rank, thread) in threads.into_iter().enumerate() {
                let floors = thread.join().expect("no panic");
                assert_eq!(floors.len(), if rank == 0 { 3 } else { 0 });
                assert!(floors.iter().all(|floor| floor.memcpy_s <= floor.total_s), "{floors:?}");
            }
        }
    }
}
