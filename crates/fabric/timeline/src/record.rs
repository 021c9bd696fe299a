// SPDX-License-Identifier: MIT OR Apache-2.0
//! One event in 32 bytes: the layout that the recorder's ring and the file share.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A CPU number that says: unknown.
pub const NO_CPU: u16 = u16::MAX;

/// A value of a user event that says: unknown.
pub const NO_VALUE: u64 = u64::MAX;

/// A PE number that says: every PE (a broadcast).
pub const ALL_PES: u32 = u32::MAX;

/// PEs that a [`MessageId`] can name.
pub const MAX_PES: u32 = (1 << 24) - 1;

/// The longest interval of a record in counts or nanoseconds; longer ones are cut (78 hours in nanoseconds).
pub const MAX_DURATION: u64 = (1 << 48) - 1;

/// A message of the whole job: the PE that sent it and the number that this PE gave it.
///
/// The message carries this number, so that its execution, on another PE, can be joined with its sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u64);

impl MessageId {
    /// No message: for executions without one, such as a timer or the start of the program.
    pub const NONE: Self = Self(u64::MAX);

    const SEQUENCE_BITS: u32 = 40;

    /// The message number `sequence` (modulo 2⁴⁰) of PE `pe` (below [`MAX_PES`]).
    #[must_use]
    pub const fn new(pe: u32, sequence: u64) -> Self {
        Self(((pe as u64) << Self::SEQUENCE_BITS) | (sequence & ((1 << Self::SEQUENCE_BITS) - 1)))
    }

    /// The PE that sent the message; `None` for [`MessageId::NONE`].
    #[must_use]
    pub const fn source(self) -> Option<u32> {
        match (self.0 >> Self::SEQUENCE_BITS) as u32 {
            MAX_PES => None,
            pe => Some(pe),
        }
    }

    /// The number that the sender gave to the message.
    #[must_use]
    pub const fn sequence(self) -> u64 {
        self.0 & ((1 << Self::SEQUENCE_BITS) - 1)
    }

    /// The number as a message carries it.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Reads [`MessageId::to_bits`]; every number is an id.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// An event of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry method ran from the event's begin to its end.
    Executed {
        /// The entry method, an index into [`Names::entries`](crate::Names::entries).
        entry: u16,
        /// The message that started it; it names the source PE.
        message: MessageId,
        /// Bytes of the message.
        bytes: u32,
    },
    /// A message was sent.
    Sent {
        /// The entry method that it will start.
        entry: u16,
        /// The message.
        message: MessageId,
        /// The PE it was sent to, as the sender knew it; [`ALL_PES`] for a broadcast.
        to: u32,
        /// Bytes of the message.
        bytes: u32,
    },
    /// The PE had no message to work on.
    Idle,
    /// The PE worked for the runtime: scheduling, packing, the network.
    Overhead,
    /// The PE took part in load balancing.
    Balancing,
    /// An object left this PE.
    MigratedOut(Migration),
    /// An object arrived on this PE.
    MigratedIn(Migration),
    /// An event of the program; an interval if its duration is not 0.
    User {
        /// The event, an index into [`Names::events`](crate::Names::events).
        event: u16,
        /// A value of the program's own; [`NO_VALUE`] if unknown.
        value: u64,
    },
}

/// A migrating object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The object's class, an index into [`Names::classes`](crate::Names::classes).
    pub class: u16,
    /// The runtime's number of the object.
    pub object: u64,
    /// The PE at the other end.
    pub peer: u32,
    /// Bytes of the packed object.
    pub bytes: u32,
}

/// An event with its instant, as analysis sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Begin: TAI nanoseconds.
    pub begin_ns: i64,
    /// Length in nanoseconds; 0 for an instant.
    pub duration_ns: u64,
    /// CPU that the PE ran on, as far as it knew; [`NO_CPU`] if unknown.
    pub cpu: u16,
    /// The event.
    pub event: Event,
}

impl Timed {
    /// The instant it ended, TAI nanoseconds (saturating).
    #[must_use]
    pub fn end_ns(&self) -> i64 {
        self.begin_ns.saturating_add_unsigned(self.duration_ns)
    }
}

/// Kinds as a record stores them.
mod kind {
    pub(super) const EXECUTED: u8 = 1;
    pub(super) const SENT: u8 = 2;
    pub(super) const IDLE: u8 = 3;
    pub(super) const OVERHEAD: u8 = 4;
    pub(super) const BALANCING: u8 = 5;
    pub(super) const MIGRATED_OUT: u8 = 6;
    pub(super) const MIGRATED_IN: u8 = 7;
    pub(super) const USER: u8 = 8;
}

/// An event in 32 bytes, little endian.
///
/// | bytes | field |
/// |---|---|
/// | 0–7 | begin: counts of the counter in the ring, TAI nanoseconds (signed) in a file |
/// | 8–9 | entry method, class or user event |
/// | 10–15 | duration, 48 bits; of an event without one (sent, migrated): the other PE |
/// | 16–23 | message, object or value |
/// | 24–27 | bytes |
/// | 28–29 | CPU |
/// | 30 | kind: 1 executed, 2 sent, 3 idle, 4 overhead, 5 balancing, 6 migrated out, 7 migrated in, 8 user event |
/// | 31 | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Record {
    begin: U64,
    /// Low 16 bits: `what`; high 48 bits: duration or PE.
    what_and_length: U64,
    subject: U64,
    bytes: U32,
    cpu: U16,
    kind: u8,
    zero: u8,
}

const _: () = assert!(size_of::<Record>() == Record::SIZE);

impl Record {
    /// Bytes of a record.
    pub const SIZE: usize = 32;

    /// Initial content of a ring; not an event.
    pub(crate) const BLANK: Self = Self {
        begin: U64::ZERO,
        what_and_length: U64::ZERO,
        subject: U64::ZERO,
        bytes: U32::ZERO,
        cpu: U16::ZERO,
        kind: u8::MAX,
        zero: 0,
    };

    /// The record of an event that began at `begin` and took `duration` (cut at [`MAX_DURATION`]).
    #[inline(always)]
    #[must_use]
    pub fn new(begin: u64, duration: u64, cpu: u16, event: Event) -> Self {
        let length = duration.min(MAX_DURATION);
        let (kind, what, length, subject, bytes) = match event {
            Event::Executed { entry, message, bytes } => {
                (kind::EXECUTED, entry, length, message.to_bits(), bytes)
            }
            Event::Sent { entry, message, to, bytes } => {
                (kind::SENT, entry, u64::from(to), message.to_bits(), bytes)
            }
            Event::Idle => (kind::IDLE, 0, length, 0, 0),
            Event::Overhead => (kind::OVERHEAD, 0, length, 0, 0),
            Event::Balancing => (kind::BALANCING, 0, length, 0, 0),
            Event::MigratedOut(m) => (kind::MIGRATED_OUT, m.class, u64::from(m.peer), m.object, m.bytes),
            Event::MigratedIn(m) => (kind::MIGRATED_IN, m.class, u64::from(m.peer), m.object, m.bytes),
            Event::User { event, value } => (kind::USER, event, length, value, 0),
        };
        Self {
            begin: U64::new(begin),
            what_and_length: U64::new(length << 16 | u64::from(what)),
            subject: U64::new(subject),
            bytes: U32::new(bytes),
            cpu: U16::new(cpu),
            kind,
            zero: 0,
        }
    }

    /// The event; `None` for a record of an unknown kind.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        let what = self.what_and_length.get() as u16;
        let length = self.what_and_length.get() >> 16;
        let subject = self.subject.get();
        let bytes = self.bytes.get();
        let message = MessageId::from_bits(subject);
        let migration = || Migration { class: what, object: subject, peer: length as u32, bytes };
        Some(match self.kind {
            kind::EXECUTED => Event::Executed { entry: what, message, bytes },
            kind::SENT => Event::Sent { entry: what, message, to: length as u32, bytes },
            kind::IDLE => Event::Idle,
            kind::OVERHEAD => Event::Overhead,
            kind::BALANCING => Event::Balancing,
            kind::MIGRATED_OUT => Event::MigratedOut(migration()),
            kind::MIGRATED_IN => Event::MigratedIn(migration()),
            kind::USER => Event::User { event: what, value: subject },
            _ => return None,
        })
    }

    /// Begin, in counts or in nanoseconds.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.begin.get()
    }

    /// Duration, in counts or in nanoseconds; 0 for an event that is an instant.
    #[must_use]
    pub fn duration(&self) -> u64 {
        match self.kind {
            kind::SENT | kind::MIGRATED_OUT | kind::MIGRATED_IN => 0,
            _ => self.what_and_length.get() >> 16,
        }
    }

    /// The event of a file's record, with its instant; `None` for a record of an unknown kind.
    #[must_use]
    pub fn timed(&self) -> Option<Timed> {
        let event = self.event()?;
        let begin_ns = self.begin() as i64;
        Some(Timed { begin_ns, duration_ns: self.duration(), cpu: self.cpu.get(), event })
    }

    /// Puts the event's time in nanoseconds in the place of counts.
    pub(crate) fn set_time(&mut self, begin_ns: i64, duration_ns: u64) {
        self.begin = U64::new(begin_ns as u64);
        if !matches!(self.kind, kind::SENT | kind::MIGRATED_OUT | kind::MIGRATED_IN) {
            let what = self.what_and_length.get() & 0xffff;
            self.what_and_length = U64::new(duration_ns.min(MAX_DURATION) << 16 | what);
        }
    }

    /// Makes the interval longer, up to `end`, if this is an idle interval on `cpu` that ended at `begin`.
    #[inline(always)]
    pub(crate) fn extend_idle(&mut self, begin: u64, end: u64, cpu: u16) -> bool {
        let ended = self.begin.get().wrapping_add(self.what_and_length.get() >> 16);
        let extends = self.kind == kind::IDLE && ended == begin && self.cpu.get() == cpu;
        if extends {
            let length = end.saturating_sub(self.begin.get()).min(MAX_DURATION);
            self.what_and_length = U64::new(length << 16);
        }
        extends
    }
}

impl From<Timed> for Record {
    fn from(t: Timed) -> Self {
        Self::new(t.begin_ns as u64, t.duration_ns, t.cpu, t.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::any_event;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    #[test]
    fn the_layout_is_the_documented_one() {
        let event = Event::Executed { entry: 0x0102, message: MessageId::new(3, 4), bytes: 5 };
        let bytes = Record::new(6, 7, 8, event);
        let b = bytes.as_bytes();
        assert_eq!(b[..8], 6u64.to_le_bytes());
        assert_eq!(b[8..10], [2, 1]);
        assert_eq!(b[10..16], [7, 0, 0, 0, 0, 0]);
        assert_eq!(b[16..24], (3u64 << 40 | 4).to_le_bytes());
        assert_eq!(b[24..28], 5u32.to_le_bytes());
        assert_eq!((b[28], b[29], b[30], b[31]), (8, 0, 1, 0));
    }

    proptest! {
        #[test]
        fn every_event_survives_its_record(event in any_event(), begin: u64, cpu: u16, duration in 0..=MAX_DURATION) {
            let record = Record::new(begin, duration, cpu, event);
            prop_assert_eq!(record.event(), Some(event));
            prop_assert_eq!(record.begin(), begin);
            let instant = matches!(event, Event::Sent { .. } | Event::MigratedIn(_) | Event::MigratedOut(_));
            prop_assert_eq!(record.duration(), if instant { 0 } else { duration });
            let timed = record.timed().expect("a known kind");
            prop_assert_eq!(Record::from(timed), record);
        }

        #[test]
        fn no_bytes_panic(bytes: [u8; 32]) {
            let record = Record::read_from_bytes(&bytes).expect("any 32 bytes");
            let _ = (record.timed(), record.duration());
        }

        #[test]
        fn a_message_names_its_sender(pe in 0..MAX_PES, sequence in 0u64..1 << 40) {
            let id = MessageId::new(pe, sequence);
            prop_assert_eq!((id.source(), id.sequence()), (Some(pe), sequence));
            prop_assert_eq!(MessageId::NONE.source(), None);
        }
    }
}
