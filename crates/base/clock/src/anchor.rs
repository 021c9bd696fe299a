// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noticing what happened to a clock: that it was set, that it was steered, that the node slept.

use colony_time::clock::Clock;

/// The differences between the node's clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// `CLOCK_TAI` less `CLOCK_MONOTONIC`, nanoseconds: both run at one rate, so it changes only when somebody sets
    /// the clock, changes the offset of TAI, or lets the node sleep.
    pub tai_less_monotonic_ns: i64,
    /// `CLOCK_MONOTONIC` less `CLOCK_MONOTONIC_RAW`: what the kernel's corrections of the rate have added up to,
    /// whichever they were.
    pub steered_ns: i64,
    /// `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC`: the time the node has slept.
    pub slept_ns: i64,
    /// Largest error of these.
    pub error_ns: u64,
}

impl Anchor {
    /// Tries; the one that was interrupted least counts.
    const TRIES: usize = 8;

    /// Reads the clocks.
    #[must_use]
    pub fn now() -> Self {
        let read = |_| {
            let before = Clock::Monotonic.now_ns();
            let tai = Clock::Tai.now_ns();
            let raw = Clock::MonotonicRaw.now_ns();
            let boot = Clock::Boottime.now_ns();
            let after = Clock::Monotonic.now_ns();
            let width = (after - before).max(0);
            let monotonic = before + width / 2;
            Self {
                tai_less_monotonic_ns: tai.saturating_sub(monotonic),
                steered_ns: monotonic.saturating_sub(raw),
                slept_ns: boot.saturating_sub(monotonic),
                error_ns: width.unsigned_abs() / 2 + 1,
            }
        };
        let first = read(0);
        (1..Self::TRIES).map(read).fold(first, |best, a| if a.error_ns < best.error_ns { a } else { best })
    }

    /// By how much the clock was set since `earlier`, nanoseconds; `None` where it was not. Sleep counts: TAI goes on
    /// meanwhile.
    #[must_use]
    pub fn step_since(&self, earlier: &Self) -> Option<i64> {
        self.change(earlier, |a| a.tai_less_monotonic_ns)
    }

    /// The time that the node slept since `earlier`, nanoseconds; `None` if it did not.
    #[must_use]
    pub fn sleep_since(&self, earlier: &Self) -> Option<i64> {
        self.change(earlier, |a| a.slept_ns)
    }

    /// A change that is more than the width of the readings.
    fn change(&self, earlier: &Self, of: impl Fn(&Self) -> i64) -> Option<i64> {
        let change = of(self).saturating_sub(of(earlier));
        (change.unsigned_abs() > self.error_ns + earlier.error_ns + 100).then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_from_the_width_of_readings() {
        let a = Anchor { tai_less_monotonic_ns: 1_000_000, steered_ns: 0, slept_ns: 0, error_ns: 50 };
        assert_eq!(Anchor { tai_less_monotonic_ns: 1_000_150, ..a }.step_since(&a), None);
        let back = Anchor { tai_less_monotonic_ns: -1_000_000, ..a };
        assert_eq!((back.step_since(&a), back.sleep_since(&a)), (Some(-2_000_000), None));
        let (now, later) = (Anchor::now(), Anchor::now());
        assert_eq!((later.step_since(&now), later.sleep_since(&now)), (None, None));
    }

    #[test]
    fn sleep_is_no_time_for_the_monotonic_clock_only() {
        let a = Anchor { tai_less_monotonic_ns: 0, steered_ns: 0, slept_ns: 7, error_ns: 50 };
        let slept = Anchor { tai_less_monotonic_ns: 9_000_000, slept_ns: 9_000_007, ..a };
        assert_eq!((slept.step_since(&a), slept.sleep_since(&a)), (Some(9_000_000), Some(9_000_000)));
    }
}
