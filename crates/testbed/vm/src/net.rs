// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual Ethernet between machines.
//!
//! Each card is one end of a pair of stream sockets, over which QEMU sends frames with their length before them; the
//! other ends belong to a hub in this process. So a network needs no privilege and no name that others could see or
//! that could stay behind, it ends with this process, and it can be made as slow and as lossy as an experiment wants.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::VmError;

/// The largest frame that QEMU sends, bytes.
const LARGEST: usize = 4096 + 65536;

/// Frames a port holds for a guest that does not take them; more are lost, as in a switch.
const QUEUE: usize = 4096;

/// Latency and loss of a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Latency of a frame from one machine to another, on top of the emulation's own.
    pub latency: Duration,
    /// Share of frames that is lost, 0 to 1.
    pub loss: f64,
    /// Seed that selects the lost frames.
    pub seed: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self { latency: Duration::ZERO, loss: 0.0, seed: 1 }
    }
}

/// A network that machines can be plugged into. It lives as long as one of its handles.
#[derive(Debug, Clone)]
pub struct Network {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Ports that the hub has not taken yet.
    new: Mutex<Vec<UnixStream>>,
    /// Wakes the hub; when it closes, the hub ends.
    bell: UnixStream,
}

impl Network {
    /// A network with nobody on it.
    ///
    /// # Errors
    /// A loss that is no share, or the system has no thread or socket left.
    pub fn new(link: Link) -> Result<Self, VmError> {
        if !(0.0..=1.0).contains(&link.loss) {
            return Err(VmError::Wrong(format!("{} is no share of lost frames; give 0 to 1", link.loss)));
        }
        let (bell, heard) = UnixStream::pair().map_err(VmError::io("a pair of sockets"))?;
        heard.set_nonblocking(true).map_err(VmError::io("a socket"))?;
        let shared = Arc::new(Shared { new: Mutex::default(), bell });
        let hub = Hub {
            shared: Arc::downgrade(&shared),
            heard,
            ports: Vec::new(),
            link,
            random: fastrand::Rng::with_seed(link.seed),
        };
        std::thread::Builder::new()
            .name("vm network".into())
            .spawn(move || hub.run())
            .map_err(VmError::io("a thread"))?;
        Ok(Self { shared })
    }

    /// A new port; what is returned belongs to the machine's card.
    pub(crate) fn plug(&self) -> Result<OwnedFd, VmError> {
        let (ours, theirs) = UnixStream::pair().map_err(VmError::io("a pair of sockets"))?;
        ours.set_nonblocking(true).map_err(VmError::io("a socket"))?;
        self.shared.new.lock().unwrap_or_else(PoisonError::into_inner).push(ours);
        (&self.shared.bell).write_all(&[0]).map_err(VmError::io("waking a network"))?;
        Ok(theirs.into())
    }
}

/// The address of a card, made of its IPv4 address: locally administered, and no two alike on a network.
pub(crate) fn hardware_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// A frame under way, with its length before it as QEMU wants it.
#[derive(Clone)]
struct Frame {
    due: Instant,
    bytes: Arc<[u8]>,
}

struct Port {
    stream: UnixStream,
    /// Bytes received that are no whole frame yet.
    incoming: Vec<u8>,
    outgoing: VecDeque<Frame>,
    /// Bytes of the first frame that are written.
    written: usize,
    /// It closed, or sent what is no frame.
    gone: bool,
}

impl Port {
    const fn new(stream: UnixStream) -> Self {
        Self { stream, incoming: Vec::new(), outgoing: VecDeque::new(), written: 0, gone: false }
    }

    /// Reads what is there and returns the whole frames.
    fn read(&mut self) -> Vec<Arc<[u8]>> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.gone = true,
            Ok(n) => self.incoming.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
        let mut frames = Vec::new();
        loop {
            match whole_frame(&self.incoming) {
                Ok(Some(length)) => frames.push(self.incoming.drain(..length).collect()),
                Ok(None) => return frames,
                Err(TooLong) => {
                    self.gone = true;
                    return frames;
                }
            }
        }
    }

    fn queue(&mut self, frame: Frame) {
        if self.outgoing.len() < QUEUE {
            self.outgoing.push_back(frame);
        }
    }

    /// Writes the frames whose time has come, as far as they are taken.
    fn write(&mut self, now: Instant) {
        while let Some(frame) = self.outgoing.front().filter(|f| f.due <= now) {
            match self.stream.write(&frame.bytes[self.written..]) {
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
            if self.written == frame.bytes.len() {
                self.written = 0;
                self.outgoing.pop_front();
            }
        }
    }

    fn wants(&self, now: Instant) -> PollFlags {
        let due = self.outgoing.front().is_some_and(|f| f.due <= now);
        if due { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }
}

/// A length no Ethernet frame has.
#[derive(Debug, PartialEq, Eq)]
struct TooLong;

/// Bytes of the first frame with its length, if it is whole.
fn whole_frame(bytes: &[u8]) -> Result<Option<usize>, TooLong> {
    let Some(length) = bytes.first_chunk().map(|b| u32::from_be_bytes(*b)) else { return Ok(None) };
    let length = usize::try_from(length).ok().filter(|&n| n <= LARGEST).ok_or(TooLong)? + 4;
    Ok((bytes.len() >= length).then_some(length))
}

struct Hub {
    shared: std::sync::Weak<Shared>,
    heard: UnixStream,
    ports: Vec<Port>,
    link: Link,
    random: fastrand::Rng,
}

impl Hub {
    fn run(mut self) {
        loop {
            if !self.wait() {
                return;
            }
            self.take_new();
            for from in 0..self.ports.len() {
                for bytes in self.ports[from].read() {
                    self.forward(from, &bytes);
                }
            }
            let now = Instant::now();
            self.ports.iter_mut().for_each(|p| p.write(now));
            self.ports.retain(|p| !p.gone);
        }
    }

    /// Sleeps until there is something to do; `false` when nobody is left who could want it.
    fn wait(&self) -> bool {
        let now = Instant::now();
        let next =
            self.ports.iter().filter_map(|p| p.outgoing.front()).map(|f| f.due).filter(|&d| d > now).min();
        let timeout = next.map_or(PollTimeout::NONE, |due| {
            // rounded up: a wait of 0 ms would spin until the frame is due
            PollTimeout::try_from(due - now + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
        });
        let ports = self.ports.iter().map(|p| PollFd::new(p.stream.as_fd(), p.wants(now)));
        let bell = PollFd::new(self.heard.as_fd(), PollFlags::POLLIN);
        let mut all: Vec<PollFd<'_>> = std::iter::once(bell).chain(ports).collect();
        matches!(poll(&mut all, timeout), Ok(_) | Err(nix::Error::EINTR))
            && (self.shared.strong_count() > 0 || !self.ports.is_empty())
    }

    fn take_new(&mut self) {
        let mut rings = [0; 64];
        let _ = self.heard.read(&mut rings);
        if let Some(shared) = self.shared.upgrade() {
            let new = std::mem::take(&mut *shared.new.lock().unwrap_or_else(PoisonError::into_inner));
            self.ports.extend(new.into_iter().map(Port::new));
        }
    }

    /// Gives a frame to all others; cards drop what is not for them.
    fn forward(&mut self, from: usize, bytes: &Arc<[u8]>) {
        let due = Instant::now() + self.link.latency;
        for (to, port) in self.ports.iter_mut().enumerate() {
            if to != from && self.random.f64() >= self.link.loss {
                port.queue(Frame { due, bytes: Arc::clone(bytes) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn card(network: &Network) -> UnixStream {
        let card = UnixStream::from(network.plug().expect("a port"));
        card.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        card
    }

    fn send(card: &UnixStream, text: &str) {
        let mut bytes = u32::try_from(text.len()).expect("short").to_be_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        // in two pieces, as a stream may cut it
        let mut card = card;
        card.write_all(&bytes[..5]).and_then(|()| card.write_all(&bytes[5..])).expect("sent");
    }

    fn receive(mut card: &UnixStream) -> String {
        let mut length = [0; 4];
        card.read_exact(&mut length).expect("a length");
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        card.read_exact(&mut text).expect("a frame");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_frame_reaches_all_but_its_sender_and_a_removed_card_disturbs_no_other() {
        let network = Network::new(Link::default()).expect("a network");
        let (a, b, c) = (card(&network), card(&network), card(&network));
        send(&a, "from a");
        assert_eq!((receive(&b), receive(&c)), ("from a".into(), "from a".into()));
        drop(c);
        send(&b, "from b");
        assert_eq!(receive(&a), "from b");
        // a length no frame has
        (&b).write_all(&[0xff; 8]).expect("sent");
        let d = card(&network);
        send(&d, "from d");
        assert_eq!(receive(&a), "from d");
    }

    #[test]
    fn frames_come_late_in_order_and_as_many_as_are_not_lost() {
        let link = Link { latency: Duration::from_millis(30), loss: 0.5, seed: 7 };
        let network = Network::new(link).expect("a network");
        let (a, b) = (card(&network), card(&network));
        let start = Instant::now();
        for i in 0..200 {
            send(&a, &format!("{i:04}"));
        }
        let mut got = vec![receive(&b)];
        assert!(start.elapsed() >= link.latency);
        b.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
        let mut rest = Vec::new();
        let _ = (&b).read_to_end(&mut rest);
        got.extend(rest.chunks_exact(8).map(|f| String::from_utf8_lossy(&f[4..]).into_owned()));
        assert!(got.is_sorted() && (50..150).contains(&got.len()), "{} frames", got.len());
    }

    #[test]
    fn a_loss_that_is_no_share_is_wrong_use() {
        for loss in [-0.1, 1.1, f64::NAN] {
            assert!(Network::new(Link { loss, ..Link::default() }).expect_err("no share").is_wrong_use());
        }
        assert_eq!(hardware_address(Ipv4Addr::new(10, 0, 0, 17)), "52:54:0a:00:00:11");
    }

    proptest! {
        #[test]
        fn a_frame_is_whole_or_not_there(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(length)) = whole_frame(&bytes) {
                prop_assert!((4..=bytes.len()).contains(&length));
            }
        }
    }
}
