//! The table of tasks the agent's threads switch from, without locks.
//!
//! Each slot holds a task, the thread it is at home with, and the last edge it was switched for. Whoever
//! replaces that edge by a newer one does the switch: so each task is switched exactly once per edge,
//! whichever thread comes first.
//!
//! Tasks go by their numbers here. A number comes round again only after all others have been used, which
//! takes seconds of nothing but forking; the scanner sees a task end long before.

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use colony_node::class::{self, Class};
use colony_time::{WindowKind, Windows};

use super::RegularClass;

/// A window, named by its beginning: what a task's class was last set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// No window: nothing was set yet.
    const NONE: Self = Self(0);

    /// The window that `tai_ns` lies in.
    pub(super) const fn at(windows: &Windows, tai_ns: i64) -> Self {
        let phase = windows.phase(tai_ns);
        let favored = phase < windows.favored_ns();
        let since = if favored { phase } else { phase - windows.favored_ns() };
        Self::opening(tai_ns.saturating_sub_unsigned(since), favored)
    }

    /// The window that opens at `tai_ns`. TAI has been positive and below 2^62 since 1970, until 2116.
    const fn opening(tai_ns: i64, favored: bool) -> Self {
        Self((tai_ns as u64) << 1 | favored as u64)
    }

    const fn kind(self) -> WindowKind {
        if self.0 & 1 == 1 { WindowKind::Favored } else { WindowKind::Regular }
    }
}

#[derive(Debug, Default)]
struct Slot {
    /// The task; 0 in a free slot.
    tid: AtomicI32,
    /// The thread (by position) that switches it.
    home: AtomicUsize,
    /// Its own class, packed.
    own: AtomicU64,
    /// The [`Mark`] it was last switched for.
    mark: AtomicU64,
}

/// What switching a set of tasks came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Switched {
    /// Tasks switched.
    pub(super) done: u64,
    /// Tasks the kernel refused to switch; those that ended do not count.
    pub(super) failed: u64,
    /// The last reason, an `errno`.
    pub(super) errno: i32,
}

impl Switched {
    fn note(&mut self, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.done += 1,
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => {
                self.failed += 1;
                self.errno = e.raw_os_error().unwrap_or(libc::EOPNOTSUPP);
            }
        }
    }
}

/// The tasks of the job as the agent's threads see them.
#[derive(Debug)]
pub(super) struct Table {
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    high: AtomicUsize,
    favored: Class,
    regular: RegularClass,
}

impl Table {
    /// Tasks there is room for: 16 for each CPU of a node with 1024.
    pub(super) const CAPACITY: usize = 16 * 1024;

    pub(super) fn new(favored_priority: u8, regular: RegularClass) -> Self {
        Self {
            slots: std::iter::repeat_with(Slot::default).take(Self::CAPACITY).collect(),
            high: AtomicUsize::new(0),
            favored: Class::Fifo(favored_priority),
            regular,
        }
    }

    /// Fills slot `index`, which must not have been freed since the last scan: a thread may still hold the
    /// number of the task that was there.
    pub(super) fn fill(&self, index: usize, tid: i32, own: Class, home: usize) {
        let Some(slot) = self.slots.get(index) else { return };
        slot.mark.store(Mark::NONE.0, Ordering::Relaxed);
        slot.own.store(pack(own), Ordering::Relaxed);
        slot.home.store(home, Ordering::Relaxed);
        slot.tid.store(tid, Ordering::Release);
        self.high.fetch_max(index + 1, Ordering::Release);
    }

    /// Frees slot `index`.
    pub(super) fn free(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            slot.tid.store(0, Ordering::Release);
        }
    }

    /// Gives slot `index` another home.
    pub(super) fn set_home(&self, index: usize, home: usize) {
        if let Some(slot) = self.slots.get(index) {
            slot.home.store(home, Ordering::Relaxed);
        }
    }

    fn used(&self) -> impl Iterator<Item = (&Slot, i32)> {
        self.slots[..self.high.load(Ordering::Acquire)]
            .iter()
            .map(|s| (s, s.tid.load(Ordering::Acquire)))
            .filter(|&(_, tid)| tid != 0)
    }

    /// Switches the tasks at home with thread `home` for `mark`, those not yet switched for it. For
    /// real-time threads: takes no lock, allocates nothing.
    pub(super) fn switch(&self, home: usize, mark: Mark) -> Switched {
        let mut switched = Switched::default();
        for (slot, tid) in self.used() {
            if slot.home.load(Ordering::Relaxed) == home && slot.mark.swap(mark.0, Ordering::AcqRel) != mark.0
            {
                switched.note(self.set(slot, tid, mark));
            }
        }
        switched
    }

    /// Whether every task is as `now` wants it.
    pub(super) fn is_settled(&self, now: Mark) -> bool {
        self.used().all(|(slot, _)| slot.mark.load(Ordering::Acquire) == now.0)
    }

    /// Switches every task that is not as `now` wants it: tasks that just joined, and those that changed
    /// homes while an edge passed. For the scanner, beside the threads.
    pub(super) fn settle(&self, now: impl Fn() -> Mark) -> Switched {
        let mut switched = Switched::default();
        for (slot, tid) in self.used() {
            let wanted = now();
            let had = slot.mark.load(Ordering::Acquire);
            let claimed = had != wanted.0
                && slot.mark.compare_exchange(had, wanted.0, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if !claimed {
                continue;
            }
            switched.note(self.set(slot, tid, wanted));
            // A thread may have switched for a newer edge between the claim and the setting, which then
            // undid it: what the slot says is what holds.
            let mut set_for = wanted.0;
            loop {
                let newest = slot.mark.load(Ordering::Acquire);
                if newest == set_for {
                    break;
                }
                // counted by the thread that claimed it; an error comes back at the next edge
                let _ = self.set(slot, tid, Mark(newest));
                set_for = newest;
            }
        }
        switched
    }

    fn set(&self, slot: &Slot, tid: i32, mark: Mark) -> std::io::Result<()> {
        match (mark.kind(), self.regular) {
            // a child must not keep SCHED_FIFO by accident: it joins by the next scan
            (WindowKind::Favored, _) => class::switch(tid, self.favored, false),
            (WindowKind::Regular, RegularClass::Idle) => put_back(tid, Class::Idle),
            (WindowKind::Regular, RegularClass::Own) => {
                put_back(tid, unpack(slot.own.load(Ordering::Relaxed)))
            }
        }
    }
}

/// Whether a task of this class can be given it again: a deadline task cannot, so it is left alone.
pub(crate) fn can_be_put_back(own: Class) -> bool {
    const EXT: u32 = 7;
    !matches!(own, Class::Foreign(policy) if policy != EXT)
}

/// Puts a task into a class its children inherit or, without the privilege to lift the reset on fork, one
/// they start without.
pub(crate) fn put_back(tid: i32, class: Class) -> std::io::Result<()> {
    class::switch(tid, class, true).or_else(|_| class::switch(tid, class, false))
}

const fn pack(class: Class) -> u64 {
    let (kind, value) = match class {
        Class::Other(nice) => (0, nice as u8 as u32),
        Class::Batch(nice) => (1, nice as u8 as u32),
        Class::Idle => (2, 0),
        Class::Fifo(priority) => (3, priority as u32),
        Class::RoundRobin(priority) => (4, priority as u32),
        Class::Foreign(policy) => (5, policy),
    };
    (kind as u64) << 32 | value as u64
}

const fn unpack(packed: u64) -> Class {
    let value = packed as u32;
    match packed >> 32 {
        0 => Class::Other(value as u8 as i8),
        1 => Class::Batch(value as u8 as i8),
        2 => Class::Idle,
        3 => Class::Fifo(value as u8),
        4 => Class::RoundRobin(value as u8),
        _ => Class::Foreign(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_time::DutyCycle;
    use proptest::prelude::*;

    #[test]
    fn every_class_survives_packing() {
        let classes = [
            Class::Other(-20),
            Class::Other(19),
            Class::Batch(-3),
            Class::Idle,
            Class::Fifo(99),
            Class::RoundRobin(1),
            Class::Foreign(u32::MAX),
        ];
        for class in classes {
            assert_eq!(unpack(pack(class)), class);
        }
    }

    #[test]
    fn a_task_is_switched_once_for_an_edge_whoever_comes_first() {
        let own = nix::unistd::gettid().as_raw();
        let table = Table::new(50, RegularClass::Own);
        let class = class::get(0).expect("self");
        table.fill(0, own, class, 1);
        table.fill(1, i32::MAX, class, 1);
        let mark = Mark::opening(1_000, false);
        assert_eq!(table.switch(0, mark), Switched::default(), "at home elsewhere");
        let first = table.switch(1, mark);
        assert_eq!((first.done, first.failed), (1, 0), "a task that is gone is no failure");
        assert_eq!(table.switch(1, mark), Switched::default());
        assert_eq!(table.settle(|| mark), Switched::default());
        let next = Mark::opening(3_000, false);
        assert_eq!(table.settle(|| next).done, 1, "the scanner does what no thread has done");
        assert_eq!(table.switch(1, next).done, 0);
        table.free(0);
        assert_eq!(table.switch(1, Mark::opening(5_000, false)), Switched::default());
        assert_eq!(class::get(0).expect("self"), class);
    }

    proptest! {
        #[test]
        fn a_window_has_one_name(t in 0i64..1 << 61, period in 2u64..10_000_000_000, share in 0.0..1.0f64) {
            let favored = ((period as f64 * share) as u64).clamp(1, period - 1);
            let w = Windows::new(period, DutyCycle::Ns(favored), 0).expect("valid");
            let edge = w.next_edge(t);
            prop_assert_eq!(Mark::at(&w, edge.at_ns).kind(), edge.opens);
            prop_assert_eq!(Mark::at(&w, t).kind(), w.kind(t));
            prop_assert_eq!(Mark::at(&w, edge.at_ns - 1), Mark::at(&w, t));
            prop_assert_ne!(Mark::at(&w, edge.at_ns), Mark::at(&w, t));
        }
    }
}
