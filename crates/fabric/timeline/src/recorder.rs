// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder of one PE: a ring that only the PE's own thread touches.

use colony_time::tsc::{Counter, CounterKind, Tsc, Vdso};

use crate::record::{Event, MAX_PES, MessageId, Migration, NO_CPU, Record};

/// An instant: a reading of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

/// Clock that a recorder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Tsc,
    Vdso,
}

/// A place of the ring: two in a cache line, none across the border of one.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Slot(Record);

/// Records the events of one PE. A recorder belongs to the PE's thread, allocates only when it is made, and makes no system call.
///
/// The ring keeps the newest events; older ones are dropped and counted. An event costs a reading of the counter and a store of
/// 32 bytes. A method that ends an interval returns the instant of its end, which is the begin of the next one, so a scheduler
/// needs one reading for each interval. Every method of a recorder that is off costs one branch.
///
/// ```
/// # use colony_timeline::{MessageId, Recorder};
/// # let mut recorder = Recorder::off();
/// # let (ghost, message, bytes) = (0, MessageId::NONE, 0);
/// let begin = recorder.now();
/// // … the entry method runs …
/// let end = recorder.executed(begin, ghost, message, bytes);
/// // … the scheduler finds nothing to do …
/// let end = recorder.idle(end);
/// ```
#[derive(Debug)]
pub struct Recorder {
    mode: Mode,
    cpu: u16,
    pe: u32,
    /// Length is a power of two; at least one record.
    ring: Box<[Slot]>,
    /// Events recorded so far; the newest is at `(recorded - 1) % ring.len()`.
    recorded: u64,
    messages: u64,
    begin: Stamp,
}

impl Recorder {
    /// A recorder that records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            mode: Mode::Off,
            cpu: NO_CPU,
            pe: MAX_PES,
            ring: Box::new([Slot(Record::BLANK)]),
            recorded: 0,
            messages: 0,
            begin: Stamp(0),
        }
    }

    /// The recorder of PE `pe` with room for `events` events (the next power of two). The ring's memory is touched here: call it on
    /// the PE's thread, after the thread is pinned, so that the memory is near.
    pub(crate) fn new(kind: CounterKind, pe: u32, events: usize) -> Self {
        let mode = match kind {
            CounterKind::Tsc => Mode::Tsc,
            CounterKind::Vdso => Mode::Vdso,
        };
        let ring = vec![Slot(Record::BLANK); events.max(1).next_power_of_two()].into_boxed_slice();
        let mut recorder = Self { mode, cpu: NO_CPU, pe, ring, recorded: 0, messages: 0, begin: Stamp(0) };
        recorder.look_at_cpu();
        recorder.begin = recorder.now();
        recorder
    }

    /// Returns `true` if events are recorded.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// The PE.
    #[must_use]
    pub fn pe(&self) -> u32 {
        self.pe
    }

    /// This instant; a recorder that is off does not read the counter.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Stamp {
        match self.mode {
            Mode::Tsc => Stamp(Tsc::read()),
            Mode::Off => Stamp(0),
            Mode::Vdso => Stamp(Vdso::read()),
        }
    }

    /// Asks the kernel on which CPU the thread runs (`getcpu`; no system call, some nanoseconds). The events from here on carry this CPU. Call it
    /// when the thread has been pinned; a thread that is not pinned calls it once for each pass of its scheduler.
    #[inline]
    pub fn look_at_cpu(&mut self) {
        if self.is_on() {
            // SAFETY: the call takes no pointer and has no precondition.
            let cpu = unsafe { libc::sched_getcpu() };
            self.cpu = u16::try_from(cpu).unwrap_or(NO_CPU);
        }
    }

    /// A new message of this PE, to be carried by the message; [`MessageId::NONE`] if the recorder is off.
    #[inline(always)]
    pub fn next_message(&mut self) -> MessageId {
        if !self.is_on() {
            return MessageId::NONE;
        }
        self.messages += 1;
        MessageId::new(self.pe, self.messages)
    }

    /// An entry method that began at `begin` has ended: returns the end.
    #[inline(always)]
    pub fn executed(&mut self, begin: Stamp, entry: u16, message: MessageId, bytes: u32) -> Stamp {
        self.interval(begin, Event::Executed { entry, message, bytes })
    }

    /// A message leaves for PE `to` ([`ALL_PES`](crate::ALL_PES): a broadcast), to start `entry` there.
    #[inline(always)]
    pub fn sent(&mut self, message: MessageId, to: u32, entry: u16, bytes: u32) {
        self.instant(Event::Sent { entry, message, to, bytes });
    }

    /// The PE had nothing to do since `begin`: returns the end. Consecutive idle intervals become one, so a scheduler that polls
    /// does not fill the ring.
    #[inline(always)]
    pub fn idle(&mut self, begin: Stamp) -> Stamp {
        let end = self.now();
        if self.is_on() {
            let last = self.place(self.recorded.wrapping_sub(1));
            if self.recorded == 0 || !self.ring[last].0.extend_idle(begin.0, end.0, self.cpu) {
                self.push(Record::new(begin.0, end.0.saturating_sub(begin.0), self.cpu, Event::Idle));
            }
        }
        end
    }

    /// The runtime worked since `begin`: returns the end. Time that no event covers counts as overhead anyway; this names it.
    #[inline(always)]
    pub fn overhead(&mut self, begin: Stamp) -> Stamp {
        self.interval(begin, Event::Overhead)
    }

    /// Load balancing took the PE since `begin`: returns the end.
    #[inline(always)]
    pub fn balanced(&mut self, begin: Stamp) -> Stamp {
        self.interval(begin, Event::Balancing)
    }

    /// An object left this PE.
    #[inline]
    pub fn migrated_out(&mut self, object: Migration) {
        self.instant(Event::MigratedOut(object));
    }

    /// An object arrived on this PE.
    #[inline]
    pub fn migrated_in(&mut self, object: Migration) {
        self.instant(Event::MigratedIn(object));
    }

    /// An event of the program, with a value.
    #[inline]
    pub fn user(&mut self, event: u16, value: u64) {
        self.instant(Event::User { event, value });
    }

    /// An interval of the program that began at `begin`, with a value: returns the end.
    #[inline]
    pub fn user_interval(&mut self, begin: Stamp, event: u16, value: u64) -> Stamp {
        self.interval(begin, Event::User { event, value })
    }

    #[inline(always)]
    fn interval(&mut self, begin: Stamp, event: Event) -> Stamp {
        let end = self.now();
        if self.is_on() {
            self.push(Record::new(begin.0, end.0.saturating_sub(begin.0), self.cpu, event));
        }
        end
    }

    #[inline(always)]
    fn instant(&mut self, event: Event) {
        let at = self.now();
        if self.is_on() {
            self.push(Record::new(at.0, 0, self.cpu, event));
        }
    }

    #[inline(always)]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    #[inline(always)]
    fn push(&mut self, record: Record) {
        let place = self.place(self.recorded);
        self.ring[place] = Slot(record);
        self.recorded += 1;
    }

    /// Events that the ring had no room to keep.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.recorded.saturating_sub(self.ring.len() as u64)
    }

    /// The PE's begin, the events kept, oldest first, and the number of those dropped; begins and lengths are in counts.
    pub(crate) fn into_records(self) -> (u64, Vec<Record>, u64) {
        let dropped = self.dropped();
        let records = (dropped..self.recorded).map(|number| self.ring[self.place(number)].0).collect();
        (self.begin.0, records, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(events: usize) -> Recorder {
        Recorder::new(CounterKind::best(), 3, events)
    }

    fn events(recorder: Recorder) -> Vec<Event> {
        recorder.into_records().1.iter().map(|r| r.event().expect("known")).collect()
    }

    #[test]
    fn the_newest_events_are_kept_in_order_and_the_others_counted() {
        for (room, n) in [(8, 0u64), (8, 1), (8, 7), (8, 8), (8, 9), (8, 1003), (1, 5)] {
            let mut r = recorder(room);
            (0..n).for_each(|value| r.user(0, value));
            let kept = n.min(room as u64);
            assert_eq!(r.dropped(), n - kept);
            let want: Vec<_> = (n - kept..n).map(|value| Event::User { event: 0, value }).collect();
            assert_eq!(events(r), want);
        }
    }

    #[test]
    fn an_interval_begins_where_the_one_before_ended() {
        let mut r = recorder(8);
        let begin = r.now();
        let end = r.executed(begin, 7, MessageId::new(1, 2), 64);
        let end = r.overhead(end);
        let last = r.balanced(end);
        let (first, records, _) = r.into_records();
        assert!(first <= begin.0 && begin <= end && end <= last);
        let ends: Vec<u64> = records.iter().map(|r| r.begin() + r.duration()).collect();
        assert_eq!((records[1].begin(), records[2].begin()), (ends[0], ends[1]));
        assert_eq!(ends[2], last.0);
    }

    #[test]
    fn a_poll_that_finds_nothing_again_makes_no_new_event() {
        let mut r = recorder(8);
        let begin = r.now();
        let mut end = begin;
        (0..1000).for_each(|_| end = r.idle(end));
        r.user(1, 1);
        r.idle(end);
        let apart = r.now();
        r.idle(apart);
        let (_, records, dropped) = r.into_records();
        assert_eq!((records.len(), dropped), (4, 0));
        assert_eq!((records[0].begin(), records[0].duration()), (begin.0, end.0 - begin.0));
    }

    #[test]
    fn a_recorder_that_is_off_records_nothing() {
        let mut r = Recorder::off();
        let begin = r.now();
        let message = r.next_message();
        assert_eq!(message, MessageId::NONE);
        r.sent(message, 1, 2, 3);
        let end = r.executed(begin, 1, message, 2);
        r.idle(end);
        r.look_at_cpu();
        assert_eq!((r.dropped(), events(r)), (0, vec![]));
    }

    #[test]
    fn messages_are_numbered_by_their_sender() {
        let mut r = recorder(4);
        let (a, b) = (r.next_message(), r.next_message());
        assert!(a != b && a.source() == Some(3) && b.source() == Some(3));
    }
}
