// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that wait at words of memory (futex(2)), in the order in which they came.

use heapless::Vec;

use crate::sched::THREADS;

#[derive(Clone, Copy)]
struct Waiter {
    address: u64,
    /// It is woken by wakers of one of these.
    bits: u32,
    thread: u16,
}

/// All threads of a process that wait at words.
pub struct Waiters(Vec<Waiter, THREADS>);

impl Waiters {
    /// None.
    pub const NEW: Self = Self(Vec::new());

    /// There are none any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A thread, which waits nowhere, waits at `address` for wakers of one of `bits`.
    pub fn add(&mut self, thread: usize, address: u64, bits: u32) {
        // there is a place for each thread
        let _ = self.0.push(Waiter { address, bits, thread: thread as u16 });
    }

    fn take(&mut self, so: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
        let at = self.0.iter().position(so)?;
        Some(self.0.remove(at))
    }

    /// The thread that has waited longest at `address` for one of `bits`, which waits no longer.
    pub fn wake(&mut self, address: u64, bits: u32) -> Option<usize> {
        self.take(|w| w.address == address && w.bits & bits != 0).map(|w| usize::from(w.thread))
    }

    /// A thread waits no longer; `false` if it did not.
    pub fn remove(&mut self, thread: usize) -> bool {
        self.take(|w| usize::from(w.thread) == thread).is_some()
    }

    /// At most `count` threads that wait at `from` wait at `to`, behind those that do already; how many.
    pub fn requeue(&mut self, from: u64, to: u64, count: u32) -> u32 {
        let there = self.0.iter().filter(|w| w.address == from).count();
        let moved = u32::try_from(there).unwrap_or(u32::MAX).min(count);
        for _ in 0..moved {
            if let Some(waiter) = self.take(|w| w.address == from) {
                self.add(waiter.thread.into(), to, waiter.bits);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const ANY: u32 = u32::MAX;

    #[test]
    fn who_waits_longest_is_woken_first() {
        let mut all = Waiters::NEW;
        for (thread, address) in [(5, 8), (3, 16), (9, 8), (1, 8)] {
            all.add(thread, address, ANY);
        }
        assert!(all.remove(9) && !all.remove(9));
        let woken: Vec<_> = std::iter::from_fn(|| all.wake(8, ANY)).collect();
        assert_eq!((woken, all.wake(16, ANY), all.wake(16, ANY)), (vec![5, 1], Some(3), None));
    }

    #[test]
    fn bits_choose() {
        let mut all = Waiters::NEW;
        all.add(1, 8, 0b01);
        all.add(2, 8, 0b10);
        assert_eq!((all.wake(8, 0b100), all.wake(8, 0b10), all.wake(8, ANY)), (None, Some(2), Some(1)));
    }

    #[test]
    fn who_is_moved_comes_last() {
        let mut all = Waiters::NEW;
        for (thread, address) in [(1, 8), (2, 16), (3, 8), (4, 8)] {
            all.add(thread, address, ANY);
        }
        assert_eq!(all.requeue(8, 16, 2), 2);
        let woken: Vec<_> = std::iter::from_fn(|| all.wake(16, ANY)).collect();
        assert_eq!((woken, all.wake(8, ANY)), (vec![2, 1, 3], Some(4)));
        all.add(1, 8, ANY);
        assert_eq!(all.requeue(8, 8, ANY), 1, "to the same word");
    }

    proptest! {
        /// Against a list: no thread is lost or woken twice.
        #[test]
        fn as_a_list(steps in prop::collection::vec((0..4u8, 0..3u64, 0..3u64, 0..4u32), 1..200)) {
            let (mut all, mut model) = (Waiters::NEW, Vec::<(usize, u64)>::new());
            for (n, (kind, a, b, count)) in steps.into_iter().enumerate() {
                match kind {
                    0 if model.len() < THREADS => {
                        all.add(n, a, ANY);
                        model.push((n, a));
                    }
                    1 => {
                        let at = model.iter().position(|m| m.1 == a);
                        let woken = at.map(|at| model.remove(at).0);
                        prop_assert_eq!(all.wake(a, ANY), woken);
                    }
                    2 => {
                        let moved: Vec<_> =
                            model.iter().filter(|m| m.1 == a).take(count as usize).copied().collect();
                        model.retain(|m| !moved.contains(m));
                        model.extend(moved.iter().map(|m| (m.0, b)));
                        prop_assert_eq!(all.requeue(a, b, count), moved.len() as u32);
                    }
                    _ => {
                        let gone = model.get(count as usize).map(|m| m.0);
                        model.retain(|m| Some(m.0) != gone);
                        prop_assert_eq!(gone.is_some_and(|g| all.remove(g)), gone.is_some());
                    }
                }
                prop_assert_eq!(all.0.len(), model.len());
            }
        }
    }
}
