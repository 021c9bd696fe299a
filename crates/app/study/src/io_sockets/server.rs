// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server outside of the job: every program of a job connects, all begin together, and the server takes the time.
//!
//! `colony-stream` is the client, and describes what both say.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::direction::Direction;
use super::link::Link;
use crate::io_nodes::thread_cpu;

/// Bytes that the server moves at once.
const PIECE: usize = 64 << 10;
/// A connection that moves no byte for so long has failed.
const STALL: Duration = Duration::from_secs(30);
/// A connection that does not say who it is for so long is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of looking whether the job has ended, ms.
const LOOK_MS: u16 = 50;

/// Programs of a job that the server waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) clients: u32,
    pub(super) direction: Direction,
    pub(super) transfer: u64,
    pub(super) count: u64,
}

/// A job as the server saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// Time from the beginning of all transfers to the end of the last, seconds.
    pub(super) wall_s: f64,
    /// Processor time of the server in it, seconds.
    pub(super) server_s: f64,
}

/// A job that the server could not serve to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// The job ended before all of its programs had connected.
    #[error("{connected} of {clients} programs connected to the server before the job ended")]
    Missing { connected: usize, clients: u32 },
    /// A connection moved no byte for [`STALL`].
    #[error("a connection moved no byte for {} s, after {moved} of {bytes} bytes", STALL.as_secs())]
    Stalled { moved: u64, bytes: u64 },
    /// A connection ended early.
    #[error("a connection ended after {moved} of {bytes} bytes: {source}")]
    Ended { moved: u64, bytes: u64, source: io::Error },
    /// A transfer did not have its number.
    #[error("transfer {number} arrived with other data")]
    Damaged { number: u64 },
    /// The server's own socket failed.
    #[error("the server's socket: {0}")]
    Socket(#[from] io::Error),
}

/// A listening server of this host.
#[derive(Debug)]
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    /// Number of the job: connections of others do not know it.
    job: u64,
}

impl Server {
    /// Listens at a free port of the loopback address.
    pub(super) fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, job: RandomState::new().build_hasher().finish() })
    }

    /// Arguments of a client.
    pub(super) fn arguments(&self, e: &Expected) -> Vec<String> {
        let [transfer, count, job] = [e.transfer, e.count, self.job].map(|n| n.to_string());
        vec![e.direction.name().into(), self.address.to_string(), job, transfer, count]
    }

    /// Serves a job to its end; `is_running` tells whether the job has not ended yet.
    ///
    /// # Errors
    /// [`ServeError`].
    pub(super) fn serve(
        &self,
        e: &Expected,
        link_bytes_per_s: Option<f64>,
        is_running: &(dyn Fn() -> bool + Sync),
    ) -> Result<Served, ServeError> {
        let streams = self.accept(e, is_running)?;
        let link = Link::new(link_bytes_per_s);
        let began = Instant::now();
        for mut stream in &streams {
            stream.write_all(&[1])?;
        }
        let cpu = std::thread::scope(|scope| {
            let all: Vec<_> =
                streams.iter().map(|stream| scope.spawn(|| transfer(stream, e, &link))).collect();
            let join =
                |t: ScopedJoinHandle<'_, _>| t.join().map_err(|_| io::Error::other("a thread failed"))?;
            all.into_iter().map(join).collect::<Result<Vec<Duration>, ServeError>>()
        })?;
        Ok(Served {
            wall_s: began.elapsed().as_secs_f64(),
            server_s: cpu.iter().sum::<Duration>().as_secs_f64(),
        })
    }

    /// Waits until every program of the job has connected. Other connections are closed.
    fn accept(&self, e: &Expected, is_running: &dyn Fn() -> bool) -> Result<Vec<TcpStream>, ServeError> {
        let mut streams = Vec::new();
        while streams.len() < e.clients as usize {
            // one more look after the job's end: its connections may still be in the queue
            let running = is_running();
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.is_of_job(&stream, e).unwrap_or(false) {
                        streams.push(stream);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock && running => {
                    let listener = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
                    poll(&mut [listener], PollTimeout::from(LOOK_MS)).map_err(io::Error::from)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ServeError::Missing { connected: streams.len(), clients: e.clients });
                }
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(streams)
    }

    /// Reads the head of a connection, and sets its time limits.
    fn is_of_job(&self, mut stream: &TcpStream, e: &Expected) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(HEAD_TIMEOUT))?;
        stream.set_write_timeout(Some(STALL))?;
        let mut head = [0; 24];
        stream.read_exact(&mut head)?;
        stream.set_read_timeout(Some(STALL))?;
        let receives = u64::from(e.direction == Direction::Receive);
        let right = [self.job, receives, e.count * e.transfer].map(u64::to_le_bytes);
        Ok(head == *right.as_flattened())
    }
}

/// Moves the data of a connection; the processor time of this thread.
fn transfer(stream: &TcpStream, e: &Expected, link: &Link) -> Result<Duration, ServeError> {
    let began = thread_cpu();
    let bytes = e.count * e.transfer;
    let mut moved = 0;
    let ended = match e.direction {
        Direction::Send => take(stream, e, link, &mut moved),
        Direction::Receive => give(stream, e, link, &mut moved),
    };
    match ended {
        Ok(None) => Ok(thread_cpu().saturating_sub(began)),
        Ok(Some(number)) => Err(ServeError::Damaged { number }),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(ServeError::Stalled { moved, bytes }),
        Err(source) => Err(ServeError::Ended { moved, bytes, source }),
    }
}

/// Reads what a client sends, and answers when all of it is there. The number of a transfer that has other data, if any.
fn take(mut stream: &TcpStream, e: &Expected, link: &Link, moved: &mut u64) -> io::Result<Option<u64>> {
    let mut piece = vec![0; PIECE];
    for number in 0..e.count {
        let mut left = e.transfer as usize;
        while left > 0 {
            let part = &mut piece[..left.min(PIECE)];
            stream.read_exact(part)?;
            if left as u64 == e.transfer && !part.starts_with(&number.to_le_bytes()) {
                return Ok(Some(number));
            }
            link.carry(part.len());
            left -= part.len();
            *moved += part.len() as u64;
        }
    }
    stream.write_all(&[1])?;
    Ok(None)
}

/// Writes what a client receives, and waits until the client has all of it.
fn give(mut stream: &TcpStream, e: &Expected, link: &Link, moved: &mut u64) -> io::Result<Option<u64>> {
    let mut piece = vec![0x5a; PIECE];
    for number in 0..e.count {
        let mut left = e.transfer as usize;
        while left > 0 {
            let part = &mut piece[..left.min(PIECE)];
            let head = if left as u64 == e.transfer { number } else { 0x5a5a_5a5a_5a5a_5a5a };
            let head = head.to_le_bytes();
            let named = part.len().min(head.len());
            part[..named].copy_from_slice(&head[..named]);
            link.carry(part.len());
            stream.write_all(part)?;
            left -= part.len();
            *moved += part.len() as u64;
        }
    }
    stream.read_exact(&mut [0])?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn expected(direction: Direction) -> Expected {
        Expected { clients: 2, direction, transfer: 100_000, count: 5 }
    }

    /// A client as `colony-stream` is one, with this number of its job.
    fn connected(server: &Server, job: u64, e: &Expected) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).expect("a server");
        let receives = u64::from(e.direction == Direction::Receive);
        let head = [job, receives, e.count * e.transfer].map(u64::to_le_bytes);
        stream.write_all(head.as_flattened()).expect("a head");
        stream
    }

    fn sent(e: &Expected) -> Vec<u8> {
        let transfer = |number: u64| {
            let mut bytes = vec![0x5a; e.transfer as usize];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            bytes
        };
        (0..e.count).flat_map(transfer).collect()
    }

    #[test]
    fn all_begin_together_at_the_rate_of_the_link_and_strangers_are_turned_away() {
        for direction in Direction::ALL {
            let (server, e) = (Server::new().expect("a server"), expected(direction));
            let _stranger = connected(&server, server.job ^ 1, &e);
            let client = || {
                let mut stream = connected(&server, server.job, &e);
                stream.read_exact(&mut [0]).expect("all are there");
                if direction == Direction::Send {
                    stream.write_all(&sent(&e)).expect("sent");
                    stream.read_exact(&mut [0]).expect("all arrived");
                } else {
                    let mut all = vec![0; 500_000];
                    stream.read_exact(&mut all).expect("received");
                    assert!(all == sent(&e), "data of the server");
                    stream.write_all(&[1]).expect("said");
                }
            };
            let served = std::thread::scope(|scope| {
                (0..2).for_each(|_| drop(scope.spawn(client)));
                server.serve(&e, Some(50e6), &|| true).expect("served")
            });
            assert!(served.wall_s >= 1e6 / 50e6 && served.server_s > 0.0, "{served:?}");
        }
    }

    #[test]
    fn a_job_that_ends_early_and_other_data_are_errors() {
        let (server, e) = (Server::new().expect("a server"), expected(Direction::Send));
        let running = AtomicBool::new(true);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _one = connected(&server, server.job, &e);
                std::thread::sleep(Duration::from_millis(100));
                running.store(false, Ordering::Relaxed);
            });
            server.serve(&e, None, &|| running.load(Ordering::Relaxed)).expect_err("one is missing")
        });
        assert_eq!(error.to_string(), "1 of 2 programs connected to the server before the job ended");
        let one = Expected { clients: 1, ..e };
        for (data, part) in [
            (vec![7; 500_000], "transfer 0 arrived with other data"),
            (sent(&e)[..70_000].to_vec(), "of 500000 bytes"),
        ] {
            let error = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut stream = connected(&server, server.job, &one);
                    // the server may close first
                    let _ = stream.read_exact(&mut [0]).and_then(|()| stream.write_all(&data));
                });
                server.serve(&one, None, &|| true).expect_err("damaged")
            });
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
