// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames over one connection, without waiting.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBuf;

use super::stream::Stream;

/// Instead of a length: this side sends nothing more.
const FINISHED: u32 = u32::MAX;
/// Instead of a length: this side has failed.
const FAILED: u32 = u32::MAX - 1;
/// The longest frame.
const MOST_BYTES: u32 = 1 << 31;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// Bytes that the system holds for the other end of a Unix socket: some long frames, so that neither end waits for the
/// other's turn. TCP sockets find their own number.
const SEND_BYTES: usize = 512 << 10;
/// The most bytes of memory that are kept for the next frame.
const MOST_SPARE: usize = 1 << 20;

/// The state of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// It has said that it sends nothing more.
    Finished,
    /// It has said that it has failed.
    Failed,
    /// The connection has ended without a word.
    Lost,
}

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: Stream,
    pub(crate) state: State,
    /// Memory for what is read, of which `taken..filled` has arrived and is not delivered.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    output: VecDeque<Vec<u8>>,
    /// Bytes of the first output that are written.
    written: usize,
    /// The memory of an output that is written, for the next frame.
    spare: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(stream: Stream) -> Self {
        if let Stream::Unix(stream) = &stream {
            // a smaller buffer is only slower
            let _ = setsockopt(stream, SndBuf, &SEND_BYTES);
        }
        Self {
            stream,
            state: State::Open,
            input: Vec::new(),
            taken: 0,
            filled: 0,
            output: VecDeque::new(),
            written: 0,
            spare: Vec::new(),
        }
    }

    /// Queues a frame and writes what the connection takes.
    pub(crate) fn send(&mut self, frame: &mut Vec<u8>) -> io::Result<()> {
        let length = (frame.len() as u32).to_le_bytes();
        if self.output.is_empty() {
            // the usual case: both go at once, and the frame's memory is used again
            let parts = [io::IoSlice::new(&length), io::IoSlice::new(frame)];
            let written = match &mut self.stream {
                Stream::Unix(s) => s.write_vectored(&parts),
                Stream::Tcp(s) => s.write_vectored(&parts),
            };
            let written = match written {
                Ok(written) => written,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
                Err(e) => return Err(e),
            };
            if written == length.len() + frame.len() {
                frame.clear();
                return Ok(());
            }
            if let Some(written) = written.checked_sub(length.len()) {
                let spare = std::mem::take(&mut self.spare);
                self.output.push_back(std::mem::replace(frame, spare));
                self.written = written;
            } else {
                let mut whole = length.to_vec();
                whole.append(frame);
                self.output.push_back(whole);
                self.written = written;
            }
            return Ok(());
        }
        let mut whole = length.to_vec();
        whole.append(frame);
        self.output.push_back(whole);
        self.write()
    }

    /// Queues one of the words that stand instead of a length.
    fn say(&mut self, word: u32) -> io::Result<()> {
        self.output.push_back(word.to_le_bytes().to_vec());
        self.write()
    }

    /// Says that this side sends nothing more.
    pub(crate) fn say_finished(&mut self) -> io::Result<()> {
        self.say(FINISHED)
    }

    /// Says that this side has failed.
    pub(crate) fn say_failed(&mut self) -> io::Result<()> {
        self.say(FAILED)
    }

    /// Returns `true` if everything is written.
    pub(crate) fn is_drained(&self) -> bool {
        self.output.is_empty()
    }

    /// Writes what the connection takes.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        while let Some(first) = self.output.front() {
            match self.stream.write(&first[self.written..]) {
                Ok(written) => self.written += written,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if self.written == first.len() {
                let mut written = self.output.pop_front().unwrap_or_default();
                if written.capacity() <= MOST_SPARE {
                    written.clear();
                    self.spare = written;
                }
                self.written = 0;
            }
        }
        Ok(())
    }

    /// Reads what has arrived, and delivers whole frames. Returns `true` if there were any.
    pub(crate) fn read(&mut self, deliver: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let mut any = false;
        while self.state == State::Open {
            let wanted = self.missing().max(READ_BYTES);
            let end = self.filled + wanted;
            if self.input.len() < end {
                self.input.resize(end, 0);
            }
            let read = self.stream.read(&mut self.input[self.filled..end]);
            self.filled += *read.as_ref().unwrap_or(&0);
            match read {
                Ok(0) => self.state = State::Lost,
                Ok(read) => {
                    any |= self.deliver(deliver)?;
                    if read < wanted {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => self.state = State::Lost,
                Err(e) => return Err(e),
            }
        }
        Ok(any)
    }

    /// Bytes that are missing of the frame that has begun.
    fn missing(&self) -> usize {
        let rest = &self.input[self.taken..self.filled];
        let length = rest.first_chunk::<4>().map_or(0, |l| u32::from_le_bytes(*l));
        if length >= FAILED { 0 } else { (length as usize + 4).saturating_sub(rest.len()) }
    }

    fn deliver(&mut self, deliver: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let mut any = false;
        while let Some(length) = self.input[self.taken..self.filled].first_chunk::<4>() {
            let length = u32::from_le_bytes(*length);
            match length {
                FINISHED => self.state = State::Finished,
                FAILED => self.state = State::Failed,
                length if length > MOST_BYTES => {
                    return Err(io::Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes")));
                }
                length => {
                    let start = self.taken + 4;
                    let Some(frame) = self.input[..self.filled].get(start..start + length as usize) else {
                        break;
                    };
                    deliver(frame);
                    any = true;
                    self.taken = start + length as usize;
                    continue;
                }
            }
            break;
        }
        if self.taken == self.filled || self.taken > READ_BYTES {
            self.input.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    fn pair() -> (Peer, Peer) {
        let (a, b) = UnixStream::pair().expect("a pair");
        let peer = |s: UnixStream| {
            s.set_nonblocking(true).expect("set");
            Peer::new(Stream::Unix(s))
        };
        (peer(a), peer(b))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn frames_arrive_whole_and_in_order_however_little_the_connection_takes(
            lengths in prop::collection::vec(prop_oneof![0usize..100, 0usize..400_000], 1..20),
        ) {
            let (mut a, mut b) = pair();
            for (i, &length) in lengths.iter().enumerate() {
                let mut frame: Vec<u8> = (0..length).map(|j| (i * 7 + j) as u8).collect();
                a.send(&mut frame).expect("sends");
                prop_assert!(frame.is_empty());
            }
            a.say_finished().expect("says");
            let mut got: Vec<Vec<u8>> = Vec::new();
            while b.state == State::Open {
                a.write().expect("writes");
                b.read(&mut |frame| got.push(frame.to_vec())).expect("reads");
            }
            prop_assert_eq!(b.state, State::Finished);
            prop_assert_eq!(got.len(), lengths.len());
            for (i, (frame, &length)) in got.iter().zip(&lengths).enumerate() {
                prop_assert_eq!(frame.len(), length);
                prop_assert!(frame.iter().enumerate().all(|(j, &b)| b == (i * 7 + j) as u8));
            }
        }

        #[test]
        fn whatever_the_other_side_writes_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (mut a, mut b) = pair();
            a.output.push_back(bytes);
            a.write().expect("writes");
            let _ = b.read(&mut |_| {});
        }
    }

    #[test]
    fn an_end_without_a_word_is_a_loss() {
        let (a, mut b) = pair();
        drop(a);
        b.read(&mut |_| {}).expect("reads");
        assert_eq!(b.state, State::Lost);
    }
}
