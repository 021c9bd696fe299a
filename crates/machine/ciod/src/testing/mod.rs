// SPDX-License-Identifier: MIT OR Apache-2.0
//! A synthetic node: plays the kernel of a node against a daemon, over the real window and the real bells.
//!
//! For tests and benchmarks of the daemon without a virtual machine: one thread can be a node, or many of them in
//! turn.

mod fuzz;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use colony_fship::layout::{self, CHANNELS, CrashRecord, JobBlock, LARGE_PAGE};
use colony_fship::message::own;
use colony_fship::ring::{Bell, Consumer, Producer, Refused};
use colony_fship::spans::Memory as _;
use colony_fship::{Reply, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use crate::io_node::export::fuzz_files;
pub use fuzz::fuzz_calls;

use crate::node::{self, NodeLink};
use crate::worker::window::{Bank, Window};

/// Timeout of a test for a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// See the module.
pub struct SyntheticNode {
    window: Window,
    banks: usize,
    seq: u32,
    channels: [(Producer<'static, Request>, Consumer<'static, Reply>); CHANNELS],
    bells: [OwnedFd; CHANNELS],
    daemon: OwnedFd,
    /// Replies that came while another was waited for.
    early: Vec<(usize, Reply)>,
    muted: bool,
    /// True if it looks for replies for ever, as a kernel in polled mode.
    pub polled: bool,
}

impl SyntheticNode {
    /// The node at the other end of a link.
    ///
    /// # Errors
    /// If the window cannot be mapped.
    pub fn new(link: &NodeLink) -> io::Result<Self> {
        let window = Window::map(link.memory(), link.window())?;
        let bells = link.bells_to_node();
        let bells = bells.iter().map(BorrowedFd::try_clone_to_owned);
        let bells =
            bells.collect::<io::Result<Vec<_>>>()?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self::with(window, link.bell_to_daemon().try_clone_to_owned()?, bells))
    }

    /// The node that a daemon greets at this socket, as it greets a virtual machine.
    ///
    /// # Errors
    /// If nobody listens, or says something else.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let mut fds = Vec::new();
        for _ in 0..3 + 2 * CHANNELS {
            let (_, fd) = node::hear(&stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            fds.extend(fd);
        }
        // the window, the daemon's bell for each vector, the node's own
        let mut fds = fds.into_iter();
        let (Some(memory), Some(daemon)) = (fds.next(), fds.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let bells: Vec<OwnedFd> = fds.skip(CHANNELS - 1).collect();
        let bells = bells.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        let length = std::fs::File::from(memory.try_clone()?).metadata()?.len();
        Ok(Self::with(Window::map(memory, length)?, daemon, bells))
    }

    fn with(window: Window, daemon: OwnedFd, bells: [OwnedFd; CHANNELS]) -> Self {
        let channels = std::array::from_fn(|n| {
            // SAFETY: each `SyntheticNode` has a mapping of its own, and a test plays a node by one of them at a time
            unsafe { (Producer::new(window.requests(n)), Consumer::new(window.replies(n))) }
        });
        Self {
            window,
            banks: 1,
            seq: 0,
            channels,
            bells,
            daemon,
            early: Vec::new(),
            muted: false,
            polled: false,
        }
    }

    /// Processes of the node: memory is divided among so many.
    pub fn banks(&mut self, banks: usize) {
        self.banks = banks;
    }

    fn bank(&self, channel: usize) -> Bank {
        self.window.bank(channel % self.banks, self.banks)
    }

    /// Writes to the memory of the process on `channel`.
    ///
    /// # Panics
    /// If it is not the process's.
    pub fn poke(&self, channel: usize, address: u64, bytes: &[u8]) {
        self.bank(channel).write(address, bytes).expect("memory of the process");
    }

    /// Reads from the memory of the process on `channel`.
    ///
    /// # Panics
    /// If it is not the process's.
    pub fn peek(&self, channel: usize, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.bank(channel).read(address, &mut bytes).expect("memory of the process");
        bytes
    }

    /// The signals that wait for the process on `channel`, which takes them.
    pub fn signals(&self, channel: usize) -> u64 {
        self.window.signals(channel).swap(0, std::sync::atomic::Ordering::SeqCst)
    }

    /// Writes a crash record.
    pub fn crash(&self, channel: usize, record: &CrashRecord) {
        self.window.put(layout::crash_at(channel), record);
    }

    /// Says words of the kernel.
    pub fn log(&mut self, text: &str) {
        let mut area = [0u8; layout::LOG_SIZE as usize];
        area[..text.len()].copy_from_slice(text.as_bytes());
        self.window.put(layout::LOG_AT, &area);
        self.send(0, own::LOG, [0, text.len() as u64, 0, 0, 0, 0]);
    }

    /// Writes a word over the rings of a channel: byte `at` of the requests' ring.
    pub fn damage(&self, channel: usize, at: u64, word: u32) {
        self.window.put(layout::channel_at(channel) + layout::REQUESTS_IN_CHANNEL + at, &word);
    }

    /// Does not ring any more, whoever sleeps; or does again.
    pub fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Rings for nothing.
    pub fn send_bell(&self) {
        node::ring(&self.daemon);
    }

    /// Sends a request without waiting; its number.
    ///
    /// # Panics
    /// If the ring stays full.
    pub fn send(&mut self, channel: usize, call: u32, args: [u64; 6]) -> u32 {
        let start = Instant::now();
        loop {
            match self.try_send(channel, call, args) {
                Some(seq) => return seq,
                None => assert!(start.elapsed() < TIMEOUT, "the daemon takes no requests"),
            }
            std::thread::yield_now();
        }
    }

    /// The same, if there is room in the ring.
    pub fn try_send(&mut self, channel: usize, call: u32, args: [u64; 6]) -> Option<u32> {
        self.seq = self.seq.wrapping_add(1);
        match self.channels[channel].0.push(Request { seq: self.seq, call, args, reserved: 0 }) {
            Ok(bell) => {
                if bell == Bell::Ring && !self.muted {
                    node::ring(&self.daemon);
                }
                Some(self.seq)
            }
            Err(Refused::Full | Refused::Corrupt) => None,
        }
    }

    /// Returns `true` if the daemon has taken all requests of a channel.
    pub fn drained(&self, channel: usize) -> bool {
        self.channels[channel].0.drained()
    }

    /// The next reply on a channel, if one comes in time.
    pub fn reply(&mut self, channel: usize, timeout: Duration) -> Option<Reply> {
        if let Some(n) = self.early.iter().position(|(c, _)| *c == channel) {
            return Some(self.early.remove(n).1);
        }
        self.fresh(channel, timeout)
    }

    /// The next reply on a channel, if it is there.
    ///
    /// # Panics
    /// If the daemon damages the ring.
    pub fn poll_reply(&mut self, channel: usize) -> Option<Reply> {
        self.channels[channel].1.pop().expect("a sound daemon")
    }

    fn fresh(&mut self, channel: usize, timeout: Duration) -> Option<Reply> {
        let start = Instant::now();
        loop {
            let replies = &mut self.channels[channel].1;
            for _ in 0..64 {
                if let Some(reply) = replies.pop().expect("a sound daemon") {
                    return Some(reply);
                }
                std::hint::spin_loop();
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return None;
            }
            if !self.polled && replies.may_sleep() {
                self.listen(channel, left);
                self.channels[channel].1.wake();
            }
        }
    }

    /// Waits for the bell of a channel.
    pub fn listen(&self, channel: usize, timeout: Duration) {
        let bell = &self.bells[channel];
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(bell.as_fd(), PollFlags::POLLIN)], timeout);
        let _ = nix::unistd::read(bell, &mut [0; 8]);
    }

    /// The reply to one request.
    ///
    /// # Panics
    /// If it does not come.
    pub fn answer(&mut self, channel: usize, seq: u32) -> i64 {
        self.answer_within(channel, seq, TIMEOUT).expect("a reply")
    }

    /// The reply to one request, if it comes in time.
    pub fn answer_within(&mut self, channel: usize, seq: u32, timeout: Duration) -> Option<i64> {
        if let Some(n) = self.early.iter().position(|(c, r)| (*c, r.seq) == (channel, seq)) {
            return Some(self.early.remove(n).1.result);
        }
        let start = Instant::now();
        loop {
            let reply = self.fresh(channel, timeout.saturating_sub(start.elapsed()))?;
            if reply.seq == seq {
                return Some(reply.result);
            }
            self.early.push((channel, reply));
        }
    }

    /// Makes a call and waits for its result.
    pub fn call(&mut self, channel: usize, call: u32, args: [u64; 6]) -> i64 {
        let seq = self.send(channel, call, args);
        self.answer(channel, seq)
    }

    /// Asks for work and waits for it.
    pub fn next_job(&mut self) -> JobBlock {
        let seq = self.ask_for_job();
        assert_eq!(self.answer(0, seq), 0, "there is a job");
        self.begin()
    }

    /// Asks for work; its number.
    pub fn ask_for_job(&mut self) -> u32 {
        self.send(0, own::NEXT_JOB, [colony_fship::VERSION.into(), CHANNELS as u64, 1_000_000_000, 0, 0, 0])
    }

    /// Reads the job that has come.
    pub fn begin(&mut self) -> JobBlock {
        let block: JobBlock = self.window.get(layout::JOB_AT);
        // one process may have all memory, or a bank of two
        self.banks = if block.processes[0].memory == self.window.bank(0, 1).length() { 1 } else { 2 };
        block
    }

    /// Ends the process on `channel` by `exit`.
    pub fn exit(&mut self, channel: usize, code: u8) {
        self.send(channel, own::EXIT, [u64::from(code) << 8, 0, 0, 0, 0, 0]);
    }

    /// Ends the process on `channel` by a signal, whose record was written.
    pub fn fault(&mut self, channel: usize, signal: u32) {
        self.send(channel, own::FAULT, [u64::from(signal), 0, 0, 0, 0, 0]);
    }

    /// A string at `address`; the address.
    pub fn string(&self, channel: usize, address: u64, text: &str) -> u64 {
        self.poke(channel, address, text.as_bytes());
        self.poke(channel, address + text.len() as u64, &[0]);
        address
    }
}

/// First address of a process that [`program`] leaves free.
pub const FREE: u64 = 6 << 20;

/// The smallest static program: it exits with code 0.
pub fn program() -> Vec<u8> {
    const CODE: [u8; 9] = [0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05]; // xor edi, edi; mov eax, 231; syscall
    let mut all = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0];
    let base = 2 * LARGE_PAGE;
    all.extend([base + 120, 64, 0].iter().flat_map(|n| n.to_le_bytes()));
    all.extend([0, 0, 64u16, 56, 1, 64, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    all.extend([1u32, 5].iter().flat_map(|n| n.to_le_bytes()));
    all.extend([0, base, base, 129, 129, 4096].iter().flat_map(|n| n.to_le_bytes()));
    all.extend(CODE);
    all
}
