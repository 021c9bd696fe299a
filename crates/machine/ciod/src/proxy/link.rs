// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of a node: sent in order, kept until the node has them, and sent again when it seems that it has not.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use colony_fship::frame::{self, Content, Flow, Head, Heard, Side};
use nix::sys::socket::{MsgFlags, recv, send};
use zerocopy::IntoBytes as _;

use super::network::{Network, PROXY_ADDRESS};

/// Frames that are not acknowledged after this time are sent again.
const AGAIN: Duration = Duration::from_millis(10);
/// See the module.
pub(super) struct Link {
    socket: OwnedFd,
    network: Network,
    flow: Flow,
    /// Frames that the node has not acknowledged.
    sent: VecDeque<Vec<u8>>,
    peer: [u8; 6],
    /// Time at which the oldest of them was sent, or the last one was acknowledged.
    since: Instant,
    /// Frames that came or went, to lose some.
    count: u32,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, network: Network) -> Self {
        Self {
            socket,
            network,
            flow: Flow::new(),
            sent: VecDeque::new(),
            peer: frame::EVERYBODY,
            since: Instant::now(),
            count: 0,
        }
    }

    /// Bytes that a frame carries.
    pub(super) fn room(&self) -> usize {
        frame::room(self.network.mtu)
    }

    /// Returns `true` if one more frame may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.flow.has_room()
    }

    /// Time at which frames are sent again, unless they are acknowledged.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.flow.in_flight() > 0).then(|| self.since + AGAIN)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a frame; there must be room.
    pub(super) fn emit(&mut self, kind: u8, place: u64, bytes: &[u8]) -> io::Result<()> {
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut head = Head::new(kind, place, length);
        if self.flow.in_flight() == 0 {
            self.since = Instant::now();
        }
        head.seq = self.flow.number();
        let frame = self.finish(head, bytes);
        self.transmit(&frame)?;
        self.sent.push_back(frame);
        Ok(())
    }

    /// Acknowledges what has come, unless another frame has done it.
    pub(super) fn acknowledge(&mut self) -> io::Result<()> {
        let Some(kind) = self.flow.owes() else { return Ok(()) };
        let frame = self.finish(Head::new(kind, 0, 0), &[]);
        self.transmit(&frame)
    }

    /// Sends again what is overdue.
    pub(super) fn repeat(&mut self, now: Instant) -> io::Result<()> {
        if self.due().is_some_and(|due| due <= now) { self.repeat_now() } else { Ok(()) }
    }

    fn repeat_now(&mut self) -> io::Result<()> {
        self.since = Instant::now();
        let sent = std::mem::take(&mut self.sent);
        let done = sent.iter().try_for_each(|frame| self.transmit(frame));
        self.sent = sent;
        done
    }

    fn finish(&mut self, mut head: Head, bytes: &[u8]) -> Vec<u8> {
        (head.to, head.from) = (self.peer, PROXY_ADDRESS);
        self.flow.tell(&mut head);
        let mut frame = Vec::with_capacity(frame::HEAD + bytes.len());
        frame.extend_from_slice(head.as_bytes());
        frame.extend_from_slice(bytes);
        frame
    }

    /// Returns `true` if the next frame is to be lost.
    fn loses(&mut self) -> bool {
        self.count = self.count.wrapping_add(1);
        self.network.lose_every.is_some_and(|n| n > 0 && self.count.is_multiple_of(n))
    }

    fn transmit(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.loses() {
            return Ok(());
        }
        loop {
            match send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_NOSIGNAL) {
                Err(nix::Error::EINTR) => {}
                // a network card that has no room has lost it: it is sent again
                Err(nix::Error::ENOBUFS) => return Ok(()),
                done => return done.map(drop).map_err(Into::into),
            }
        }
    }

    /// The next frame that has come, if it is one, and the next in order; `None` if none has come. `take` says
    /// whether it could be taken; if not, it comes again.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        window: u64,
        take: impl FnOnce(Content<'_>) -> io::Result<bool>,
    ) -> io::Result<Option<()>> {
        let length = match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => length,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let Some((head, content)) = frame::read(&buffer[..length], Side::Proxy, window) else {
            return Ok(Some(()));
        };
        if self.loses() {
            return Ok(Some(()));
        }
        self.peer = head.from;
        let more = self.flow.acked(head.ack);
        if more > 0 {
            self.since = Instant::now();
            self.sent.drain(..self.sent.len().min(more as usize));
        }
        match self.flow.hear(&head, &content) {
            Heard::Nothing => {}
            Heard::Repeat => self.repeat_now()?,
            Heard::Next => {
                if take(content)? {
                    self.flow.take();
                }
            }
        }
        Ok(Some(()))
    }
}
