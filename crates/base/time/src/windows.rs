// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::{DutyCycle, DutyError};

/// One of the two windows of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum WindowKind {
    /// Only the parallel job runs on the job's CPUs.
    Favored,
    /// Everything else goes first.
    Regular,
}

impl WindowKind {
    /// `favored` or `regular`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Favored => "favored",
            Self::Regular => "regular",
        }
    }
}

/// An instant at which one window ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The instant, in TAI nanoseconds.
    pub at_ns: i64,
    /// The window that begins there.
    pub opens: WindowKind,
}

/// The coordinated windows of a machine: the same on every node, since phase = (TAI − epoch) mod period.
///
/// A period begins with its favored window. All arithmetic is exact over the whole range of `i64`
/// nanoseconds (292 years either side of 1970).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Raw", into = "Raw"))]
pub struct Windows {
    period_ns: u64,
    favored_ns: u64,
    epoch_ns: i64,
}

/// Windows that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowsError {
    /// The period is zero or over [`Windows::MAX_PERIOD_NS`].
    #[error("a period of {} is not possible; choose one from 2 ns to 1 h", crate::text::Ns(*.0))]
    Period(u64),
    /// The duty cycle leaves one window empty.
    #[error(transparent)]
    Duty(#[from] DutyError),
    /// Guards on both sides leave nothing of the regular window.
    #[error(
        "guards of {} on both sides leave nothing of a regular window of {}",
        crate::text::Ns(*guard_ns), crate::text::Ns(*regular_ns)
    )]
    Guard {
        /// The guard asked for.
        guard_ns: u64,
        /// The regular window it was asked of.
        regular_ns: u64,
    },
}

impl Windows {
    /// The longest period: one hour. Limits that protect a node are far below (see `colonyd`).
    pub const MAX_PERIOD_NS: u64 = 3600 * crate::NS_PER_S;

    /// Windows of `period_ns` with a favored share `duty`, phase 0 at `epoch_ns` (TAI).
    ///
    /// # Errors
    /// [`WindowsError`] where a window would be empty or the period is out of range.
    pub fn new(period_ns: u64, duty: DutyCycle, epoch_ns: i64) -> Result<Self, WindowsError> {
        if !(2..=Self::MAX_PERIOD_NS).contains(&period_ns) {
            return Err(WindowsError::Period(period_ns));
        }
        let favored_ns = duty.favored_ns(period_ns)?;
        Ok(Self { period_ns, favored_ns, epoch_ns })
    }

    /// These windows for a node whose clock may be off by `guard_ns`: the favored window begins that much
    /// earlier and ends that much later. As long as no clock is off by more, nothing but the job runs anywhere
    /// while it is favored in true time; the regular windows pay for it.
    ///
    /// # Errors
    /// [`WindowsError::Guard`] where nothing would be left of the regular window.
    pub const fn guarded(self, guard_ns: u64) -> Result<Self, WindowsError> {
        let regular_ns = self.regular_ns();
        if guard_ns > (regular_ns - 1) / 2 {
            return Err(WindowsError::Guard { guard_ns, regular_ns });
        }
        let epoch_ns = match self.epoch_ns.checked_sub_unsigned(guard_ns) {
            Some(earlier) => earlier,
            // at the beginning of time: a later period's epoch says the same
            None => self.epoch_ns.saturating_add_unsigned(self.period_ns - guard_ns),
        };
        Ok(Self { period_ns: self.period_ns, favored_ns: self.favored_ns + 2 * guard_ns, epoch_ns })
    }

    /// Length of a period.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Length of the favored window of every period.
    #[must_use]
    pub const fn favored_ns(&self) -> u64 {
        self.favored_ns
    }

    /// Length of the regular window of every period.
    #[must_use]
    pub const fn regular_ns(&self) -> u64 {
        self.period_ns - self.favored_ns
    }

    /// The TAI instant of phase 0.
    #[must_use]
    pub const fn epoch_ns(&self) -> i64 {
        self.epoch_ns
    }

    /// The favored share, 0 to 1.
    #[must_use]
    pub fn duty(&self) -> f64 {
        self.favored_ns as f64 / self.period_ns as f64
    }

    /// The first beginning of a period at or after TAI 0: the epoch, in `0..period_ns`.
    #[must_use]
    pub const fn first_ns(&self) -> u64 {
        (self.epoch_ns as i128).rem_euclid(self.period_ns as i128) as u64
    }

    /// Position of `tai_ns` in its period, `0..period_ns`.
    #[must_use]
    pub const fn phase(&self, tai_ns: i64) -> u64 {
        (tai_ns as i128 - self.epoch_ns as i128).rem_euclid(self.period_ns as i128) as u64
    }

    /// The window `tai_ns` lies in.
    #[must_use]
    pub const fn kind(&self, tai_ns: i64) -> WindowKind {
        if self.is_favored(tai_ns) { WindowKind::Favored } else { WindowKind::Regular }
    }

    /// Returns `true` if `tai_ns` lies in a favored window.
    #[must_use]
    pub const fn is_favored(&self, tai_ns: i64) -> bool {
        self.phase(tai_ns) < self.favored_ns
    }

    /// The first edge strictly after `tai_ns` (saturating at the end of time).
    #[must_use]
    pub const fn next_edge(&self, tai_ns: i64) -> Edge {
        let phase = self.phase(tai_ns);
        let (left, opens) = if phase < self.favored_ns {
            (self.favored_ns - phase, WindowKind::Regular)
        } else {
            (self.period_ns - phase, WindowKind::Favored)
        };
        Edge { at_ns: tai_ns.saturating_add_unsigned(left), opens }
    }

    /// Favored nanoseconds in `[a_ns, b_ns)`; 0 where `b_ns <= a_ns`.
    #[must_use]
    pub const fn favored_time_between(&self, a_ns: i64, b_ns: i64) -> u64 {
        if b_ns <= a_ns {
            return 0;
        }
        (self.favored_since_epoch(b_ns) - self.favored_since_epoch(a_ns)) as u64
    }

    /// Signed favored time from the epoch to `tai_ns`.
    const fn favored_since_epoch(&self, tai_ns: i64) -> i128 {
        let t = tai_ns as i128 - self.epoch_ns as i128;
        let period = self.period_ns as i128;
        let phase = t.rem_euclid(period);
        let in_this = if phase < self.favored_ns as i128 { phase } else { self.favored_ns as i128 };
        t.div_euclid(period) * self.favored_ns as i128 + in_this
    }
}

/// The serialised form, checked on the way in.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Raw {
    period_ns: u64,
    favored_ns: u64,
    epoch_ns: i64,
}

#[cfg(feature = "serde")]
impl TryFrom<Raw> for Windows {
    type Error = WindowsError;
    fn try_from(r: Raw) -> Result<Self, WindowsError> {
        Self::new(r.period_ns, DutyCycle::Ns(r.favored_ns), r.epoch_ns)
    }
}

#[cfg(feature = "serde")]
impl From<Windows> for Raw {
    fn from(w: Windows) -> Self {
        Self { period_ns: w.period_ns, favored_ns: w.favored_ns, epoch_ns: w.epoch_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn windows() -> impl Strategy<Value = Windows> {
        (2..Windows::MAX_PERIOD_NS, 0.0..1.0f64, any::<i64>()).prop_map(|(p, share, e)| {
            let favored = ((p as f64 * share) as u64).clamp(1, p - 1);
            Windows::new(p, DutyCycle::Ns(favored), e).expect("both windows have time")
        })
    }

    #[test]
    fn a_period_starts_favored_and_ends_regular() {
        let w = Windows::new(100, DutyCycle::Ppm(950_000), 1000).expect("valid");
        assert!(w.is_favored(1000) && w.is_favored(1094));
        assert!(!w.is_favored(1095) && !w.is_favored(1099) && w.is_favored(1100));
        assert!(!w.is_favored(999), "before the epoch the pattern goes on");
        assert_eq!(w.next_edge(1000), Edge { at_ns: 1095, opens: WindowKind::Regular });
        assert_eq!(w.next_edge(1095), Edge { at_ns: 1100, opens: WindowKind::Favored });
    }

    #[test]
    fn empty_windows_are_refused() {
        for duty in
            [DutyCycle::Ppm(0), DutyCycle::Ppm(1_000_000), DutyCycle::Ns(100), DutyCycle::Cycles(u32::MAX)]
        {
            assert!(matches!(Windows::new(100, duty, 0), Err(WindowsError::Duty(_))), "{duty:?}");
        }
        assert_eq!(Windows::new(1, DutyCycle::Ppm(500_000), 0), Err(WindowsError::Period(1)));
        assert!(Windows::new(u64::MAX, DutyCycle::Ppm(500_000), 0).is_err());
    }

    #[test]
    fn guards_leave_some_regular_window_or_are_refused() {
        let w = Windows::new(100, DutyCycle::Ns(95), 1000).expect("valid");
        let g = w.guarded(2).expect("1 ns is left");
        assert_eq!((g.favored_ns(), g.regular_ns(), g.epoch_ns(), g.period_ns()), (99, 1, 998, 100));
        assert_eq!(w.guarded(0), Ok(w));
        assert_eq!(w.guarded(3), Err(WindowsError::Guard { guard_ns: 3, regular_ns: 5 }));
        assert!(w.guarded(u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn a_clock_off_by_no_more_than_its_guard_keeps_others_favored_windows_free(
            w in windows(), share in 0.0..1.0f64, off in -1.0..1.0f64, t in i64::MIN / 2..i64::MAX / 2,
        ) {
            let guard = ((w.regular_ns() - 1) as f64 / 2.0 * share) as u64;
            let g = w.guarded(guard).expect("something is left");
            let reading = t + (guard as f64 * off).trunc() as i64;
            if w.is_favored(t) {
                prop_assert!(g.is_favored(reading));
            }
            // and nothing more is taken than the guards on both sides of both clocks
            prop_assert_eq!(g.favored_ns(), w.favored_ns() + 2 * guard);
            if !g.is_favored(reading) {
                prop_assert!(!w.is_favored(t));
            }
        }

        #[test]
        fn the_first_period_begins_within_one_of_tai_0(w in windows()) {
            prop_assert!(w.first_ns() < w.period_ns());
            prop_assert_eq!(w.phase(w.first_ns() as i64), 0);
        }

        #[test]
        fn phase_is_inside_the_period_and_repeats(w in windows(), t: i64) {
            let phase = w.phase(t);
            prop_assert!(phase < w.period_ns());
            if let Some(next) = t.checked_add_unsigned(w.period_ns()) {
                prop_assert_eq!(w.phase(next), phase);
            }
        }

        #[test]
        fn the_next_edge_is_where_the_kind_changes(w in windows(), t in i64::MIN / 2..i64::MAX / 2) {
            let e = w.next_edge(t);
            prop_assert!(e.at_ns > t);
            prop_assert_eq!(w.kind(e.at_ns - 1), w.kind(t));
            prop_assert_eq!(w.kind(e.at_ns), e.opens);
            prop_assert_ne!(e.opens, w.kind(t));
        }

        #[test]
        fn favored_time_adds_up(w in windows(), mut t in prop::array::uniform3(any::<i64>())) {
            t.sort_unstable();
            let [a, b, c] = t;
            let (ab, bc) = (w.favored_time_between(a, b), w.favored_time_between(b, c));
            prop_assert_eq!(ab + bc, w.favored_time_between(a, c));
            prop_assert!(ab <= b.abs_diff(a));
            prop_assert_eq!(w.favored_time_between(c, a.min(c)), 0);
        }

        #[test]
        fn favored_time_equals_a_walk_over_the_edges(
            p in 2u64..1000, share in 0.0..1.0f64, epoch in -5000i64..5000, a in -5000i64..5000, len in 0i64..5000,
        ) {
            let favored = ((p as f64 * share) as u64).clamp(1, p - 1);
            let w = Windows::new(p, DutyCycle::Ns(favored), epoch).expect("valid");
            let walked = (a..a + len).filter(|&t| w.is_favored(t)).count() as u64;
            prop_assert_eq!(w.favored_time_between(a, a + len), walked);
        }

        #[test]
        fn whole_periods_hold_whole_favored_windows(w in windows(), t in -1i64 << 60..1i64 << 60, n in 0i64..1000) {
            let b = t + n * w.period_ns() as i64;
            prop_assert_eq!(w.favored_time_between(t, b), n as u64 * w.favored_ns());
        }
    }
}
