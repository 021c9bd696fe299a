// SPDX-License-Identifier: MIT OR Apache-2.0

/// Rounds that an estimate looks back on.
const ROUNDS: usize = 5;

/// Of them, the rounds that may have less than the estimate.
const EXCEPTIONS: usize = 1;

/// The share of a step below which stolen time is noise, and not worth moving objects for.
const LEAST_SHARE: f64 = 0.02;

/// The background load of one PE: time that other work takes of it in every step.
///
/// A sample is the time stolen in one round: wall time of the step less idle time and less the CPU time of the objects.
/// The estimate is the time that all of the last 5 rounds had at least, but for one. So
///
/// * bursts in up to 3 rounds of 5 are not background, however long they are,
/// * a daemon that stays is seen after 4 rounds, and is still seen if it pauses for one,
/// * a daemon that ends is forgotten after 2 rounds.
///
/// Less than 2 % of a step counts as none: ticks steal that much everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BackgroundEstimator {
    last_s: [f32; ROUNDS],
    step_s: f32,
    seen: u8,
    next: u8,
}

impl BackgroundEstimator {
    /// Adds a round: the time stolen from this PE in one step, and the wall time of the step, in seconds. Samples that
    /// are no numbers are ignored; a negative stolen time counts as 0.
    pub fn add(&mut self, stolen_s: f64, step_s: f64) {
        if !(stolen_s.is_finite() && step_s.is_finite() && step_s > 0.0) {
            return;
        }
        let bound = crate::limits::MAX_LOAD_S as f32 / 2.0;
        self.last_s[usize::from(self.next)] = (stolen_s.max(0.0) as f32).min(bound);
        self.step_s = (step_s as f32).min(bound);
        self.next = (self.next + 1) % ROUNDS as u8;
        self.seen = (self.seen + 1).min(ROUNDS as u8);
    }

    /// Seconds a step that other work takes for good; 0 until 4 rounds have shown it.
    #[must_use]
    pub fn estimate_s(&self) -> f64 {
        // rounds not seen have 0, so that they count as exceptions
        let mut sorted = self.last_s;
        sorted.sort_unstable_by(f32::total_cmp);
        let least = f64::from(sorted[EXCEPTIONS]);
        if least < LEAST_SHARE * f64::from(self.step_s) { 0.0 } else { least }
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

    const STEP_S: f64 = 0.01;

    fn after(samples: impl IntoIterator<Item = f64>) -> f64 {
        let mut estimator = BackgroundEstimator::default();
        samples.into_iter().for_each(|s| estimator.add(s, STEP_S));
        estimator.estimate_s()
    }

    #[test]
    fn a_daemon_is_seen_after_four_rounds_and_forgotten_after_two() {
        let daemon = 0.004;
        assert_eq!(after([daemon; 3]), 0.0);
        assert!((after([daemon; 4]) - daemon).abs() < 1e-8);
        assert!(after([daemon, daemon, daemon, daemon, 0.0]) > 0.0, "it paused for one round");
        assert_eq!(after([daemon, daemon, daemon, daemon, 0.0, 0.0]), 0.0);
    }

    #[test]
    fn ticks_are_no_background() {
        assert_eq!(after([0.01 * STEP_S; 9]), 0.0);
    }

    proptest! {
        #[test]
        fn bursts_are_no_background(bursts in proptest::collection::vec(0.0f64..10.0, 3), places in proptest::sample::subsequence(vec![0usize, 1, 2, 3, 4], 3), cycles in 1usize..9) {
            let mut round = [0.0; 5];
            places.iter().zip(&bursts).for_each(|(&p, &b)| round[p] = b);
            prop_assert_eq!(after(std::iter::repeat_n(round, cycles).flatten()), 0.0);
        }

        #[test]
        fn a_daemon_is_seen_through_bursts(daemon in 0.0003f64..0.005, bursts in proptest::collection::vec(0.0f64..10.0, 40), rare in 3usize..9) {
            let samples = bursts.iter().enumerate().map(|(i, b)| daemon + if i % rare == 0 { *b } else { 0.0 });
            let estimate = after(samples);
            prop_assert!((estimate - daemon).abs() < 1e-6, "{} {}", estimate, daemon);
        }

        #[test]
        fn no_sample_makes_an_estimate_that_a_database_refuses(samples in proptest::collection::vec((proptest::num::f64::ANY, proptest::num::f64::ANY), 0..9)) {
            let mut estimator = BackgroundEstimator::default();
            samples.into_iter().for_each(|(stolen, step)| estimator.add(stolen, step));
            prop_assert!((0.0..=crate::limits::MAX_LOAD_S).contains(&estimator.estimate_s()));
        }
    }
}
