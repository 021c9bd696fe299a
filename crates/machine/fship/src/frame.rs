// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function shipping without shared memory: frames on an Ethernet link, for a node that has a network device only.
//!
//! The node has a window of its own, laid out as the shared one ([`crate::layout`]), and so has a *proxy* beside the
//! daemon, which shares its window with the daemon's workers as any node does. Frames keep the two alike as far as
//! calls can tell: before a request goes the memory that the call reads ([`before`]), before a reply comes the memory
//! that it wrote ([`After`]), and before the start of a program all of its memory.
//!
//! Every frame says by itself where its bytes belong, so nothing is put together again. [`Flow`] keeps the frames of
//! a direction in order: each has a number, the other side takes the next one only and tells how many it has, and what
//! was lost is sent again with all after it (go-back-N; Tanenbaum, Computer Networks, 3.4).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::calls::number;
use crate::layout::{CHANNELS, CHANNELS_AT, CRASH_AT, HEADER_AT, LARGE_PAGE, LOG_AT, LOG_SIZE};
use crate::spans::{PATH, Span, Use};
use crate::{Reply, Request};

/// Frames of a direction that may be under way at once.
pub const FLIGHT: u32 = 16;
/// Bytes behind the Ethernet header that every link carries.
pub const MTU: u16 = 1500;
/// The largest that is used, where the link carries more.
pub const MTU_MOST: u16 = 9000;
/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Everybody's address: until the first frame has come, nobody knows the other's.
pub const EVERYBODY: [u8; 6] = [0xff; 6];

const MAGIC: [u8; 4] = *b"CNFS";
/// Local experimental EtherType (IEEE 802, 2014, 9.2.3).
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Kinds of frames.
pub mod kind {
    /// Nothing but [`super::Head::ack`]; has no number.
    pub const ACK: u8 = 0;
    /// From a node that has started: the other side puts the header into its window.
    pub const HELLO: u8 = 1;
    /// Bytes for the window.
    pub const PUT: u8 = 2;
    /// Zeroes for the window.
    pub const CLEAR: u8 = 3;
    /// A request of a channel.
    pub const REQUEST: u8 = 4;
    /// A reply to one.
    pub const REPLY: u8 = 5;
    /// Signals for a channel's process; none at all: forget those that came before, for another process.
    pub const SIGNALS: u8 = 6;
    /// As [`ACK`]; and a later frame has come, so that the next one seems lost. Has no number.
    pub const MISSING: u8 = 7;
}

/// The head of each frame, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C, packed)]
pub struct Head {
    /// Ethernet address of the receiver.
    pub to: [u8; 6],
    /// Ethernet address of the sender.
    pub from: [u8; 6],
    ether_type: [u8; 2],
    magic: [u8; 4],
    version: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// Bytes that follow; a link may have put more behind them.
    length: u16,
    /// Number of the frame in its direction.
    pub seq: u32,
    /// Frames of the other direction that have come.
    pub ack: u32,
    /// Offset in the window, or the number of a channel.
    pub place: u64,
}

/// Bytes of [`Head`].
pub const HEAD: usize = size_of::<Head>();

/// Bytes that a frame carries on a link with this MTU.
pub fn room(mtu: u16) -> usize {
    ETHERNET + usize::from(mtu.clamp(MTU, MTU_MOST)) - HEAD
}

impl Head {
    /// Of a frame with `length` bytes.
    pub fn new(kind: u8, place: u64, length: u16) -> Self {
        Self {
            to: EVERYBODY,
            from: [0; 6],
            ether_type: ETHER_TYPE,
            magic: MAGIC,
            version: crate::VERSION as u8,
            kind,
            length,
            seq: 0,
            ack: 0,
            place,
        }
    }
}

/// Whose eyes look at a frame: each side may write only some places of the other's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The node: takes the header, the job block, and memory of processes.
    Node,
    /// The proxy: takes crash records, the log, and memory of processes.
    Proxy,
}

impl Side {
    /// Returns `true` if `length` bytes at `place` may be written.
    fn takes(self, place: u64, length: u64, window: u64) -> bool {
        let within = |first: u64, end: u64| {
            first <= place && place.checked_add(length).is_some_and(|past| past <= end)
        };
        let control = match self {
            Self::Node => within(HEADER_AT, CRASH_AT),
            Self::Proxy => within(CRASH_AT, CHANNELS_AT) || within(LOG_AT, LOG_AT + LOG_SIZE),
        };
        control || within(LARGE_PAGE, window)
    }
}

/// The content of a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// See [`kind::ACK`].
    Ack,
    /// See [`kind::MISSING`].
    Missing,
    /// See [`kind::HELLO`].
    Hello,
    /// See [`kind::PUT`].
    Put {
        /// Offset in the window.
        place: u64,
        /// The bytes that belong there.
        bytes: &'a [u8],
    },
    /// See [`kind::CLEAR`].
    Clear {
        /// Offset in the window.
        place: u64,
        /// Bytes.
        length: u64,
    },
    /// See [`kind::REQUEST`].
    Request(usize, Request),
    /// See [`kind::REPLY`].
    Reply(usize, Reply),
    /// See [`kind::SIGNALS`]: a bit for each.
    Signals(usize, u64),
}

/// Reads a frame that has come to `side`, whose window has so many bytes. `None` for what is no frame of ours, of
/// another version, cut off, or not for this side.
pub fn read(frame: &[u8], side: Side, window: u64) -> Option<(Head, Content<'_>)> {
    let (head, rest) = Head::read_from_prefix(frame).ok()?;
    if (head.ether_type, head.magic, u32::from(head.version)) != (ETHER_TYPE, MAGIC, crate::VERSION) {
        return None;
    }
    let bytes = rest.get(..usize::from(head.length))?;
    let place = head.place;
    let channel = || usize::try_from(place).ok().filter(|&c| c < CHANNELS);
    let content = match (head.kind, side) {
        (kind::ACK, _) => Content::Ack,
        (kind::MISSING, _) => Content::Missing,
        (kind::HELLO, Side::Proxy) => Content::Hello,
        (kind::PUT, _) if side.takes(place, bytes.len() as u64, window) => Content::Put { place, bytes },
        (kind::CLEAR, Side::Node) => {
            let length = u64::read_from_bytes(bytes).ok()?;
            side.takes(place, length, window).then_some(Content::Clear { place, length })?
        }
        (kind::REQUEST, Side::Proxy) => Content::Request(channel()?, Request::read_from_bytes(bytes).ok()?),
        (kind::REPLY, Side::Node) => Content::Reply(channel()?, Reply::read_from_bytes(bytes).ok()?),
        (kind::SIGNALS, Side::Node) => Content::Signals(channel()?, u64::read_from_bytes(bytes).ok()?),
        _ => return None,
    };
    Some((head, content))
}

/// The state of one side: numbers of the frames sent and received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    next: u32,
    acked: u32,
    expected: u32,
    /// Since the last progress, frames were sent again because the other side asked for it.
    repeated: bool,
    /// The answer owed to the other side: [`kind::ACK`] or [`kind::MISSING`].
    owes: Option<u8>,
}

/// The action that a received frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: it has come before, too early, or only to tell.
    Nothing,
    /// To send all that is under way again, now.
    Repeat,
    /// To do what it says, since it is the next, and then to [`Flow::take`] it; if that cannot be now, it comes again.
    Next,
}

impl Flow {
    /// Nothing has gone or come.
    pub const fn new() -> Self {
        Self { next: 0, acked: 0, expected: 0, repeated: false, owes: None }
    }

    /// Returns `true` if one more frame may be sent.
    pub fn has_room(&self) -> bool {
        self.in_flight() < FLIGHT
    }

    /// Frames of which it is not known that they have come.
    pub fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.acked)
    }

    /// Number of the oldest of these.
    pub fn oldest(&self) -> u32 {
        self.acked
    }

    /// Number for the next frame, which goes.
    pub fn number(&mut self) -> u32 {
        let seq = self.next;
        self.next = seq.wrapping_add(1);
        seq
    }

    /// A frame to be sent for nothing but to tell what has come, if another has not told it.
    pub fn owes(&self) -> Option<u8> {
        self.owes
    }

    /// Puts what is to be told into a frame that goes.
    pub fn tell(&mut self, head: &mut Head) {
        head.ack = self.expected;
        if self.owes == Some(kind::ACK) || head.kind == kind::MISSING {
            self.owes = None;
        }
    }

    /// A frame has come; tell [`Flow::acked`] before.
    pub fn hear(&mut self, head: &Head, content: &Content<'_>) -> Heard {
        match content {
            Content::Ack => return Heard::Nothing,
            Content::Missing => return if self.missed() { Heard::Repeat } else { Heard::Nothing },
            _ if self.is_ahead(head.seq) => self.owes = Some(kind::MISSING),
            _ => self.owes = self.owes.or(Some(kind::ACK)),
        }
        if head.seq == self.expected { Heard::Next } else { Heard::Nothing }
    }

    /// Takes an acknowledgement of the other side, and returns the number of frames that need not be kept any more.
    pub fn acked(&mut self, ack: u32) -> u32 {
        let more = ack.wrapping_sub(self.acked);
        // an old one, or nonsense
        if more > self.in_flight() {
            return 0;
        }
        self.acked = ack;
        if more > 0 {
            self.repeated = false;
        }
        more
    }

    /// The other side misses a frame: whether all under way are to be sent again now. Once is enough until there is
    /// progress: each of them may be told as missing.
    fn missed(&mut self) -> bool {
        self.in_flight() > 0 && !core::mem::replace(&mut self.repeated, true)
    }

    /// Returns `true` if a frame with this number comes after one that is missing.
    fn is_ahead(&self, seq: u32) -> bool {
        (1..FLIGHT).contains(&seq.wrapping_sub(self.expected))
    }

    /// The next frame has come.
    pub fn take(&mut self) {
        self.expected = self.expected.wrapping_add(1);
    }
}

/// Memory that a call writes and that is no longer than this goes with the request too: what the call leaves
/// alone is right, then, when all of it comes back.
pub const SMALL: u64 = 1024;

/// Bytes for each that the result counts, of a call that fills its memory from the start as far as its result says.
fn counted(call: u32) -> Option<u64> {
    Some(match call {
        number::read | number::pread64 | number::readv | number::preadv | number::preadv2 => 1,
        number::recvfrom | number::getdents64 | number::getcwd => 1,
        number::readlink | number::readlinkat => 1,
        number::getxattr | number::lgetxattr | number::fgetxattr => 1,
        number::epoll_wait | number::epoll_pwait => 12,
        _ => return None,
    })
}

/// Returns `true` if the node sends the bytes of a span with its request.
pub fn before(call: u32, span: &Span) -> bool {
    span.used != Use::Write || span.length <= SMALL || counted(call).is_none()
}

/// Lengths of the spans that come back with a reply; ask in the order of [`crate::spans::each`].
#[derive(Clone, Copy, Debug)]
pub struct After {
    call: u32,
    left: u64,
}

impl After {
    /// For a call with this result.
    pub fn new(call: u32, result: i64) -> Self {
        let left = counted(call).unwrap_or(1).saturating_mul(u64::try_from(result).unwrap_or(0));
        Self { call, left }
    }

    /// Bytes of the next span that come back.
    pub fn bytes(&mut self, span: &Span) -> u64 {
        if !span.used.writes() {
            return 0;
        }
        let filled = self.left.min(span.length);
        if span.used == Use::Write {
            self.left -= filled;
        }
        if before(self.call, span) { span.length } else { filled }
    }
}

/// Bytes of a string with its zero, as far as it lies in memory; not more than a path has.
pub fn string_length(memory: &impl crate::spans::Memory, address: u64) -> u64 {
    const STEP: u64 = 64;
    let mut length = 0;
    while length < PATH {
        let at = address.saturating_add(length);
        let mut some = [0; STEP as usize];
        // what may be read ends at the end of a page, which such a step does not cross
        let step = (STEP - at % STEP).min(PATH - length);
        let some = &mut some[..step as usize];
        if memory.read(at, some).is_err() {
            return length;
        }
        if let Some(end) = some.iter().position(|&b| b == 0) {
            return length + end as u64 + 1;
        }
        length += step;
    }
    length
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::VecDeque;

    use super::*;

    const WINDOW: u64 = 16 << 20;

    fn frame(kind: u8, place: u64, bytes: &[u8]) -> Vec<u8> {
        let mut all = Head::new(kind, place, bytes.len() as u16).as_bytes().to_vec();
        all.extend(bytes);
        all
    }

    #[test]
    fn frames_are_read_as_they_were_written_even_if_the_link_pads_them() {
        let request = Request { seq: 7, call: 1, args: [1, 2, 3, 4, 5, 6], reserved: 0 };
        let mut bytes = frame(kind::REQUEST, 1, request.as_bytes());
        bytes.extend([0; 40]);
        let (head, content) = read(&bytes, Side::Proxy, WINDOW).expect("a frame");
        assert_eq!((head.kind, content), (kind::REQUEST, Content::Request(1, request)));
        assert_eq!(read(&bytes, Side::Node, WINDOW), None, "not for a node");
        assert_eq!(read(&bytes[..HEAD + 10], Side::Proxy, WINDOW), None, "cut off");
        assert_eq!(
            read(&frame(kind::REQUEST, CHANNELS as u64, request.as_bytes()), Side::Proxy, WINDOW),
            None,
            "no channel"
        );
        bytes[18] += 1;
        assert_eq!(read(&bytes, Side::Proxy, WINDOW), None, "another version");
    }

    #[test]
    fn each_side_writes_only_its_own_areas() {
        let put = |side, place: u64, length: usize| {
            read(&frame(kind::PUT, place, &vec![1; length]), side, WINDOW).is_some()
        };
        for side in [Side::Node, Side::Proxy] {
            assert!(put(side, LARGE_PAGE, 100) && put(side, WINDOW - 100, 100));
            assert!(!put(side, WINDOW - 99, 100) && !put(side, u64::MAX, 100));
            assert!(!put(side, CHANNELS_AT, 1), "rings are nobody's");
            assert!(!put(side, crate::layout::PERSONALITY_AT, 1), "the daemon writes the record");
            assert!(!put(side, LARGE_PAGE - 1, 2));
        }
        assert!(put(Side::Node, crate::layout::JOB_AT, 100) && !put(Side::Proxy, crate::layout::JOB_AT, 100));
        assert!(put(Side::Proxy, CRASH_AT, 100) && !put(Side::Node, CRASH_AT, 100));
        assert!(put(Side::Proxy, LOG_AT, 100) && !put(Side::Node, LOG_AT, 100));
    }

    #[test]
    fn only_memory_that_a_call_fills_comes_back() {
        let span = |length, used| Span { address: 0, length, used, string: false };
        let (long, short) = (span(5000, Use::Write), span(100, Use::Write));
        assert!(!before(number::read, &long) && before(number::read, &short) && before(number::stat, &long));
        let mut after = After::new(number::readv, 5110);
        assert_eq!([short, long, long].map(|s| after.bytes(&s)), [100, 5000, 10]);
        let mut after = After::new(number::read, -14);
        assert_eq!(after.bytes(&long), 0);
        assert_eq!(After::new(number::epoll_wait, 100).bytes(&long), 1200);
        assert_eq!(After::new(number::write, 100).bytes(&span(100, Use::Read)), 0);
        assert_eq!(After::new(number::poll, -4).bytes(&span(100, Use::Both)), 100);
    }

    proptest! {
        /// Whatever comes is refused, or is in its bounds.
        #[test]
        fn any_bytes_are_refused_or_in_bounds(
            kind in 0u8..9,
            place in prop_oneof![0..WINDOW + 100, 0..3u64, any::<u64>()],
            length in any::<u16>(),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            damage in prop::option::of((0..HEAD, any::<u8>())),
        ) {
            let mut frame = frame(kind, place, &bytes);
            if length % 4 == 0 {
                frame[20..22].copy_from_slice(&length.to_le_bytes());
            }
            if let Some((at, byte)) = damage {
                frame[at] = byte;
            }
            for side in [Side::Node, Side::Proxy] {
                match read(&frame, side, WINDOW) {
                    Some((_, Content::Put { place, bytes })) => {
                        prop_assert!(place + bytes.len() as u64 <= WINDOW && bytes.len() <= frame.len() - HEAD);
                    }
                    Some((_, Content::Clear { place, length })) => prop_assert!(place + length <= WINDOW),
                    Some((_, Content::Request(c, _) | Content::Reply(c, _) | Content::Signals(c, _))) => {
                        prop_assert!(c < CHANNELS);
                    }
                    _ => {}
                }
            }
        }

        /// Over a link that loses, doubles and reorders, all frames come, once and in order.
        #[test]
        fn frames_arrive_in_order(
            start in prop_oneof![Just(0u32), (u32::MAX - 40)..u32::MAX],
            count in 1u32..60,
            fate in prop::collection::vec(0u8..6, 400),
        ) {
            let flow = || Flow { next: start, acked: start, expected: start, ..Flow::new() };
            let (mut sender, mut receiver) = (flow(), flow());
            let mut fate = fate.into_iter().cycle();
            let (mut link, mut acks) = (VecDeque::new(), VecDeque::new());
            let (mut sent, mut got) = (0, Vec::new());
            for turn in 0.. {
                prop_assert!(turn < 100_000, "it ends");
                while sent < count && sender.has_room() {
                    link.push_back(sender.number());
                    sent += 1;
                }
                if link.is_empty() && acks.is_empty() {
                    // the time is up: all again
                    link.extend((0..sender.in_flight()).map(|n| sender.oldest().wrapping_add(n)));
                }
                if let Some(seq) = link.pop_front() {
                    match fate.next() {
                        Some(0) => {}
                        Some(1) => link.extend([seq, seq]),
                        _ => {
                            let head = Head { seq, ..Head::new(kind::HELLO, 0, 0) };
                            if receiver.hear(&head, &Content::Hello) == Heard::Next {
                                receiver.take();
                                got.push(seq);
                            }
                            let mut told = Head::new(receiver.owes().expect("each frame is told"), 0, 0);
                            receiver.tell(&mut told);
                            acks.push_back(told);
                        }
                    }
                }
                if let Some(ack) = acks.pop_front() {
                    match fate.next() {
                        Some(0) => {}
                        Some(1) => acks.push_back(ack),
                        _ => {
                            sender.acked(ack.ack);
                            let missing = ack.kind == kind::MISSING;
                            let content = if missing { Content::Missing } else { Content::Ack };
                            if sender.hear(&ack, &content) == Heard::Repeat {
                                link.extend((0..sender.in_flight()).map(|n| sender.oldest().wrapping_add(n)));
                            }
                        }
                    }
                }
                prop_assert!(sender.in_flight() <= FLIGHT);
                if sent == count && sender.in_flight() == 0 {
                    break;
                }
            }
            let expected: Vec<u32> = (0..count).map(|n| start.wrapping_add(n)).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
