// SPDX-License-Identifier: MIT OR Apache-2.0
//! The windows as they are set, one write at a time.

use colony_time::text::{self, TextError};
use colony_time::{DutyCycle, Windows, WindowsError};

use colony_sched::limits::{LimitError, Limits};

/// The windows in force, and the notation their duty cycle was given in.
///
/// A setting is never anything but possible windows inside the node's limits: a change that cannot be is
/// refused and leaves everything as it was. The notation decides what a new period does to the favored
/// window: a share stays that share, a length stays that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    windows: Windows,
    duty: DutyCycle,
}

/// A setting that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The text says no time and no duty cycle.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Period and duty cycle leave one window empty.
    #[error("{source}{}", if *length { " (the duty cycle is a length now: write it as a share first, e.g. 95%)" } else { "" })]
    Impossible {
        /// The reason for which there are no such windows.
        source: WindowsError,
        /// True if the duty cycle in force is a length, which a shorter period cannot hold.
        length: bool,
    },
    /// The node's limits forbid it.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl SettingError {
    /// The error number a writer gets: `ERANGE` over a limit, `EINVAL` else.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Text(_) | Self::Impossible { .. } => libc::EINVAL,
            Self::Limit(_) => libc::ERANGE,
        }
    }
}

impl Setting {
    /// Windows of `period_ns` with `duty`, phase 0 at `epoch_ns` (TAI), inside `limits`.
    ///
    /// # Errors
    /// [`SettingError`] where they are impossible or over a limit.
    pub fn new(
        period_ns: u64,
        duty: DutyCycle,
        epoch_ns: i64,
        limits: &Limits,
    ) -> Result<Self, SettingError> {
        let windows = Windows::new(period_ns, duty, epoch_ns)
            .map_err(|source| SettingError::Impossible { source, length: false })?;
        limits.check(&windows)?;
        Ok(Self { windows, duty })
    }

    /// The windows.
    #[must_use]
    pub const fn windows(&self) -> Windows {
        self.windows
    }

    /// The duty cycle as it was given.
    #[must_use]
    pub const fn duty(&self) -> DutyCycle {
        self.duty
    }

    /// This setting with the period `written` (`100ms`, `0x04000000`), the duty cycle kept as it was given.
    ///
    /// # Errors
    /// [`SettingError`] where that is no time, impossible, or over a limit.
    pub fn with_period(&self, written: &str, limits: &Limits) -> Result<Self, SettingError> {
        let period_ns = text::parse_ns(written)?;
        Self::new(period_ns, self.duty, self.windows.epoch_ns(), limits).map_err(|e| match e {
            SettingError::Impossible { source: source @ WindowsError::Duty(_), .. } => {
                SettingError::Impossible { source, length: !matches!(self.duty, DutyCycle::Ppm(_)) }
            }
            e => e,
        })
    }

    /// This setting with the duty cycle `written` (`95%`, `95ms`, `0xf4000000`), the period kept.
    ///
    /// # Errors
    /// [`SettingError`] where that is no duty cycle, impossible, or over a limit.
    pub fn with_duty(&self, written: &str, limits: &Limits) -> Result<Self, SettingError> {
        let duty = text::parse_duty(written)?;
        Self::new(self.windows.period_ns(), duty, self.windows.epoch_ns(), limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        smallest_period_ns: 2_000_000,
        largest_period_ns: 6_200_000_000,
        smallest_favored_ns: 100_000,
        smallest_regular_ns: 2_000_000,
        largest_duty_ppm: 980_000,
    };

    fn start() -> Setting {
        Setting::new(100_000_000, DutyCycle::Ppm(950_000), 0, &LIMITS).expect("inside the limits")
    }

    #[test]
    fn a_new_period_keeps_the_favored_share() {
        let s = start().with_period("1s", &LIMITS).expect("inside the limits");
        assert_eq!(s.windows().favored_ns(), 950_000_000);
        assert_eq!(s.duty(), DutyCycle::Ppm(950_000));
    }

    #[test]
    fn a_favored_length_stays_and_a_period_too_short_for_it_says_what_to_do() {
        let s = start().with_duty("80ms", &LIMITS).expect("inside the limits");
        assert_eq!(s.with_period("1s", &LIMITS).expect("longer").windows().favored_ns(), 80_000_000);
        let refused = s.with_period("50ms", &LIMITS).expect_err("no regular window");
        assert_eq!(refused.errno(), libc::EINVAL);
        assert!(refused.to_string().contains("as a share first"), "{refused}");
    }

    #[test]
    fn the_blue_gene_setting_works_in_the_order_it_was_written_there() {
        let s = start().with_period("0xffffffff", &LIMITS).expect("Blue Gene/L's longest period");
        let s = s.with_duty("0xf4000000", &LIMITS).expect("Blue Gene/L's duty cycle");
        assert_eq!(s.duty().to_string(), "0xf4000000");
        // "the remaining 0x0bfffff[f] cycles"
        assert!(s.windows().regular_ns().abs_diff(colony_time::cycles::to_ns(0x0bff_ffff)) <= 1);
    }

    #[test]
    fn refusals_tell_nonsense_from_limits() {
        for (written, errno) in [("", libc::EINVAL), ("100", libc::EINVAL), ("1ms", libc::ERANGE)] {
            assert_eq!(start().with_period(written, &LIMITS).expect_err(written).errno(), errno, "{written}");
        }
        for (written, errno) in [("100%", libc::EINVAL), ("0%", libc::EINVAL), ("99%", libc::ERANGE)] {
            assert_eq!(start().with_duty(written, &LIMITS).expect_err(written).errno(), errno, "{written}");
        }
    }

    /// A text that a user writes into one of the two files.
    fn written() -> impl Strategy<Value = String> {
        prop_oneof![
            (0u64..8_000_000).prop_map(|us| format!("{us}us")),
            (0u64..8_000).prop_map(|ms| format!("{ms}ms")),
            (0u32..110).prop_map(|p| format!("{p}%")),
            any::<u32>().prop_map(|c| format!("{c:#010x}\n")),
            ".{0,12}",
        ]
    }

    proptest! {
        #[test]
        fn no_sequence_of_writes_leaves_the_limits(
            writes in prop::collection::vec((any::<bool>(), written()), 0..40),
        ) {
            let mut now = start();
            for (period, written) in writes {
                let change = if period {
                    now.with_period(&written, &LIMITS)
                } else {
                    now.with_duty(&written, &LIMITS)
                };
                let Ok(next) = change else { continue };
                let (old, new) = (now.windows(), next.windows());
                prop_assert_eq!(LIMITS.check(&new), Ok(()));
                prop_assert_eq!(next.duty().favored_ns(new.period_ns()), Ok(new.favored_ns()));
                prop_assert_eq!(old.epoch_ns(), new.epoch_ns());
                if period {
                    prop_assert_eq!(now.duty(), next.duty());
                } else {
                    prop_assert_eq!(old.period_ns(), new.period_ns());
                }
                now = next;
            }
        }

        #[test]
        fn a_setting_that_was_read_can_be_written_again(ms in 5u64..6000, percent in 1u32..=60) {
            let s = Setting::new(ms * 1_000_000, DutyCycle::Ppm(percent * 10_000), 0, &LIMITS);
            if let Ok(s) = s {
                let period = text::Ns(s.windows().period_ns()).to_string();
                prop_assert_eq!(s.with_period(&period, &LIMITS), Ok(s));
                prop_assert_eq!(s.with_duty(&s.duty().to_string(), &LIMITS), Ok(s));
            }
        }
    }
}
