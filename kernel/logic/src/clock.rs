// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time from the time stamp counter.

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Turns counts into nanoseconds: a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    hz: u64,
    /// Nanoseconds of a count, times 2³².
    scale: u64,
}

impl Rate {
    /// Of a counter of so many counts a second; at least 1 MHz, at most 2⁵³ Hz.
    pub const fn new(hz: u64) -> Self {
        let hz = if hz < 1_000_000 { 1_000_000 } else { hz };
        Self { hz, scale: (((SECOND as u128) << 32) / hz as u128) as u64 }
    }

    /// Counts a second.
    pub const fn hz(self) -> u64 {
        self.hz
    }

    /// Nanoseconds of `counts`.
    pub const fn ns(self, counts: u64) -> u64 {
        ((counts as u128 * self.scale as u128) >> 32) as u64
    }
}

/// Seconds and the nanoseconds that remain.
pub const fn split(ns: u64) -> [u64; 2] {
    [ns / SECOND, ns % SECOND]
}

/// The longest time, ns: Linux's `KTIME_MAX`. The sum of two times fits in a `u64`.
pub const LONGEST: u64 = i64::MAX as u64;

/// The nanoseconds of a `timespec`, [`LONGEST`] at most; `None` for one that Linux refuses.
pub fn join(seconds: i64, ns: i64) -> Option<u64> {
    let (seconds, ns) = (u64::try_from(seconds).ok()?, u64::try_from(ns).ok()?);
    (ns < SECOND).then(|| seconds.saturating_mul(SECOND).saturating_add(ns).min(LONGEST))
}

/// The first end after `now` of a timer that ended at `at` and repeats every `interval`. `interval` is not 0, and `at`
/// is not after `now`.
pub fn next_end(at: u64, now: u64, interval: u64) -> u64 {
    let missed = now.saturating_sub(at) / interval.max(1);
    at.saturating_add(missed.saturating_add(1).saturating_mul(interval))
}

/// The result of `alarm` for `left` ns: the nearest second, and 0 only for 0.
pub fn nearest_second(left: u64) -> u64 {
    match left {
        0 => 0,
        _ => (left.saturating_add(SECOND / 2) / SECOND).max(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A wait of so many counts is never shorter than it was asked for by more than the rounding of the scale.
        #[test]
        fn there_and_back(hz in 1_000_000u64..6_000_000_000, ns in 0u64..1 << 50) {
            let rate = Rate::new(hz);
            let counts = (u128::from(ns) * u128::from(hz)).div_ceil(SECOND.into());
            let back = rate.ns(counts as u64);
            let error = ns / 1_000_000 + 2 * SECOND / hz + 2;
            prop_assert!(back + error >= ns && back <= ns + error, "{ns} {back}");
        }
    }

    proptest! {
        /// A timer's next end lies after now, and less than an interval away, whatever the times are.
        #[test]
        fn the_next_end_of_a_timer(at in 0..=u64::MAX, late in 0..=u64::MAX, interval in 1..=LONGEST) {
            let now = at.saturating_add(late);
            let next = next_end(at, now, interval);
            prop_assert!(next > now || next == u64::MAX);
            prop_assert!(next - now <= interval);
        }
    }

    #[test]
    fn alarms_return_whole_seconds() {
        for (left, seconds) in [(0, 0), (1, 1), (SECOND, 1), (3 * SECOND / 2, 2), (SECOND * 5 / 4, 1)] {
            assert_eq!(nearest_second(left), seconds);
        }
        assert_eq!(nearest_second(LONGEST), 9_223_372_037);
        assert_eq!(nearest_second(u64::MAX), u64::MAX / SECOND);
    }

    #[test]
    fn times_that_are_none() {
        assert_eq!(join(1, 5), Some(SECOND + 5));
        assert_eq!((join(-1, 0), join(0, -1), join(0, 1_000_000_000)), (None, None, None));
        assert_eq!(join(i64::MAX, 0), Some(LONGEST), "as long as can be");
        assert_eq!(split(2 * SECOND + 7), [2, 7]);
    }
}
