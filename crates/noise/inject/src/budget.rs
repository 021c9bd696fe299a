// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share of a CPU that an injector may take, whatever its schedule says.

/// CPU time an injector has left, nanoseconds.
///
/// Sleep earns it, work spends it: over any length of time an injector works at most
/// [`SHARE`](Self::SHARE) of it, and never longer than [`LONGEST_NS`](Self::LONGEST_NS) on end. That
/// stays below the limit at which the kernel throttles real-time tasks (950 ms of each second), so a
/// node with an injector on each CPU can still be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: u64,
    full: u64,
}

impl Budget {
    /// Largest share of a CPU.
    pub(super) const SHARE: f64 = 0.9;
    /// Longest time of work without a pause.
    pub(super) const LONGEST_NS: u64 = 500_000_000;
    /// Time of work that a time of sleep earns.
    const EARNED: u64 = 9;

    /// A full budget of `full` nanoseconds.
    pub(super) fn new(full: u64) -> Self {
        Self { left: full, full }
    }

    /// CPU time left, nanoseconds.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn slept(&mut self, ns: u64) {
        self.left = self.left.saturating_add(ns.saturating_mul(Self::EARNED)).min(self.full);
    }

    pub(super) fn worked(&mut self, ns: u64) {
        self.left = self.left.saturating_sub(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_schedule_takes_more_than_the_share_and_one_spell(
            steps in prop::collection::vec((0u64..100_000, 0u64..1_000_000), 1..200)
        ) {
            let full = 50_000;
            let mut budget = Budget::new(full);
            let (mut work, mut all) = (0, 0);
            for (sleep, wanted) in steps {
                budget.slept(sleep);
                let granted = wanted.min(budget.left());
                prop_assert!(granted <= full);
                budget.worked(granted);
                work += granted;
                all += sleep + granted;
            }
            prop_assert!(work as f64 <= Budget::SHARE * all as f64 + full as f64 + 1.0);
        }
    }
}
