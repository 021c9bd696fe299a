// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: Unix sockets on one host, TCP between hosts. No MPI is needed.
//!
//! A [launcher](crate::launch) starts the ranks. Each connects to it, proves that it knows the job's secret, and says
//! where it listens and which program it is. If all ranks run the same build, the launcher sends everyone's address, and
//! every pair of ranks connects. The connection to the launcher stays: its end is the end of the job.

mod peer;
mod secret;
pub(crate) mod stream;

use std::io;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::{Deserialize, Serialize};

use self::peer::{Peer, State};
use self::stream::{Listener, Stream, read_value, write_value};
use super::{Transport, TransportError};

pub use self::secret::Secret;

/// Where the launcher listens.
pub(crate) const LAUNCHER: &str = "COLONY_JOB";
/// The job's secret.
pub(crate) const SECRET: &str = "COLONY_JOB_SECRET";
/// This rank, and the number of ranks.
pub(crate) const RANK: &str = "COLONY_JOB_RANK";
pub(crate) const SIZE: &str = "COLONY_JOB_SIZE";
/// The name under which other hosts reach this one.
pub(crate) const HOST: &str = "COLONY_JOB_HOST";

/// The longest wait for the launcher and for other ranks while a job begins.
const BEGIN: Duration = Duration::from_secs(60);
/// The longest wait for other ranks while a job ends.
const END: Duration = Duration::from_secs(10);

/// A rank's first message to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) address: String,
    pub(crate) build: String,
}

/// The launcher's answer to every rank: the ranks' addresses, or the reason why there is no job.
pub(crate) type Table = Result<Vec<String>, String>;

/// A rank of a job on sockets.
#[derive(Debug)]
pub struct Sockets {
    rank: u32,
    /// By rank; none for this one.
    peers: Vec<Option<Peer>>,
    launcher: Stream,
    epoll: Epoll,
    /// Peers that have frames to write.
    has_output: bool,
}

const LAUNCHER_KEY: u64 = u64::MAX;

fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> TransportError {
    let doing = doing.into();
    move |e| TransportError::Failed { doing, reason: e.to_string() }
}

fn variable(name: &'static str) -> Result<String, TransportError> {
    std::env::var(name).map_err(|_| {
        TransportError::Environment(format!("{name} is not set; start the program with colony launch"))
    })
}

fn number(name: &'static str) -> Result<u32, TransportError> {
    let text = variable(name)?;
    text.parse().map_err(|_| TransportError::Environment(format!("{name} is `{text:.40}`, not a number")))
}

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
        let (rank, size) = (number(RANK)?, number(SIZE)?);
        if rank >= size {
            return Err(TransportError::Environment(format!(
                "{RANK} is {rank}, and the job has {size} ranks"
            )));
        }
        let launcher = variable(LAUNCHER)?;
        let secret = Secret::from_hex(&variable(SECRET)?)
            .ok_or_else(|| TransportError::Environment(format!("{SECRET} is not 64 hexadecimal digits")))?;
        let listener = if launcher.starts_with("unix:") {
            Listener::unix()
        } else {
            Listener::tcp(&std::env::var(HOST).unwrap_or_else(|_| "127.0.0.1".to_owned()))
        }
        .map_err(failed("listening for other ranks"))?;
        let hello = Hello { rank, address: listener.address(), build: crate::build::id() };
        let (control, table) =
            greet(&launcher, &secret, &hello).map_err(failed("joining the job at its launcher"))?;
        let table = table.map_err(TransportError::Environment)?;
        if table.len() != size as usize {
            return Err(TransportError::Environment(format!("{} addresses of {size} ranks", table.len())));
        }
        let peers =
            connect_all(rank, &table, &listener, &secret).map_err(failed("connecting to the other ranks"))?;
        Self::with(rank, peers, control).map_err(failed("preparing the connections"))
    }

    fn with(rank: u32, peers: Vec<Option<Peer>>, launcher: Stream) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (number, peer) in peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            peer.stream.set_timeout(None)?;
            peer.stream.set_nonblocking(true)?;
            epoll.add(&peer.stream, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
        }
        launcher.set_timeout(None)?;
        launcher.set_nonblocking(true)?;
        epoll.add(&launcher, EpollEvent::new(EpollFlags::EPOLLIN, LAUNCHER_KEY))?;
        Ok(Self { rank, peers, launcher, epoll, has_output: false })
    }

    /// Writes what the connections take.
    fn write(&mut self) -> Result<(), TransportError> {
        if !self.has_output {
            return Ok(());
        }
        self.has_output = false;
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            if !peer.is_drained() && peer.state == State::Open {
                peer.write().map_err(|e| lost_or(rank, &e))?;
                self.has_output |= !peer.is_drained();
            }
        }
        Ok(())
    }

    fn launcher_ended(&mut self) -> bool {
        use std::io::Read;
        let mut byte = [0; 16];
        match self.launcher.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }
}

/// A broken connection is the loss of a rank.
fn lost_or(rank: usize, error: &io::Error) -> TransportError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            TransportError::Lost(format!("rank {rank} has ended"))
        }
        _ => TransportError::Failed {
            doing: format!("exchanging messages with rank {rank}"),
            reason: error.to_string(),
        },
    }
}

/// Says hello to the launcher, and gets everyone's addresses.
fn greet(launcher: &str, secret: &Secret, hello: &Hello) -> io::Result<(Stream, Table)> {
    let mut control = Stream::connect(launcher)?;
    control.set_timeout(Some(BEGIN))?;
    secret.prove(&mut control, 0)?;
    write_value(&mut control, hello)?;
    let table = read_value(&mut control)?;
    Ok((control, table))
}

/// Connects to the ranks below, and takes connections of those above.
fn connect_all(
    rank: u32,
    table: &[String],
    listener: &Listener,
    secret: &Secret,
) -> io::Result<Vec<Option<Peer>>> {
    let mut peers: Vec<Option<Peer>> = table.iter().map(|_| None).collect();
    for below in 0..rank as usize {
        let mut stream = Stream::connect(&table[below])?;
        stream.set_timeout(Some(BEGIN))?;
        secret.prove(&mut stream, 0)?;
        write_value(&mut stream, &rank)?;
        peers[below] = Some(Peer::new(stream));
    }
    let mut missing = table.len() - rank as usize - 1;
    let began = Instant::now();
    while missing > 0 {
        wait_readable(listener, BEGIN.saturating_sub(began.elapsed()))?;
        let mut stream = listener.accept()?;
        stream.set_timeout(Some(BEGIN))?;
        // somebody without the secret does not end the job
        if secret.prove(&mut stream, 1).is_err() {
            continue;
        }
        let from: u32 = read_value(&mut stream)?;
        let place = peers.get_mut(from as usize).filter(|p| p.is_none() && from > rank);
        let place = place.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("rank {from} connects twice"))
        })?;
        *place = Some(Peer::new(stream));
        missing -= 1;
    }
    Ok(peers)
}

/// Waits until a listener has a connection.
pub(crate) fn wait_readable(listener: &Listener, limit: Duration) -> io::Result<()> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, limit) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "another rank has not come within a minute")),
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

impl Transport for Sockets {
    fn rank(&self) -> u32 {
        self.rank
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
        peer.send(frame).map_err(|e| lost_or(to as usize, &e))?;
        self.has_output |= !peer.is_drained();
        Ok(())
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
                    return Err(TransportError::Lost("the launcher has ended".to_owned()));
                }
                continue;
            }
            let rank = event.data() as usize;
            let Some(peer) = self.peers.get_mut(rank).and_then(Option::as_mut) else { continue };
            any |= peer.read(&mut |frame| deliver(rank as u32, frame)).map_err(|e| lost_or(rank, &e))?;
            match peer.state {
                State::Open => {}
                State::Finished => {
                    // nothing more comes; an end of file would be reported again and again
                    let _ = self.epoll.delete(&peer.stream);
                }
                State::Failed => return Err(TransportError::Lost(format!("rank {rank} has failed"))),
                State::Lost => return Err(TransportError::Lost(format!("rank {rank} has ended"))),
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
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            peer.say_finished().map_err(|e| lost_or(rank, &e))?;
            self.has_output |= !peer.is_drained();
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
        Ok(())
    }

    fn abort(&mut self, _code: i32) {
        for peer in self.peers.iter_mut().flatten() {
            let _ = peer.say_failed();
        }
    }
}
