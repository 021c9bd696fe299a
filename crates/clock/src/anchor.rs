//! Noticing that a clock was set.

use colony_time::clock::Clock;

/// TAI less the time since boot: both run at one rate, so it changes only when somebody sets the clock, changes
/// the offset of TAI, or lets the node sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// `CLOCK_TAI` less `CLOCK_MONOTONIC`, nanoseconds.
    pub tai_less_monotonic_ns: i64,
    /// Largest error of that.
    pub error_ns: u64,
}

impl Anchor {
    /// Tries; the one that was interrupted least counts.
    const TRIES: usize = 8;

    /// Reads both clocks.
    #[must_use]
    pub fn now() -> Self {
        let read = |_| {
            let before = Clock::Monotonic.now_ns();
            let tai = Clock::Tai.now_ns();
            let after = Clock::Monotonic.now_ns();
            let width = (after - before).max(0);
            Self {
                tai_less_monotonic_ns: tai.saturating_sub(before + width / 2),
                error_ns: width.unsigned_abs() / 2 + 1,
            }
        };
        let first = read(0);
        (1..Self::TRIES).map(read).fold(first, |best, a| if a.error_ns < best.error_ns { a } else { best })
    }

    /// By how much the clock was set since `earlier`, nanoseconds; `None` where it was not.
    #[must_use]
    pub fn step_since(&self, earlier: &Self) -> Option<i64> {
        let step = self.tai_less_monotonic_ns.saturating_sub(earlier.tai_less_monotonic_ns);
        (step.unsigned_abs() > self.error_ns + earlier.error_ns + 100).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_from_the_width_of_readings() {
        let a = Anchor { tai_less_monotonic_ns: 1_000_000, error_ns: 50 };
        assert_eq!(Anchor { tai_less_monotonic_ns: 1_000_150, error_ns: 50 }.step_since(&a), None);
        let back = Anchor { tai_less_monotonic_ns: -1_000_000, error_ns: 50 };
        assert_eq!(back.step_since(&a), Some(-2_000_000));
        assert_eq!(Anchor::now().step_since(&Anchor::now()), None);
    }
}
