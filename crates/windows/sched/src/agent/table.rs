// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of tasks the agent's threads switch from, without locks.
//!
//! Each slot holds a task, the thread it is at home with, and the last edge it was switched for. Whoever
//! replaces that edge by a newer one does the switch: so each task is switched exactly once per edge,
//! whichever thread comes first.
//!
//! Tasks go by their numbers here. A task that is not in the class it was last given is either another one that has got
//! the number of one that ended, which its start tells, or its program has chosen another class: that one is its own from
//! then on. A task is left in a class that it has chosen until the scanner has told the guardian: if the agent were killed between,
//! nobody would know of the choice.
//!
//! A task that may run on a CPU that is not the job's is not favored: it would be above everything there.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use colony_node::class::{self, Class};
use colony_node::cpu::{CpuMask, CpuSet};
use colony_node::task::TaskId;
use colony_time::{WindowKind, Windows};

use super::config::RegularClass;
use crate::restore::{is_chosen, put_back};

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
    /// Its start in clock ticks since boot.
    start: AtomicU64,
    /// Its own class, packed.
    own: AtomicU64,
    /// The class it was last given, packed; [`NOTHING`] before the first time.
    given: AtomicU64,
    /// The class it was found in instead, packed; [`NOTHING`] where there is no news for the scanner.
    chosen: AtomicU64,
    /// True if it is never favored.
    barred: AtomicBool,
    /// True if it ran, or waited for a CPU, at the last scan.
    runnable: AtomicBool,
    /// The [`Mark`] it was last switched for.
    mark: AtomicU64,
}

/// No class.
const NOTHING: u64 = u64::MAX;

/// The result of switching a set of tasks.
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
    /// Priority of favored tasks.
    favored: u8,
    regular: RegularClass,
    /// The job's CPUs.
    cpus: CpuMask,
}

impl Table {
    /// Tasks there is room for: 16 for each CPU of a node with 1024.
    pub(super) const CAPACITY: usize = 16 * 1024;

    pub(super) fn new(favored_priority: u8, regular: RegularClass, cpus: &CpuSet) -> Self {
        Self {
            slots: std::iter::repeat_with(Slot::default).take(Self::CAPACITY).collect(),
            high: AtomicUsize::new(0),
            favored: favored_priority,
            regular,
            cpus: cpus.into(),
        }
    }

    /// Fills slot `index`, which must not have been freed since the last scan: a thread may still hold the
    /// number of the task that was there.
    pub(super) fn fill(&self, index: usize, task: TaskId, own: Class, barred: bool, home: usize) {
        let Some(slot) = self.slots.get(index) else { return };
        slot.mark.store(Mark::NONE.0, Ordering::Relaxed);
        slot.own.store(pack(own), Ordering::Relaxed);
        slot.given.store(NOTHING, Ordering::Relaxed);
        slot.chosen.store(NOTHING, Ordering::Relaxed);
        slot.barred.store(barred, Ordering::Relaxed);
        slot.runnable.store(false, Ordering::Relaxed);
        slot.start.store(task.start_ticks, Ordering::Relaxed);
        slot.home.store(home, Ordering::Relaxed);
        slot.tid.store(task.tid, Ordering::Release);
        self.high.fetch_max(index + 1, Ordering::Release);
    }

    /// The class that the task of slot `index` was found in, if it was not the one last given, and this was not told
    /// before.
    pub(super) fn choice(&self, index: usize) -> Option<Class> {
        let chosen = self.slots.get(index)?.chosen.swap(NOTHING, Ordering::AcqRel);
        (chosen != NOTHING).then(|| unpack(chosen))
    }

    /// Looks which tasks are in another class than the one last given, without switching any.
    pub(super) fn look_for_choices(&self) {
        for (_, slot, tid) in self.used() {
            // a task that has ended has no choice
            let _ = self.note_choice(slot, tid);
        }
    }

    /// Has the task of slot `index` go back to `own` from now on.
    pub(super) fn set_own(&self, index: usize, own: Class) {
        if let Some(slot) = self.slots.get(index) {
            slot.own.store(pack(own), Ordering::Release);
        }
    }

    /// Returns `true` if the task of slot `index` is never favored.
    pub(super) fn is_barred(&self, index: usize) -> bool {
        self.slots.get(index).is_some_and(|slot| slot.barred.load(Ordering::Acquire))
    }

    /// Never favors the task of slot `index` again, from this moment.
    pub(super) fn bar(&self, index: usize, now: impl Fn() -> Mark) {
        let Some(slot) = self.slots.get(index) else { return };
        slot.barred.store(true, Ordering::Release);
        let tid = slot.tid.load(Ordering::Acquire);
        if tid != 0 {
            let mark = now();
            slot.mark.store(mark.0, Ordering::Release);
            // an error comes back at the next edge
            let _ = self.set(slot, tid, mark).and_then(|()| self.keep_up(slot, tid, mark));
        }
    }

    /// Returns `true` if task `tid` may run on the job's CPUs only, or has ended.
    pub(super) fn is_confined(&self, tid: i32) -> bool {
        self.cpus.confines(tid).unwrap_or(true)
    }

    /// Frees slot `index`.
    pub(super) fn free(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            slot.tid.store(0, Ordering::Release);
        }
    }

    /// Gives slot `index` another home, and says whether its task is runnable.
    pub(super) fn set_home(&self, index: usize, home: usize, runnable: bool) {
        if let Some(slot) = self.slots.get(index) {
            slot.home.store(home, Ordering::Relaxed);
            slot.runnable.store(runnable, Ordering::Relaxed);
        }
    }

    /// Slots in use, each with its index and its task.
    fn used(&self) -> impl Iterator<Item = (usize, &Slot, i32)> {
        self.slots[..self.high.load(Ordering::Acquire)]
            .iter()
            .enumerate()
            .map(|(index, slot)| (index, slot, slot.tid.load(Ordering::Acquire)))
            .filter(|&(.., tid)| tid != 0)
    }

    /// Switches the tasks at home with thread `home` for `mark`, those not yet switched for it. For
    /// real-time threads: takes no lock, and allocates only to look at a task that is not in a class it was given.
    pub(super) fn switch(&self, home: usize, mark: Mark) -> Switched {
        let mut switched = Switched::default();
        for (_, slot, tid) in self.used() {
            if slot.home.load(Ordering::Relaxed) == home && slot.mark.swap(mark.0, Ordering::AcqRel) != mark.0
            {
                switched.note(self.set(slot, tid, mark));
            }
        }
        switched
    }

    /// Returns `true` if every task is in the class that `now` demands.
    pub(super) fn is_settled(&self, now: Mark) -> bool {
        self.used().all(|(_, slot, _)| slot.mark.load(Ordering::Acquire) == now.0)
    }

    /// Switches every task that is not as `now` wants it: tasks that just joined, and those that changed
    /// homes while an edge passed. For the scanner, beside the threads.
    pub(super) fn settle(&self, now: impl Fn() -> Mark) -> Switched {
        let mut switched = Switched::default();
        for (_, slot, tid) in self.used() {
            let wanted = now();
            let had = slot.mark.load(Ordering::Acquire);
            let claimed = had != wanted.0
                && slot.mark.compare_exchange(had, wanted.0, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if !claimed {
                continue;
            }
            switched.note(self.set(slot, tid, wanted));
            // counted by the thread that claimed the newer edge; an error comes back at the next one
            let _ = self.keep_up(slot, tid, wanted);
        }
        switched
    }

    /// A thread may have switched for a newer edge between a claim of `mark` and the setting, which then undid it: what the
    /// slot says is what holds.
    fn keep_up(&self, slot: &Slot, tid: i32, mark: Mark) -> std::io::Result<()> {
        let mut set_for = mark.0;
        loop {
            let newest = slot.mark.load(Ordering::Acquire);
            if newest == set_for {
                return Ok(());
            }
            self.set(slot, tid, Mark(newest))?;
            set_for = newest;
        }
    }

    /// Returns `true` if runnable tasks at home with thread `home` have to take turns: FIFO gives the first one the CPU for the
    /// whole window.
    pub(super) fn is_crowded(&self, home: usize) -> bool {
        self.in_turn(home).nth(1).is_some()
    }

    /// Gives the next runnable task at home with thread `home` its turn, one step of priority above the others, until the
    /// next call. `turn` is the slot whose turn it is. For real-time threads, in favored windows, as [`switch`](Self::switch).
    pub(super) fn take_turns(&self, home: usize, mark: Mark, turn: &mut usize) {
        let last = *turn;
        let next = self.in_turn(home).find(|&(i, ..)| i > last).or_else(|| self.in_turn(home).next());
        let Some((index, slot, tid)) = next else { return };
        *turn = index;
        if index == last {
            return;
        }
        self.set_priority(slot, tid, mark, self.favored + 1);
        if let Some(slot) = self.slots.get(last) {
            let tid = slot.tid.load(Ordering::Acquire);
            if tid != 0 && slot.given.load(Ordering::Acquire) == pack(Class::Fifo(self.favored + 1)) {
                self.set_priority(slot, tid, mark, self.favored);
            }
        }
    }

    fn set_priority(&self, slot: &Slot, tid: i32, mark: Mark, priority: u8) {
        // what is not as it was given is for the next edge to look at
        let is_favored = class::current(tid).is_ok_and(|(now, _)| self.is_favored(now));
        if slot.mark.load(Ordering::Acquire) != mark.0 || !is_favored {
            return;
        }
        let class = Class::Fifo(priority);
        if class::switch(tid, class, false).is_ok() {
            slot.given.store(pack(class), Ordering::Release);
            // the scanner may have switched it for the next edge meanwhile
            let _ = self.keep_up(slot, tid, mark);
        }
    }

    /// Runnable favored tasks at home with thread `home`.
    fn in_turn(&self, home: usize) -> impl Iterator<Item = (usize, &Slot, i32)> {
        self.used().filter(move |(_, slot, _)| {
            slot.home.load(Ordering::Relaxed) == home
                && slot.runnable.load(Ordering::Relaxed)
                && self.is_favored(unpack(slot.given.load(Ordering::Acquire)))
        })
    }

    /// Returns `true` if tasks have this class in favored windows.
    fn is_favored(&self, class: Class) -> bool {
        matches!(class, Class::Fifo(p) if p == self.favored || p == self.favored + 1)
    }

    fn set(&self, slot: &Slot, tid: i32, mark: Mark) -> std::io::Result<()> {
        let favored = mark.kind() == WindowKind::Favored
            && !slot.barred.load(Ordering::Acquire)
            && self.cpus.confines(tid)?;
        let class = match (favored, self.regular) {
            (true, _) => Class::Fifo(self.favored),
            (false, RegularClass::Idle) => Class::Idle,
            (false, RegularClass::Own) => unpack(slot.own.load(Ordering::Acquire)),
        };
        // just before the switch: a choice between the two is lost
        if self.note_choice(slot, tid)? {
            return Ok(());
        }
        if favored {
            // a child must not keep SCHED_FIFO by accident: it joins by the next scan
            class::switch(tid, class, false)?;
        } else {
            // the own class of a task must not be inherited in its stead if that is a real-time class
            put_back(tid, class, class.is_real_time())?;
        }
        slot.given.store(pack(class), Ordering::Release);
        Ok(())
    }

    /// Looks whether a task is in a class that it was not given. Returns `true` if the task has to stay there until the scanner knows: not
    /// in a real-time class, to which it may have no right. `ESRCH` where the number is another task's.
    fn note_choice(&self, slot: &Slot, tid: i32) -> std::io::Result<bool> {
        let (now, _) = class::current(tid)?;
        let first = slot.given.load(Ordering::Acquire) == NOTHING;
        let held = self.regular == RegularClass::Idle && now == Class::Idle;
        if !first && (held || self.is_favored(now)) {
            return Ok(false);
        }
        let task = TaskId { tid, start_ticks: slot.start.load(Ordering::Relaxed) };
        if !task.lives() {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        let own = unpack(slot.own.load(Ordering::Acquire));
        // at first, a task may have a class that it has inherited from one that the agent has switched
        let is_choice = if first { is_chosen(now, own) } else { !same_but_nice(now, own) };
        if is_choice {
            slot.chosen.store(pack(now), Ordering::Release);
        }
        Ok(is_choice && matches!(now, Class::Other(_) | Class::Batch(_) | Class::Idle))
    }
}

/// Returns `true` if two classes differ in their nice values only. A program changes its nice value in whatever class it is, and gets
/// back what it has then.
fn same_but_nice(a: Class, b: Class) -> bool {
    a.with_nice(0) == b.with_nice(0)
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
    use colony_node::cpu;
    use colony_time::DutyCycle;
    use proptest::prelude::*;

    #[test]
    fn a_number_that_is_another_tasks_by_now_is_not_switched() {
        std::thread::spawn(|| {
            let task = TaskId::of(nix::unistd::gettid().as_raw()).expect("alive");
            let table = Table::new(50, RegularClass::Idle, &cpu::online().expect("linux"));
            table.fill(0, TaskId { start_ticks: task.start_ticks + 1, ..task }, Class::Other(0), false, 0);
            let before = class::get(0).expect("self");
            assert_eq!(table.switch(0, Mark::opening(1_000, false)), Switched::default());
            assert_eq!(class::get(0).expect("self"), before);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_class_the_program_chose_is_told_once() {
        std::thread::spawn(|| {
            let task = TaskId::of(nix::unistd::gettid().as_raw()).expect("alive");
            let table = Table::new(50, RegularClass::Idle, &cpu::online().expect("linux"));
            table.fill(0, task, Class::Other(0), false, 0);
            assert_eq!(table.switch(0, Mark::opening(1_000, false)).done, 1);
            table.look_for_choices();
            assert_eq!(table.choice(0), None, "it is idle, as it was given");
            class::set_nice(0, 4).expect("lower is allowed");
            class::set(0, Class::Batch(4)).expect("lower is allowed");
            table.look_for_choices();
            assert_eq!((table.choice(0), table.choice(0)), (Some(Class::Batch(4)), None));
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_task_stays_in_a_class_that_it_has_chosen_until_the_scanner_knows() {
        std::thread::spawn(|| {
            let task = TaskId::of(nix::unistd::gettid().as_raw()).expect("alive");
            let table = Table::new(50, RegularClass::Idle, &cpu::online().expect("linux"));
            table.fill(0, task, Class::Other(0), false, 0);
            // before the first window too, after its class was read
            for edge in [1_000, 3_000] {
                class::set(0, Class::Batch(0)).expect("lower is allowed");
                table.set_own(0, Class::Other(0));
                for at in [edge, edge + 1_000] {
                    table.switch(0, Mark::opening(at, false));
                    assert_eq!(class::get(0).expect("self"), Class::Batch(0), "{at}");
                }
                let chosen = table.choice(0).expect("a choice");
                assert_eq!(chosen, Class::Batch(0));
                table.set_own(0, chosen);
                table.switch(0, Mark::opening(edge + 1_500, false));
                assert_eq!(class::get(0).expect("self"), Class::Idle);
            }
        })
        .join()
        .expect("no panic");
    }

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
        let table = Table::new(50, RegularClass::Own, &cpu::online().expect("linux"));
        let class = class::get(0).expect("self");
        let task = TaskId::of(own).expect("alive");
        table.fill(0, task, class, false, 1);
        table.fill(1, TaskId { tid: i32::MAX, start_ticks: 1 }, class, false, 1);
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
