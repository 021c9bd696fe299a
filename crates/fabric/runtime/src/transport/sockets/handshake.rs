// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning of a connection: both ends prove that they know the job's secret, and the end that has connected sends
//! its first message. No step waits, so one thread serves many connections.
//!
//! | from the end that | bytes |
//! |---|---|
//! | has connected | its nonce, and its proof of it |
//! | has accepted | its nonce, and its proof of both nonces |
//! | has connected | its proof of both nonces, the length of its first message, and the message |
//!
//! The first proof can be sent again by a process that reads the network. Its purpose is another: a process without the
//! secret is found by the first bytes that it sends.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use super::secret::{Nonce, PROOF, Secret, Statement, random};
use super::stream::{MOST_BYTES, Stream};

/// The longest wait for the other end of a connection to prove the secret.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(60);

/// Reads until `input` has so many bytes. Returns `false` if they have not all arrived.
fn fill(stream: &mut Stream, input: &mut Vec<u8>, bytes: usize) -> io::Result<bool> {
    while input.len() < bytes {
        let begin = input.len();
        input.resize(bytes, 0);
        let read = stream.read(&mut input[begin..]);
        input.truncate(begin + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// A nonce and a proof.
fn split(input: &[u8]) -> io::Result<(Nonce, &[u8])> {
    let (nonce, proof) = input.split_first_chunk::<PROOF>().ok_or(ErrorKind::UnexpectedEof)?;
    Ok((*nonce, proof))
}

/// The bytes that an end waits for.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Opening,
    Proof { own: Nonce, other: Nonce },
    Length,
    Message(usize),
}

/// The end that has accepted a connection, until it has the first message of the other end.
#[derive(Debug)]
pub(crate) struct Accepting {
    stream: Stream,
    stage: Stage,
    /// The part of the expected bytes that has arrived.
    input: Vec<u8>,
}

impl AsFd for Accepting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Accepting {
    pub(crate) fn new(stream: Stream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, stage: Stage::Opening, input: Vec::new() })
    }

    /// Returns `true` if the other end has proven nothing.
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(self.stage, Stage::Opening)
    }

    /// The connection, which does not wait for the other end.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Takes the bytes that have arrived. Ready with the first message.
    ///
    /// # Errors
    /// The other end does not know the secret, or has closed the connection.
    pub(crate) fn advance(&mut self, secret: &Secret) -> io::Result<Poll<Vec<u8>>> {
        loop {
            let expected = match self.stage {
                Stage::Opening => 2 * PROOF,
                Stage::Proof { .. } => PROOF,
                Stage::Length => size_of::<u32>(),
                Stage::Message(bytes) => bytes,
            };
            if !fill(&mut self.stream, &mut self.input, expected)? {
                return Ok(Poll::Pending);
            }
            let input = std::mem::take(&mut self.input);
            self.stage = match self.stage {
                Stage::Opening => self.answer(secret, &input)?,
                Stage::Proof { own, other } => {
                    secret.check(Statement::Connected(&other, &own), &input)?;
                    Stage::Length
                }
                Stage::Length => Stage::Message(length(&input)?),
                Stage::Message(_) => return Ok(Poll::Ready(input)),
            };
        }
    }

    /// Checks the first proof of the other end, and proves the secret to it.
    fn answer(&mut self, secret: &Secret, input: &[u8]) -> io::Result<Stage> {
        let (other, proof) = split(input)?;
        secret.check(Statement::Opening(&other), proof)?;
        let own = random()?;
        let proof = secret.prove(Statement::Accepted(&own, &other))?;
        // the buffer of a new connection has room for it
        self.stream.write_all(&[own, proof].concat())?;
        Ok(Stage::Proof { own, other })
    }
}

/// The length of a first message.
fn length(input: &[u8]) -> io::Result<usize> {
    let length = input.first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
    if length > MOST_BYTES {
        let reason = format!("a first message of {length} bytes is too long");
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    Ok(length as usize)
}

/// The end that has connected, until the other end has proven the secret.
#[derive(Debug)]
pub(crate) struct Connecting {
    stream: Stream,
    own: Nonce,
    input: Vec<u8>,
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connecting {
    /// Connects, and sends the first proof.
    pub(crate) fn begin(address: &str, secret: &Secret) -> io::Result<Self> {
        let own = random()?;
        let opening = [own, secret.prove(Statement::Opening(&own))?].concat();
        // at once: the other end closes connections on which nothing arrives if it has many of them
        let mut stream = Stream::connect(address)?;
        stream.write_all(&opening)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, own, input: Vec::new() })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The connection, once it is ready. It does not wait for the other end.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Takes the bytes that have arrived. Ready once the other end has proven the secret: then the first message is sent.
    ///
    /// # Errors
    /// The other end does not know the secret, or has closed the connection.
    pub(crate) fn advance<T: Serialize>(&mut self, secret: &Secret, message: &T) -> io::Result<Poll<()>> {
        if !fill(&mut self.stream, &mut self.input, 2 * PROOF)? {
            return Ok(Poll::Pending);
        }
        let (other, proof) = split(&self.input)?;
        secret.check(Statement::Accepted(&other, &self.own), proof)?;
        let mut bytes = secret.prove(Statement::Connected(&self.own, &other))?.to_vec();
        let message = postcard::to_allocvec(message).map_err(io::Error::other)?;
        bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&message);
        // first messages are shorter than the buffer of a new connection
        self.stream.write_all(&bytes)?;
        Ok(Poll::Ready(()))
    }

    /// Waits until the other end has proven the secret, and sends the first message. The connection waits for the other end
    /// then.
    ///
    /// # Errors
    /// As [`advance`](Self::advance); [`ErrorKind::TimedOut`] after `limit`.
    pub(crate) fn finish<T: Serialize>(
        mut self,
        secret: &Secret,
        message: &T,
        limit: Duration,
    ) -> io::Result<Stream> {
        let began = Instant::now();
        while self.advance(secret, message)?.is_pending() {
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                let reason = "the other end has not proven the job's secret in time";
                return Err(io::Error::new(ErrorKind::TimedOut, reason));
            }
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)], left) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.stream.set_nonblocking(false)?;
        Ok(self.stream)
    }
}
