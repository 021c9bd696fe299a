// SPDX-License-Identifier: MIT OR Apache-2.0
use core::fmt;

use crate::cycles;

/// The favored part of a period: a share of it, or a length of time.
///
/// The report's notation gives it as a count of processor cycles ("the duty cycle represents the
/// number of cycles that will be devoted to the HPC application", section 3.2), people as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum DutyCycle {
    /// Millionths of the period; 950 000 is 95 %.
    Ppm(u32),
    /// Nanoseconds of every period.
    Ns(u64),
    /// Cycles of a 700 MHz clock (Blue Gene/L).
    Cycles(u32),
}

/// A duty cycle that fits no window of its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DutyError {
    /// Nothing, or all, of the period would be favored.
    #[error(
        "a duty cycle of {} of a period of {} leaves no {} window; choose one above 0 % and below 100 %",
        crate::ns::Ns(*favored_ns), crate::ns::Ns(*period_ns),
        if *favored_ns == 0 { "favored" } else { "regular" }
    )]
    Degenerate {
        /// The favored window asked for.
        favored_ns: u64,
        /// The period it was asked of.
        period_ns: u64,
    },
}

impl DutyCycle {
    /// One whole, in millionths.
    pub const WHOLE_PPM: u32 = 1_000_000;

    /// Length of the favored window in a period of `period_ns`, rounded to the nearest nanosecond.
    ///
    /// # Errors
    /// [`DutyError::Degenerate`] where no time is left for one of the two windows.
    pub fn favored_ns(self, period_ns: u64) -> Result<u64, DutyError> {
        let favored_ns = match self {
            Self::Ppm(ppm) => {
                let whole = u128::from(Self::WHOLE_PPM);
                ((u128::from(period_ns) * u128::from(ppm) + whole / 2) / whole) as u64
            }
            Self::Ns(ns) => ns,
            Self::Cycles(c) => cycles::to_ns(c),
        };
        if favored_ns == 0 || favored_ns >= period_ns {
            return Err(DutyError::Degenerate { favored_ns, period_ns });
        }
        Ok(favored_ns)
    }
}

impl fmt::Display for DutyCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ppm(ppm) if ppm % 10_000 == 0 => write!(f, "{}%", ppm / 10_000),
            Self::Ppm(ppm) => {
                let digits = [ppm / 1000 % 10, ppm / 100 % 10, ppm / 10 % 10, ppm % 10];
                let last = digits.iter().rposition(|&d| d != 0).unwrap_or(0);
                write!(f, "{}.", ppm / 10_000)?;
                digits[..=last].iter().try_for_each(|d| write!(f, "{d}"))?;
                f.write_str("%")
            }
            Self::Ns(ns) => crate::ns::Ns(ns).fmt(f),
            Self::Cycles(c) => write!(f, "{c:#010x}"),
        }
    }
}
