// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits that protect a node from windows that would starve it.

use colony_time::{DutyCycle, Windows, cycles, text};
use serde::{Deserialize, Serialize};

/// The bounds of windows, for every user.
///
/// The defaults leave daemons a regular window of 2 ms at least in every period, and allow Blue Gene/L's
/// own setting: a period of `0xffffffff` cycles (6.14 s) and a duty cycle of `0xf4000000` (95.3 %), which
/// left "a window of opportunity of only a few scheduler ticks" (Colony Linux kernel technical report,
/// section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The shortest period, in nanoseconds.
    #[serde(with = "colony_time::notation::ns", rename = "smallest_period")]
    pub smallest_period_ns: u64,
    /// The longest period, in nanoseconds.
    #[serde(with = "colony_time::notation::ns", rename = "largest_period")]
    pub largest_period_ns: u64,
    /// The shortest favored window, in nanoseconds: below it the edges cost more than they bring.
    #[serde(with = "colony_time::notation::ns", rename = "smallest_favored_window")]
    pub smallest_favored_ns: u64,
    /// The shortest regular window, in nanoseconds: a few scheduler ticks for everything else.
    #[serde(with = "colony_time::notation::ns", rename = "smallest_regular_window")]
    pub smallest_regular_ns: u64,
    /// The largest favored share of a period, in millionths.
    #[serde(with = "colony_time::notation::share", rename = "largest_duty_cycle")]
    pub largest_duty_ppm: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            smallest_period_ns: 2_000_000,
            largest_period_ns: 6_200_000_000,
            smallest_favored_ns: 100_000,
            smallest_regular_ns: 2_000_000,
            largest_duty_ppm: 980_000,
        }
    }
}

/// Windows this node refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The period is too short or too long.
    #[error(
        "a period of {} is outside this node's limits, {} to {}",
        text::Ns(*found_ns), text::Ns(*smallest_ns), text::Ns(*largest_ns)
    )]
    Period {
        /// The period asked for.
        found_ns: u64,
        /// The shortest allowed.
        smallest_ns: u64,
        /// The longest allowed.
        largest_ns: u64,
    },
    /// The favored window is too short.
    #[error(
        "a favored window of {} is shorter than this node allows ({}); raise the duty cycle or the period",
        text::Ns(*found_ns), text::Ns(*smallest_ns)
    )]
    Favored {
        /// The favored window that would result.
        found_ns: u64,
        /// The shortest allowed.
        smallest_ns: u64,
    },
    /// The regular window is too short.
    #[error(
        "a regular window of {} is shorter than this node allows ({}): its daemons would starve; \
         lower the duty cycle or raise the period",
        text::Ns(*found_ns), text::Ns(*smallest_ns)
    )]
    Regular {
        /// The regular window that would result.
        found_ns: u64,
        /// The shortest allowed.
        smallest_ns: u64,
    },
    /// The favored share is too large.
    #[error(
        "a favored window of {} in a period of {} is more than this node allows ({})",
        text::Ns(*favored_ns), text::Ns(*period_ns), DutyCycle::Ppm(*largest_ppm)
    )]
    Duty {
        /// The favored window that would result.
        favored_ns: u64,
        /// The period.
        period_ns: u64,
        /// The largest share allowed, in millionths.
        largest_ppm: u32,
    },
}

/// Limits that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[limits] {what}")]
pub struct LimitsError {
    what: String,
}

impl Limits {
    /// Checks that `windows` are inside these limits.
    ///
    /// # Errors
    /// [`LimitError`]: the first limit they break.
    pub fn check(&self, windows: &Windows) -> Result<(), LimitError> {
        let (period_ns, favored_ns, regular_ns) =
            (windows.period_ns(), windows.favored_ns(), windows.regular_ns());
        if !(self.smallest_period_ns..=self.largest_period_ns).contains(&period_ns) {
            return Err(LimitError::Period {
                found_ns: period_ns,
                smallest_ns: self.smallest_period_ns,
                largest_ns: self.largest_period_ns,
            });
        }
        if favored_ns < self.smallest_favored_ns {
            return Err(LimitError::Favored { found_ns: favored_ns, smallest_ns: self.smallest_favored_ns });
        }
        if regular_ns < self.smallest_regular_ns {
            return Err(LimitError::Regular { found_ns: regular_ns, smallest_ns: self.smallest_regular_ns });
        }
        let whole = u128::from(DutyCycle::WHOLE_PPM);
        if u128::from(favored_ns) * whole > u128::from(period_ns) * u128::from(self.largest_duty_ppm) {
            return Err(LimitError::Duty { favored_ns, period_ns, largest_ppm: self.largest_duty_ppm });
        }
        Ok(())
    }

    /// Checks that any windows at all fit these limits, and that a regular window always remains.
    ///
    /// # Errors
    /// [`LimitsError`] names the contradiction and what to change.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let error = |what: String| Err(LimitsError { what });
        if self.smallest_period_ns > self.largest_period_ns {
            return error(format!(
                "smallest_period ({}) is above largest_period ({}); lower the one or raise the other",
                text::Ns(self.smallest_period_ns),
                text::Ns(self.largest_period_ns)
            ));
        }
        if self.largest_period_ns > Windows::MAX_PERIOD_NS {
            return error(format!(
                "largest_period ({}) is above one hour; Blue Gene/L's longest was {}",
                text::Ns(self.largest_period_ns),
                text::Ns(cycles::MAX_NS)
            ));
        }
        if self.smallest_regular_ns == 0 || !(1..DutyCycle::WHOLE_PPM).contains(&self.largest_duty_ppm) {
            return error(
                "smallest_regular_window must be above 0 and largest_duty_cycle above 0 % and below 100 %: \
                 a node without regular windows cannot be reached any more"
                    .into(),
            );
        }
        let room = self.smallest_favored_ns.saturating_add(self.smallest_regular_ns);
        if room > self.largest_period_ns {
            return error(format!(
                "smallest_favored_window and smallest_regular_window ({} together) do not fit \
                 largest_period ({})",
                text::Ns(room),
                text::Ns(self.largest_period_ns)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn windows(period_ns: u64, duty: DutyCycle) -> Windows {
        Windows::new(period_ns, duty, 0).expect("possible windows")
    }

    #[test]
    fn the_defaults_allow_what_blue_gene_used_and_what_people_use() {
        let limits = Limits::default();
        limits.validate().expect("the defaults agree with each other");
        for w in [
            windows(cycles::MAX_NS, DutyCycle::Cycles(0xf400_0000)),
            windows(cycles::MAX_NS, DutyCycle::Cycles(0x7fff_ffff)),
            windows(100_000_000, DutyCycle::Ppm(950_000)),
            windows(100_000_000, DutyCycle::Ppm(980_000)),
        ] {
            assert_eq!(limits.check(&w), Ok(()), "{w:?}");
        }
    }

    #[test]
    fn each_limit_protects() {
        let limits = Limits::default();
        let refused = |period, duty| limits.check(&windows(period, duty)).expect_err("over a limit");
        assert!(matches!(refused(1_000_000, DutyCycle::Ppm(500_000)), LimitError::Period { .. }));
        assert!(matches!(refused(6_200_000_001, DutyCycle::Ppm(500_000)), LimitError::Period { .. }));
        assert!(matches!(refused(100_000_000, DutyCycle::Ns(99_999)), LimitError::Favored { .. }));
        assert!(matches!(refused(10_000_000, DutyCycle::Ppm(950_000)), LimitError::Regular { .. }));
        let over = refused(1_000_000_000, DutyCycle::Ppm(980_001));
        assert!(matches!(over, LimitError::Duty { .. }) && over.to_string().contains("98%"), "{over}");
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        let base = Limits::default();
        for bad in [
            Limits { smallest_period_ns: 7_000_000_000, ..base },
            Limits { largest_period_ns: u64::MAX, ..base },
            Limits { smallest_regular_ns: 0, ..base },
            Limits { largest_duty_ppm: 1_000_000, ..base },
            Limits { largest_duty_ppm: 0, ..base },
            Limits { smallest_regular_ns: 6_200_000_000, ..base },
            Limits { smallest_favored_ns: u64::MAX, ..base },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn windows_within_the_limits_leave_every_period_its_regular_window(period in 2u64..7_000_000_000, ppm in 1u32..1_000_000) {
            let limits = Limits::default();
            if let Ok(w) = Windows::new(period, DutyCycle::Ppm(ppm), 0)
                && limits.check(&w).is_ok()
            {
                prop_assert!(w.regular_ns() >= limits.smallest_regular_ns);
                prop_assert!(w.duty() <= 0.98);
            }
        }
    }
}
