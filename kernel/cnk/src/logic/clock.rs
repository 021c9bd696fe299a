//! Time from the time stamp counter.

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Turns counts into nanoseconds and back: a multiplication each.
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

    /// Counts of at least `ns`; the most there can be where that is less.
    pub const fn counts(self, ns: u64) -> u64 {
        let counts = (ns as u128 * self.hz as u128).div_ceil(SECOND as u128);
        if counts > u64::MAX as u128 { u64::MAX } else { counts as u64 }
    }
}

/// Seconds and the nanoseconds that remain.
pub const fn split(ns: u64) -> (u64, u64) {
    (ns / SECOND, ns % SECOND)
}

/// The nanoseconds of a `timespec`; `None` for one that Linux refuses.
pub fn join(seconds: i64, ns: i64) -> Option<u64> {
    let (seconds, ns) = (u64::try_from(seconds).ok()?, u64::try_from(ns).ok()?);
    (ns < SECOND).then(|| seconds.saturating_mul(SECOND).saturating_add(ns))
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
            let back = rate.ns(rate.counts(ns));
            let error = ns / 1_000_000 + 2 * SECOND / hz + 2;
            prop_assert!(back + error >= ns && back <= ns + error, "{ns} {back}");
        }
    }

    #[test]
    fn times_that_are_none() {
        assert_eq!(join(1, 5), Some(SECOND + 5));
        assert_eq!((join(-1, 0), join(0, -1), join(0, 1_000_000_000)), (None, None, None));
        assert_eq!(join(i64::MAX, 0), Some(u64::MAX), "as long as can be");
        assert_eq!(split(2 * SECOND + 7), (2, 7));
    }
}
