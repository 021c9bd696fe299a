// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: Unix sockets on one host, TCP between hosts. No MPI is needed.
//!
//! A [launcher](crate::launch) starts the ranks. Each connects to it, proves that it knows the job's secret, and says
//! where it listens and which program it is. If all ranks run the same build, the launcher sends everyone's address, and
//! every pair of ranks connects. The connection to the launcher stays: its end is the end of the job.
//!
//! Processes that do not know the secret, and processes of other users on Unix sockets, neither become a part of the job nor
//! delay it. What is sent is neither encrypted nor protected against a process that can change packets of
//! the network.

pub(crate) mod admission;
pub(crate) mod entry;
pub(crate) mod handshake;
pub(crate) mod listener;
mod mesh;
mod peer;
mod secret;
pub(crate) mod stream;

use std::io;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use self::entry::{DONE, Entry, Joined, LAUNCHER, LEAVE, Roster, TOLD, failed};
use self::peer::{Peer, State};
use self::stream::{Stream, explain, is_unreachable};
use super::{Place, Transport, TransportError};

pub use self::secret::Secret;

/// The longest wait for other ranks while a job ends.
const END: Duration = Duration::from_secs(10);

/// A rank of a job on sockets.
#[derive(Debug)]
pub struct Sockets {
    entry: Entry,
    roster: Roster,
    /// By rank; none for this one.
    peers: Vec<Option<Peer>>,
    launcher: Stream,
    epoll: Epoll,
    /// Peers that have frames to write.
    has_output: bool,
    /// The launcher wants the job to go on with another number of ranks.
    is_to_leave: bool,
}

const LAUNCHER_KEY: u64 = u64::MAX;

impl Sockets {
    /// Returns `true` if a launcher has started this process.
    #[must_use]
    pub fn is_launched() -> bool {
        std::env::var_os(LAUNCHER).is_some()
    }

    /// Joins the job that the environment describes.
    ///
    /// # Errors
    /// [`TransportError`]: the environment is wrong, the launcher or a rank is not reached within a minute, another
    /// rank is another program, or somebody does not know the secret.
    pub fn join() -> Result<Self, TransportError> {
        let entry = Entry::from_environment()?;
        let joined = entry.join(true)?;
        Self::with(entry, joined)
    }

    pub(super) fn with(entry: Entry, joined: Joined) -> Result<Self, TransportError> {
        let Joined { roster, peers, launcher } = joined;
        let epoll = watch(&peers, &launcher, entry.restarts).map_err(failed("preparing the connections"))?;
        Ok(Self { entry, roster, peers, launcher, epoll, has_output: false, is_to_leave: false })
    }

    /// Joins the job in its next generation.
    pub(super) fn join_again(entry: Entry) -> Result<Self, TransportError> {
        let joined = entry.join(true).map_err(|error| match error {
            TransportError::Failed { .. } => TransportError::Lost("the launcher has ended".to_owned()),
            error => error,
        })?;
        Self::with(entry, joined)
    }

    /// The loss of a rank that is not reported by that rank.
    fn death(&self, text: String) -> TransportError {
        if self.entry.restarts { TransportError::Died(text) } else { TransportError::Lost(text) }
    }

    /// A broken connection is the loss of a rank.
    fn lost_or(&self, rank: usize, error: &io::Error) -> TransportError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut};
        match error.kind() {
            BrokenPipe | ConnectionReset | TimedOut | HostUnreachable | NetworkUnreachable => {
                self.death(format!("rank {rank} has ended"))
            }
            // a route or a packet filter refuses the address: it may be back when the ranks join again
            _ if self.entry.restarts && is_unreachable(error) => {
                self.death(format!("rank {rank} is not reached: {error}"))
            }
            _ => {
                let address = self.roster.addresses.get(rank).map_or("no address", String::as_str);
                let reason = explain(&format!("rank {rank}"), address, error);
                TransportError::Failed { doing: "exchanging messages with another rank".to_owned(), reason }
            }
        }
    }

    /// Writes what the connections take.
    fn write(&mut self) -> Result<(), TransportError> {
        if !self.has_output {
            return Ok(());
        }
        self.has_output = false;
        let mut broken = None;
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            if !peer.is_drained() && peer.state == State::Open {
                if let Err(error) = peer.write() {
                    broken.get_or_insert((rank, error));
                }
                self.has_output |= !peer.is_drained();
            }
        }
        broken.map_or(Ok(()), |(rank, error)| Err(self.lost_or(rank, &error)))
    }

    fn launcher_ended(&mut self) -> bool {
        use std::io::Read;
        let mut byte = [0; 16];
        match self.launcher.read(&mut byte) {
            Ok(0) => true,
            Ok(read) => {
                self.is_to_leave |= byte[..read].contains(&LEAVE);
                false
            }
            Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }
}

/// An epoll instance that reports frames of the peers and the end of the launcher's connection.
fn watch(peers: &[Option<Peer>], launcher: &Stream, restarts: bool) -> io::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (number, peer) in peers.iter().enumerate() {
        let Some(peer) = peer else { continue };
        peer.stream.set_timeout(None)?;
        peer.stream.set_nonblocking(true)?;
        if restarts {
            peer.stream.detect_loss()?;
        }
        epoll.add(&peer.stream, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
    }
    launcher.set_timeout(None)?;
    launcher.set_nonblocking(true)?;
    epoll.add(launcher, EpollEvent::new(EpollFlags::EPOLLIN, LAUNCHER_KEY))?;
    Ok(epoll)
}

impl Transport for Sockets {
    fn rank(&self) -> u32 {
        self.entry.rank
    }

    fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    fn name(&self) -> &'static str {
        "sockets"
    }

    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        let Some(peer) = self.peers.get_mut(to as usize).and_then(Option::as_mut) else {
            frame.clear();
            return Ok(());
        };
        let sent = peer.send(frame);
        self.has_output |= !peer.is_drained();
        sent.map_err(|e| self.lost_or(to as usize, &e))
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        self.write()?;
        let mut events = [EpollEvent::empty(); 32];
        let ready = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(ready) => ready,
            Err(nix::Error::EINTR) => return Ok(false),
            Err(e) => return Err(failed("looking for messages")(e.into())),
        };
        let mut any = false;
        for event in &events[..ready] {
            if event.data() == LAUNCHER_KEY {
                if self.launcher_ended() {
                    return Err(self.death("the launcher has closed its connection".to_owned()));
                }
                continue;
            }
            let rank = event.data() as usize;
            let Some(peer) = self.peers.get_mut(rank).and_then(Option::as_mut) else { continue };
            let read = peer.read(&mut |frame| deliver(rank as u32, frame));
            let state = peer.state;
            any |= read.map_err(|e| self.lost_or(rank, &e))?;
            match state {
                State::Open => {}
                State::Finished => {
                    // nothing more comes; an end of file would be reported again and again
                    if let Some(peer) = &self.peers[rank] {
                        let _ = self.epoll.delete(&peer.stream);
                    }
                }
                State::Failed => return Err(TransportError::Lost(format!("rank {rank} has failed"))),
                State::Lost => return Err(self.death(format!("rank {rank} has ended"))),
            }
        }
        Ok(any)
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        self.write()?;
        let limit = if self.has_output { 1 } else { limit.as_millis().clamp(1, 1000) as u16 };
        let mut events = [EpollEvent::empty(); 1];
        match self.epoll.wait(&mut events, EpollTimeout::from(limit)) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(e) => Err(failed("waiting for messages")(e.into())),
        }
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        let mut broken = None;
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            if let Err(error) = peer.say_finished() {
                broken.get_or_insert((rank, error));
            }
            self.has_output |= !peer.is_drained();
        }
        if let Some((rank, error)) = broken {
            return Err(self.lost_or(rank, &error));
        }
        let began = Instant::now();
        let open = |s: &Self| s.peers.iter().flatten().any(|p| p.state == State::Open);
        while open(self) || self.has_output {
            if began.elapsed() > END {
                return Err(TransportError::Lost("another rank does not end".to_owned()));
            }
            self.poll(&mut |_, _| {})?;
            if open(self) || self.has_output {
                self.wait(Duration::from_millis(10))?;
            }
        }
        // a launcher that has ended, or does not read, restarts nothing
        let _ = io::Write::write(&mut self.launcher, &[DONE]);
        Ok(())
    }

    fn can_rejoin(&self) -> bool {
        self.entry.restarts
    }

    fn rejoin(&mut self) -> Result<(), TransportError> {
        // the other ranks and the launcher see that these connections have ended
        self.peers.clear();
        self.launcher.shutdown();
        *self = Self::join_again(self.entry.clone())?;
        Ok(())
    }

    fn generation(&self) -> u32 {
        self.roster.generation
    }

    fn is_to_leave(&mut self) -> bool {
        std::mem::take(&mut self.is_to_leave)
    }

    fn places(&self) -> &[Place] {
        &self.roster.places
    }

    fn abort(&mut self, _code: i32) {
        // a launcher that has ended says nothing any more
        let _ = io::Write::write(&mut self.launcher, &[TOLD]);
        for peer in self.peers.iter_mut().flatten() {
            let _ = peer.say_failed();
        }
    }
}
