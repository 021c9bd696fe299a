// SPDX-License-Identifier: MIT OR Apache-2.0
//! The torus: the memory window that compute nodes share.
//!
//! A frame is one message of the torus, in packets. A message of no bytes is the sender's last: a rank leaves the window
//! when it has sent one to every other rank and has received one of each.

use std::collections::VecDeque;
use std::time::Duration;

use colony_torus::Torus;

use super::{Transport, TransportError};

/// Packets that are taken before the program goes on.
const BURST: usize = 1024;
/// The first sleep of a rank that waits. Each is twice as long as the one before it.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

/// A rank of a job on compute nodes.
#[derive(Debug)]
pub struct TorusTransport {
    torus: Torus,
    peers: Vec<Peer>,
    /// Frames that have not left completely, of all peers.
    unsent: usize,
    sleep: Duration,
    /// All ranks have agreed to leave.
    is_over: bool,
}

impl Drop for TorusTransport {
    /// A rank that leaves without the others ends the job.
    fn drop(&mut self) {
        if !self.is_over {
            self.torus.abort();
        }
    }
}

/// Another rank, or this one.
#[derive(Debug, Default)]
struct Peer {
    /// Frames on their way to it, and the bytes of the first that are sent.
    output: VecDeque<Vec<u8>>,
    sent: usize,
    /// The frame that is arriving from it.
    input: Vec<u8>,
    /// It has sent its last frame.
    has_finished: bool,
}

fn failed(doing: &str) -> impl FnOnce(colony_torus::Error) -> TransportError + use<'_> {
    move |e| match e {
        colony_torus::Error::Aborted { .. } | colony_torus::Error::Left { .. } => {
            TransportError::Lost(e.to_string())
        }
        e => TransportError::Failed { doing: doing.to_owned(), reason: e.to_string() },
    }
}

/// Puts the packets of a frame into the inbox of a rank, from byte `sent` on. Returns `true` if the frame has left.
fn put(torus: &Torus, to: usize, frame: &[u8], sent: &mut usize) -> Result<bool, TransportError> {
    loop {
        let rest = &frame[*sent..];
        let packet = &rest[..rest.len().min(Torus::PACKET_BYTES)];
        let more = packet.len() < rest.len();
        if !torus.try_send(to, packet, more).map_err(failed("sending on the torus"))? {
            return Ok(false);
        }
        *sent += packet.len();
        if !more {
            *sent = 0;
            return Ok(true);
        }
    }
}

impl TorusTransport {
    /// Returns `true` if the environment names a window.
    #[must_use]
    pub fn is_launched() -> bool {
        std::env::var_os("COLONY_TORUS").is_some()
    }

    /// Joins the window that the environment names, see [`Torus::join`].
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn join() -> Result<Self, TransportError> {
        Torus::join().map(Self::new).map_err(failed("joining the torus"))
    }

    /// On a torus that this process has joined.
    #[must_use]
    pub fn new(torus: Torus) -> Self {
        let peers = (0..torus.size()).map(|_| Peer::default()).collect();
        Self { torus, peers, unsent: 0, sleep: SHORTEST_SLEEP, is_over: false }
    }

    /// Puts what there is room for into the inboxes.
    fn push(&mut self) -> Result<(), TransportError> {
        if self.unsent == 0 {
            return Ok(());
        }
        for (to, peer) in self.peers.iter_mut().enumerate() {
            while let Some(frame) = peer.output.front() {
                if !put(&self.torus, to, frame, &mut peer.sent)? {
                    break;
                }
                peer.output.pop_front();
                self.unsent -= 1;
            }
        }
        Ok(())
    }

    /// Sends a frame, or keeps what the inbox has no room for.
    fn send_frame(&mut self, to: usize, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        let Some(peer) = self.peers.get_mut(to) else {
            frame.clear();
            return Ok(());
        };
        if peer.output.is_empty() && put(&self.torus, to, frame, &mut peer.sent)? {
            // the usual case: the frame's memory is used again
            frame.clear();
            return Ok(());
        }
        peer.output.push_back(std::mem::take(frame));
        self.unsent += 1;
        Ok(())
    }

    /// Takes the next packet. Returns `true` if there was one.
    fn take(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        let receive = failed("receiving on the torus");
        let received = self.torus.arrived().and_then(|from| {
            let Some(from) = from else { return Ok(None) };
            let packet = self.torus.try_recv(from, &mut self.peers[from].input)?;
            Ok(packet.map(|more| (from, more)))
        });
        let Some((from, more)) = received.map_err(receive)? else { return Ok(false) };
        let peer = &mut self.peers[from];
        match more {
            true => {}
            false if peer.input.is_empty() => peer.has_finished = true,
            false => {
                deliver(from as u32, &peer.input);
                peer.input.clear();
            }
        }
        Ok(true)
    }
}

impl Transport for TorusTransport {
    fn rank(&self) -> u32 {
        self.torus.rank() as u32
    }

    fn size(&self) -> u32 {
        self.torus.size() as u32
    }

    fn name(&self) -> &'static str {
        "torus"
    }

    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        if frame.is_empty() {
            return Ok(());
        }
        self.send_frame(to as usize, frame)
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        self.torus.check_abort().map_err(failed("looking for messages on the torus"))?;
        self.push()?;
        let mut taken = 0;
        while taken < BURST && self.take(deliver)? {
            taken += 1;
        }
        if taken > 0 {
            self.sleep = SHORTEST_SLEEP;
        }
        Ok(taken > 0)
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        // nobody rings: a rank that waits looks, and leaves the CPU to others between two looks
        if self.unsent > 0 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.sleep.min(limit));
            self.sleep = (2 * self.sleep).min(limit.max(SHORTEST_SLEEP));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        let own = self.torus.rank();
        self.peers[own].has_finished = true;
        for to in (0..self.peers.len()).filter(|&to| to != own) {
            self.send_frame(to, &mut Vec::new())?;
        }
        // a rank that finishes still takes what others send it: they wait for room in its inbox
        while self.unsent > 0 || self.peers.iter().any(|peer| !peer.has_finished) {
            if !self.poll(&mut |_, _| {})? {
                self.wait(Duration::from_millis(1))?;
            }
        }
        self.is_over = true;
        Ok(())
    }

    fn abort(&mut self, _code: i32) {
        self.torus.abort();
    }
}
