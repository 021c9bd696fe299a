// SPDX-License-Identifier: MIT OR Apache-2.0

/// Rounds that an estimate looks back on.
const ROUNDS: usize = 5;

/// The load of one object: the median of its last 5 rounds, so that up to 2 disturbed rounds of 5 do not change it, and
/// a load that changes is followed after 3. 24 bytes.
///
/// Samples are CPU seconds of the object's thread, not wall time. So they do not contain detours that the kernel accounts
/// to another task. The estimator removes the noise that they do contain: interrupts, cache misses after a detour, time
/// of a hypervisor.
///
/// With one or two rounds, the estimate is the smaller sample, because noise only adds time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadEstimator {
    last_s: [f32; ROUNDS],
    /// Rounds seen, at most 5.
    seen: u8,
    /// The place of the next one.
    next: u8,
}

impl LoadEstimator {
    /// Adds the CPU seconds of a round's step. A sample that is negative or no number is ignored: a clock that steps
    /// backwards makes such ones.
    pub fn add(&mut self, sample_s: f64) {
        if !(sample_s.is_finite() && sample_s >= 0.0) {
            return;
        }
        self.last_s[self.next as usize] = (sample_s as f32).min(crate::limits::MAX_LOAD_S as f32 / 2.0);
        self.next = (self.next + 1) % ROUNDS as u8;
        self.seen = (self.seen + 1).min(ROUNDS as u8);
    }

    /// CPU seconds a step; none before the first round.
    #[must_use]
    pub fn estimate_s(&self) -> Option<f64> {
        let mut sorted = self.last_s;
        let seen = &mut sorted[..usize::from(self.seen)];
        seen.sort_unstable_by(f32::total_cmp);
        let middle = seen.len().checked_sub(1)? / 2;
        Some(f64::from(seen[middle]))
    }

    /// Rounds that the estimate rests on, at most 5.
    #[must_use]
    pub const fn rounds(&self) -> u32 {
        self.seen as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_estimator_is_small_and_knows_nothing_at_first() {
        assert_eq!(size_of::<LoadEstimator>(), 24);
        assert_eq!(LoadEstimator::default().estimate_s(), None);
    }

    #[test]
    fn samples_that_are_no_times_are_ignored() {
        let mut estimator = LoadEstimator::default();
        [f64::NAN, -1.0, f64::INFINITY].into_iter().for_each(|s| estimator.add(s));
        assert_eq!((estimator.estimate_s(), estimator.rounds()), (None, 0));
        estimator.add(f64::MAX);
        assert!(estimator.estimate_s().is_some_and(|s| s <= crate::limits::MAX_LOAD_S));
    }

    proptest! {
        /// A 200 µs object was recorded as 2.37 s elsewhere: two such rounds of five change nothing.
        #[test]
        fn two_disturbed_rounds_of_five_do_not_matter(
            load in 1e-6f64..1.0, burst in 0.0f64..100.0, at in 0usize..60, second in 1usize..5,
        ) {
            let mut estimator = LoadEstimator::default();
            for round in 0..100 {
                let disturbed = round >= 3 && (round == at || round == at + second);
                estimator.add(load + if disturbed { burst } else { 0.0 });
                let estimate = estimator.estimate_s().expect("a round was seen");
                prop_assert!((estimate - load).abs() <= 1e-6 * load, "{} {}", round, estimate);
            }
        }

        #[test]
        fn a_load_that_changes_is_followed_after_three_rounds(before in 0.0f64..1.0, after in 0.0f64..1.0, rounds in 0usize..9) {
            let mut estimator = LoadEstimator::default();
            (0..rounds).for_each(|_| estimator.add(before));
            (0..3).for_each(|_| estimator.add(after));
            let estimate = estimator.estimate_s().expect("rounds were seen");
            prop_assert!((estimate - after).abs() <= 1e-6 * after || rounds < 3 && estimate <= before.max(after));
        }

        #[test]
        fn an_estimate_is_one_of_the_last_samples(samples in proptest::collection::vec(0.0f64..1e6, 1..20)) {
            let mut estimator = LoadEstimator::default();
            samples.iter().for_each(|&s| estimator.add(s));
            let estimate = estimator.estimate_s().expect("rounds were seen");
            prop_assert!(samples.iter().rev().take(5).any(|&s| f64::from(s as f32) == estimate));
        }
    }
}
