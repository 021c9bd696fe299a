// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of this node's clock according to the program that disciplines it.
//!
//! The kernel's figure (`maxerror` of adjtimex(2)) grows by 500 µs a second between two updates, and is missing where
//! nobody tells the kernel. The programs themselves know better:
//!
//! * [`chrony`]: chronyd's root delay, root dispersion and remaining correction;
//! * [`ptp4l`]: ptp4l's offset and path delay, with software time stamps.
//!
//! Every answer is foreign input: it is decoded with bounds, and a program that does not answer costs [`TIMEOUT`] at most.

pub mod chrony;
pub mod ptp4l;

use std::io;
use std::time::Duration;

/// The longest wait for an answer: the programs run on this node.
pub const TIMEOUT: Duration = Duration::from_millis(200);
/// The oldest reading that is used, nanoseconds.
pub const OLDEST_NS: i64 = 60_000_000_000;
/// The largest error that means anything: beyond, a clock is not synchronised. Ten seconds.
const MOST_S: f64 = 10.0;

/// The state of a clock according to the program that disciplines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The program.
    pub source: &'static str,
    /// The instant of the answer, on `CLOCK_MONOTONIC`.
    pub monotonic_ns: i64,
    /// The largest error of the clock then, nanoseconds; `None` where the clock is not synchronised.
    pub bound_ns: Option<u64>,
    /// The largest growth of that error, parts per million.
    pub growth_ppm: f64,
}

impl Reading {
    /// The largest error at `monotonic_ns`; `None` where the clock is not synchronised, or the reading too old.
    #[must_use]
    pub fn bound_at(&self, monotonic_ns: i64) -> Option<u64> {
        let age_ns = monotonic_ns.checked_sub(self.monotonic_ns).filter(|a| *a <= OLDEST_NS)?.max(0);
        let grown = (age_ns as f64 * self.growth_ppm * 1e-6).ceil() as u64;
        self.bound_ns.map(|b| b.saturating_add(grown))
    }
}

/// A program that disciplines the clock, and can be asked.
pub trait Source: Send + std::fmt::Debug {
    /// Asks it.
    ///
    /// # Errors
    /// If the program does not run, does not answer, or its answer is not understood.
    fn read(&mut self) -> Result<Reading, SourceError>;
}

/// A source without an answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It does not run, or may not be asked.
    #[error("{name} does not answer at {place}: {source}")]
    Silent {
        /// The program.
        name: &'static str,
        /// Its socket.
        place: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It refused.
    #[error("{name} refused to report (status {status})")]
    Refused {
        /// The program.
        name: &'static str,
        /// Its status.
        status: u16,
    },
    /// It follows no clock but that of this node.
    #[error(
        "{name} follows only this node's own clock, which is no time that nodes have in common: give it a server or a reference clock"
    )]
    OwnClock {
        /// The program.
        name: &'static str,
    },
    /// Its answer has no form that is known here.
    #[error("{name} answered in a form that is not understood: {what}")]
    Form {
        /// The program.
        name: &'static str,
        /// The problem with it.
        what: &'static str,
    },
}

/// Seconds as nanoseconds, rounded up; `None` for what is no error of a synchronised clock.
fn error_ns(seconds: f64) -> Option<u64> {
    (0.0..=MOST_S).contains(&seconds).then(|| (seconds * 1e9).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_grows_with_age_and_ends() {
        let r = Reading { source: "x", monotonic_ns: 5, bound_ns: Some(100), growth_ppm: 2.0 };
        assert_eq!(r.bound_at(5), Some(100));
        assert_eq!(r.bound_at(1_000_000_005), Some(2_100));
        assert_eq!(r.bound_at(4), Some(100), "asked meanwhile");
        assert_eq!(r.bound_at(6 + OLDEST_NS), None);
        assert_eq!(r.bound_at(i64::MIN), None);
        assert_eq!(Reading { bound_ns: None, ..r }.bound_at(5), None);
        assert_eq!([error_ns(f64::NAN), error_ns(-1.0), error_ns(11.0)], [None; 3]);
    }
}
