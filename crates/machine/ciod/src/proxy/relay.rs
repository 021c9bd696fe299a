// SPDX-License-Identifier: MIT OR Apache-2.0
//! From frames to the rings of a window, and back.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use colony_fship::calls::{find, number};
use colony_fship::frame::{After, Content, MTU_MOST, kind};
use colony_fship::layout::{self, CHANNELS, Header, JobBlock, LARGE_PAGE, PROCESSES};
use colony_fship::message::own;
use colony_fship::ring::{Bell, Consumer, Producer, Refused};
use colony_fship::spans::{self, Span};
use colony_fship::{Reply, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Whence, lseek};
use zerocopy::IntoBytes as _;

use super::link::Link;
use crate::node::ring;
use crate::worker::window::Window;

/// Period at which the daemon is rung for a node that waits for work.
const RING_AGAIN: Duration = Duration::from_millis(100);
/// Calls of a node without a reply, at most: rings hold less.
const OPEN: usize = 64;

/// Answers that may wait for a node that acknowledges nothing. Beyond that the proxy takes no more of its messages.
const WAITING: usize = 4096;

/// An item that waits for its turn.
enum Item {
    Frame(u8, u64, Vec<u8>),
    /// A piece of the window, as it is when its turn comes.
    Put {
        place: u64,
        length: u64,
        /// Its node has zeroes there: frames of nothing else are left out.
        cleared: bool,
    },
}

/// A call without a reply yet.
enum Open {
    Job,
    Exec,
    Call { call: u32, spans: Vec<Span> },
}

/// See the module.
pub(super) struct Relay {
    control: UnixStream,
    window: Window,
    memory: File,
    to_daemon: OwnedFd,
    bells: [OwnedFd; CHANNELS],
    link: Link,
    rings: Rings,
    queue: VecDeque<Item>,
}

/// The node's side of the rings.
struct Rings {
    requests: [Producer<'static, Request>; CHANNELS],
    replies: [Consumer<'static, Reply>; CHANNELS],
    /// By channel and number.
    open: HashMap<(usize, u32), Open>,
    /// Processes of the node: memory is divided among so many.
    banks: usize,
}

impl Relay {
    pub(super) fn new(
        control: UnixStream,
        window: Window,
        memory: File,
        to_daemon: OwnedFd,
        bells: [OwnedFd; CHANNELS],
        link: Link,
    ) -> Self {
        let rings = Rings {
            // SAFETY: the process's one relay plays the node, which shares no memory and so has no rings of its own here
            requests: std::array::from_fn(|n| unsafe { Producer::new(window.requests(n)) }),
            // SAFETY: as above
            replies: std::array::from_fn(|n| unsafe { Consumer::new(window.replies(n)) }),
            open: HashMap::new(),
            banks: 1,
        };
        Self { control, window, memory, to_daemon, bells, link, rings, queue: VecDeque::new() }
    }

    /// Relays until the supervisor or the node is gone.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; usize::from(MTU_MOST) + 64];
        loop {
            self.replies()?;
            self.signals();
            self.transmit()?;
            self.link.acknowledge()?;
            let sleeps = self.rings.replies.each_ref().map(Consumer::may_sleep);
            let now = Instant::now();
            let asked = self.rings.open.values().any(|o| matches!(o, Open::Job));
            let until = if sleeps == [true; CHANNELS] {
                let ring = asked.then(|| now + RING_AGAIN);
                self.link.due().into_iter().chain(ring).min()
            } else {
                Some(now)
            };
            let over = self.wait(until.map(|at| at.saturating_duration_since(now)), asked)?;
            self.rings.replies.iter().for_each(Consumer::wake);
            if over {
                return Ok(());
            }
            while self.receive(&mut buffer)? {}
            self.link.repeat(Instant::now())?;
        }
    }

    /// Waits for frames and bells; whether the supervisor is gone.
    fn wait(&self, timeout: Option<Duration>, asked: bool) -> io::Result<bool> {
        let timeout = match timeout {
            None => PollTimeout::NONE,
            Some(Duration::ZERO) => PollTimeout::ZERO,
            Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
        };
        let listen = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let bells = self.bells.iter().map(AsFd::as_fd);
        let mut fds: Vec<_> =
            [self.control.as_fd(), self.link.fd()].into_iter().chain(bells).map(listen).collect();
        match poll(&mut fds, timeout) {
            // nobody may have heard the bell between two jobs
            Ok(0) if asked => ring(&self.to_daemon),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        for bell in &self.bells {
            let _ = nix::unistd::read(bell, &mut [0; 8]);
        }
        // it says nothing more, so that this is the end
        Ok(fds[0].any() == Some(true))
    }

    /// One frame; whether there was one.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Self { link, window, memory, to_daemon, rings, queue, .. } = self;
        let full = queue.len() >= WAITING;
        let taken = link.receive(buffer, window.length(), |content| match content {
            // it comes again
            Content::Hello | Content::Request(..) if full => Ok(false),
            Content::Hello => {
                let header: Header = window.get(layout::HEADER_AT);
                queue.push_back(Item::Frame(kind::PUT, layout::HEADER_AT, header.as_bytes().to_vec()));
                Ok(true)
            }
            Content::Put { place, bytes } => memory.write_all_at(bytes, place).map(|()| true),
            Content::Request(channel, request) => rings.request(window, to_daemon, channel, &request),
            _ => Ok(true),
        })?;
        Ok(taken.is_some())
    }

    /// Passes signals on.
    fn signals(&mut self) {
        for n in 0..CHANNELS {
            let word = self.window.signals(n).swap(0, Ordering::SeqCst);
            if word != 0 {
                self.queue.push_back(Item::Frame(kind::SIGNALS, n as u64, word.as_bytes().to_vec()));
            }
        }
    }

    /// Passes replies on, with what their calls have written.
    fn replies(&mut self) -> io::Result<()> {
        for n in 0..CHANNELS {
            while let Some(reply) = self.rings.replies[n].pop().map_err(io::Error::other)? {
                let open = self.rings.open.remove(&(n, reply.seq));
                if !matches!(open, Some(Open::Job)) {
                    // what the call itself has raised comes before its reply; signals to a new job come after it
                    self.signals();
                }
                match open {
                    Some(Open::Job) if reply.result == 0 => {
                        let none = 0u64.as_bytes();
                        (0..CHANNELS as u64).for_each(|n| {
                            self.queue.push_back(Item::Frame(kind::SIGNALS, n, none.to_vec()));
                        });
                        let block: JobBlock = self.window.get(layout::JOB_AT);
                        self.rings.banks = (block.processes_len as usize).clamp(1, PROCESSES);
                        self.queue_block();
                        (0..self.rings.banks).try_for_each(|bank| self.queue_image(bank))?;
                    }
                    Some(Open::Exec) if reply.result == 0 => {
                        self.queue_block();
                        self.queue_image(self.rings.bank_of(n))?;
                    }
                    Some(Open::Call { call, spans }) => {
                        let first = self.rings.first_of(n, self.window.length());
                        let mut after = After::new(call, reply.result);
                        for span in spans {
                            let length = after.bytes(&span);
                            self.queue.push_back(Item::Put {
                                place: first + span.address,
                                length,
                                cleared: false,
                            });
                        }
                    }
                    _ => {}
                }
                self.queue.push_back(Item::Frame(kind::REPLY, n as u64, reply.as_bytes().to_vec()));
            }
        }
        Ok(())
    }

    fn queue_block(&mut self) {
        let length = size_of::<JobBlock>() as u64;
        self.queue.push_back(Item::Put { place: layout::JOB_AT, length, cleared: false });
    }

    /// All memory of a process: where the window's file has anything.
    fn queue_image(&mut self, bank: usize) -> io::Result<()> {
        let size = self.window.length() / self.rings.banks as u64;
        let (first, end) = (bank as u64 * size + LARGE_PAGE, (bank as u64 + 1) * size);
        self.queue.push_back(Item::Frame(kind::CLEAR, first, (end - first).as_bytes().to_vec()));
        let seek = |from: u64, whence| {
            let from = i64::try_from(from).map_err(io::Error::other)?;
            match lseek(&self.memory, from, whence) {
                Ok(found) => Ok(Some(u64::try_from(found).map_err(io::Error::other)?)),
                // nothing follows
                Err(nix::Error::ENXIO) => Ok(None),
                Err(e) => Err(io::Error::from(e)),
            }
        };
        let mut at = first;
        while let Some(data) = seek(at, Whence::SeekData)?.filter(|&data| data < end) {
            let hole = seek(data, Whence::SeekHole)?.unwrap_or(end).min(end);
            self.queue.push_back(Item::Put { place: data, length: hole - data, cleared: true });
            at = hole;
        }
        Ok(())
    }

    /// Sends what waits, as far as the link takes it.
    fn transmit(&mut self) -> io::Result<()> {
        let room = self.link.room();
        while self.link.has_room() {
            match self.queue.pop_front() {
                None => break,
                Some(Item::Frame(kind, place, bytes)) => self.link.emit(kind, place, &bytes)?,
                Some(Item::Put { length: 0, .. }) => {}
                Some(Item::Put { place, length, cleared }) => {
                    let bytes = self.piece(place, length.min(room as u64))?;
                    let done = bytes.len() as u64;
                    self.queue.push_front(Item::Put { place: place + done, length: length - done, cleared });
                    if !cleared || bytes.iter().any(|&b| b != 0) {
                        self.link.emit(kind::PUT, place, &bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn piece(&self, place: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.memory.read_exact_at(&mut bytes, place)?;
        Ok(bytes)
    }
}

impl Rings {
    /// Number of the process that runs on a channel.
    fn bank_of(&self, channel: usize) -> usize {
        channel % self.banks
    }

    /// First offset of its memory in the window.
    fn first_of(&self, channel: usize, window: u64) -> u64 {
        self.bank_of(channel) as u64 * (window / self.banks as u64)
    }

    /// A request from the node; `false` if there is no room for it now.
    fn request(
        &mut self,
        window: &Window,
        to_daemon: &OwnedFd,
        channel: usize,
        request: &Request,
    ) -> io::Result<bool> {
        let open = self.open(window, channel, request);
        if self.open.len() >= OPEN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match self.requests[channel].push(*request) {
            Ok(Bell::Ring) => ring(to_daemon),
            Ok(Bell::Silent) => {}
            Err(Refused::Full) => return Ok(false),
            Err(Refused::Corrupt) => return Err(io::ErrorKind::InvalidData.into()),
        }
        if matches!(request.call, own::EXIT | own::FAULT) {
            let banks = self.banks;
            self.open.retain(|&(c, _), _| c % banks != channel % banks);
        }
        if let Some(open) = open {
            self.open.insert((channel, request.seq), open);
        }
        Ok(true)
    }

    /// The state to keep until the reply to a request comes; `None` if there is no reply.
    fn open(&self, window: &Window, channel: usize, request: &Request) -> Option<Open> {
        Some(match request.call {
            call if !own::has_reply(call) => return None,
            own::NEXT_JOB => Open::Job,
            number::execve => Open::Exec,
            call => {
                let mut spans = Vec::new();
                let bank = window.bank(self.bank_of(channel), self.banks);
                if let Some(row) = find(u64::from(call)) {
                    // where memory is not the process's, the worker finds the same, and does nothing
                    let _ = spans::each(row, request, &bank, &mut |span| {
                        if span.used.writes() {
                            spans.push(span);
                        }
                        Ok(())
                    });
                }
                Open::Call { call, spans }
            }
        })
    }
}
