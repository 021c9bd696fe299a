// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events to come: a monotone radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the
//! shortest path problem", JACM 1990) over windows of time.

/// Something that happens on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) time_ns: u64,
    pub(super) rank: u32,
    pub(super) happening: Packed,
}

/// An event: its kind and a number in one word. Kinds at one instant happen in the order of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packed(u32);

/// [`Packed`], unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// All that operation requires is done.
    Ready(u32),
    /// One of the requirements of a join is met.
    Met(u32),
    /// The one message of a receive arrives: number of the receive.
    Arrival(u32),
    /// A message arrives: number of its send among the operations of all ranks.
    Letter(u32),
    /// The receive of a rendezvous send has begun.
    Released(u32),
    /// A CPU or an interface is free for happening waits for it.
    Free,
}

impl Packed {
    /// Of an operation's number on its rank, or a join's.
    const BITS: u32 = 29;
    /// A message may have a number of one bit more.
    const LETTER: u32 = 0b010;

    pub(super) const fn new(h: Happening) -> Self {
        let (kind, number) = match h {
            Happening::Arrival(n) => (0b000, n),
            Happening::Letter(n) => (Self::LETTER, n),
            Happening::Released(n) => (0b100, n),
            Happening::Free => (0b101, 0),
            Happening::Ready(n) => (0b110, n),
            Happening::Met(n) => (0b111, n),
        };
        Self(kind << Self::BITS | number)
    }

    pub(super) const fn happening(self) -> Happening {
        let number = self.0 & ((1 << Self::BITS) - 1);
        match self.0 >> Self::BITS {
            0b000 | 0b001 => Happening::Arrival(number),
            0b010 | 0b011 => Happening::Letter(self.0 & !(Self::LETTER << Self::BITS)),
            0b100 => Happening::Released(number),
            0b101 => Happening::Free,
            0b110 => Happening::Ready(number),
            _ => Happening::Met(number),
        }
    }
}

impl Event {
    /// Order of events in a window: rank by rank, each in the order of time.
    pub(super) const fn key(&self) -> u128 {
        (self.rank as u128) << 96 | (self.time_ns as u128) << 32 | self.happening.0 as u128
    }

    /// Order of the events of one rank.
    pub(super) const fn order(&self) -> u128 {
        (self.time_ns as u128) << 32 | self.happening.0 as u128
    }

    /// The event with that key.
    pub(super) const fn of_key(key: u128) -> Self {
        Self { time_ns: (key >> 32) as u64, rank: (key >> 96) as u32, happening: Packed(key as u32) }
    }
}

/// Events beyond the window under way.
///
/// Bucket *k* has those whose window differs from the one under way in bit *k* and no higher one: an event
/// moves to a lower bucket a few times, and no event is compared with another.
#[derive(Debug)]
pub(super) struct Queue {
    shift: u32,
    window: u64,
    buckets: Vec<Vec<Event>>,
    /// Room of buckets that were emptied.
    spare: Vec<Vec<Event>>,
}

impl Queue {
    /// Windows of 2^`shift` ns; the one under way has `now_ns`.
    pub(super) fn new(shift: u32, now_ns: u64) -> Self {
        Self { shift, window: now_ns >> shift, buckets: vec![Vec::new(); 64], spare: Vec::new() }
    }

    /// True if an event at that time is in the current window, which the queue does not hold.
    pub(super) const fn is_now(&self, time_ns: u64) -> bool {
        time_ns >> self.shift == self.window
    }

    pub(super) fn push(&mut self, event: Event) {
        let differ = (event.time_ns >> self.shift) ^ self.window;
        let bucket = &mut self.buckets[differ.ilog2() as usize];
        if bucket.capacity() == 0 {
            *bucket = self.spare.pop().unwrap_or_default();
        }
        bucket.push(event);
    }

    /// Goes on to the next window that has events, and puts them into `batch`; `false`: there is none.
    pub(super) fn next_window(&mut self, batch: &mut Vec<Event>) -> bool {
        batch.clear();
        let Some(bucket) = self.buckets.iter().position(|b| !b.is_empty()) else { return false };
        let mut events = std::mem::take(&mut self.buckets[bucket]);
        self.window = events.iter().map(|e| e.time_ns >> self.shift).min().unwrap_or(self.window);
        // often all of them are at one time, as in a program without noise
        if bucket == 0 || events.iter().all(|e| self.is_now(e.time_ns)) {
            std::mem::swap(batch, &mut events);
        } else {
            for &event in &events {
                if self.is_now(event.time_ns) { batch.push(event) } else { self.push(event) }
            }
        }
        events.clear();
        if events.capacity() > 0 {
            self.spare.push(events);
        }
        true
    }
}

/// Sorts the events of a window.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// The place at which the events of each rank begin, then the place for its next event.
    begin: Vec<u32>,
    end: Vec<u32>,
}

impl Sorter {
    /// Below this many events for each eighth of the ranks, comparing is faster than counting.
    const FEW: usize = 8;

    /// By rank, and on each rank by time and kind.
    pub(super) fn sort(&mut self, events: &mut [Event], ranks: usize) {
        if events.len() < 64 || events.len() * Self::FEW < ranks {
            events.sort_unstable_by_key(Event::key);
            return;
        }
        if events.is_sorted_by_key(Event::key) {
            return;
        }
        self.by_rank(events, ranks);
        for of_rank in events.chunk_by_mut(|a, b| a.rank == b.rank) {
            if of_rank.len() > 1 {
                of_rank.sort_unstable_by_key(Event::order);
            }
        }
    }

    /// Counts the events of each rank, and swaps each to its rank's place.
    fn by_rank(&mut self, events: &mut [Event], ranks: usize) {
        self.end.clear();
        self.end.resize(ranks, 0);
        events.iter().for_each(|e| self.end[e.rank as usize] += 1);
        self.begin.clear();
        let mut sum = 0;
        for end in &mut self.end {
            self.begin.push(sum);
            sum += *end;
            *end = sum;
        }
        for rank in 0..ranks {
            while self.begin[rank] < self.end[rank] {
                let here = self.begin[rank] as usize;
                let home = events[here].rank as usize;
                if home != rank {
                    events.swap(here, self.begin[home] as usize);
                }
                self.begin[home] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_are_packed_and_unpacked() {
        for n in [0, 1, (1 << 29) - 1] {
            for h in [
                Happening::Ready(n),
                Happening::Met(n),
                Happening::Arrival(n),
                Happening::Letter(n),
                Happening::Released(n),
                Happening::Free,
            ] {
                let e = Event { time_ns: u64::MAX - 5, rank: u32::MAX, happening: Packed::new(h) };
                assert_eq!((e.happening.happening(), Event::of_key(e.key())), (h, e));
            }
        }
        let last = Happening::Letter((1 << 30) - 1);
        assert_eq!(Packed::new(last).happening(), last);
    }

    proptest! {
        #[test]
        fn a_window_is_sorted_by_counting_as_by_comparing(
            events in prop::collection::vec((0u64..4, 0u32..40, 0u32..6), 0..300),
        ) {
            let event = |(time_ns, rank, n)| Event { time_ns, rank, happening: Packed::new(Happening::Ready(n)) };
            let mut events: Vec<Event> = events.into_iter().map(event).collect();
            let mut compared = events.clone();
            compared.sort_unstable_by_key(Event::key);
            Sorter::default().sort(&mut events, 40);
            prop_assert_eq!(events, compared);
        }

        #[test]
        fn windows_come_in_order_and_lose_nothing(
            shift in 0u32..12,
            steps in prop::collection::vec((0u64..1 << 40, 0u32..64), 1..200),
        ) {
            let mut queue = Queue::new(shift, 7);
            let happening = Packed::new(Happening::Ready(0));
            let (mut last, mut got, mut batch) = (7u64 >> shift, 0, Vec::new());
            let mut left = steps.iter();
            loop {
                for &(far, by) in left.by_ref().take(3) {
                    let time_ns = ((last + 1) << shift) + (far >> by);
                    queue.push(Event { time_ns, rank: 0, happening });
                }
                if !queue.next_window(&mut batch) {
                    break;
                }
                let window = batch[0].time_ns >> shift;
                prop_assert!(window > last);
                prop_assert!(batch.iter().all(|e| e.time_ns >> shift == window));
                (last, got) = (window, got + batch.len());
            }
            prop_assert_eq!(got, steps.len());
        }
    }
}
