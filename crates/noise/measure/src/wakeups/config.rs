// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of a measurement of wake-up latency, and the reasons for its threads to fail.

use colony_node::NodeError;
use colony_node::cpu::{self, CpuSet};
use colony_time::text::Ns;

use crate::condition::{Condition, ConditionError, Quantity};
use crate::probing::Attribution;
use crate::selfish;

/// The parameters of a measurement of wake-up latency.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs to measure, a thread each.
    pub cpus: CpuSet,
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Time between two instants of a CPU's timer, nanoseconds.
    pub interval_ns: u64,
    /// `None`: the class the process has; else `SCHED_FIFO` with this priority.
    pub fifo: Option<u8>,
    /// All threads end at the first latency that meets the condition; `None`: they end after the duration.
    pub until: Option<Condition>,
    /// The probe.
    pub attribution: Attribution,
}

impl Config {
    /// The shortest interval: below it, a thread has hardly gone to sleep when it is woken again.
    pub const MIN_INTERVAL_NS: u64 = 50_000;
    /// The longest interval: a thread that is asked to end does so at its next instant.
    pub const MAX_INTERVAL_NS: u64 = colony_time::NS_PER_S;

    /// Checks what can be checked before anything runs.
    ///
    /// # Errors
    /// [`SleeperError`] names the wish that cannot be fulfilled.
    pub fn check(&self) -> Result<(), SleeperError> {
        cpu::check(&self.cpus)?;
        if let Some(until) = self.until {
            until.check(Quantity::Latency)?;
        }
        let wish = |parameter, found: String, range| Err(SleeperError::Range { parameter, found, range });
        if !(Self::MIN_INTERVAL_NS..=Self::MAX_INTERVAL_NS).contains(&self.interval_ns) {
            return wish("the interval", Ns(self.interval_ns).to_string(), "50 us to 1 s");
        }
        let longest_ns = selfish::Config::MAX_DURATION_NS;
        if self.duration_ns > longest_ns {
            return wish("the duration", Ns(self.duration_ns).to_string(), "24 h or less");
        }
        if self.duration_ns < self.interval_ns {
            return Err(SleeperError::Short {
                duration: Ns(self.duration_ns),
                interval: Ns(self.interval_ns),
            });
        }
        if let Some(priority) = self.fifo.filter(|p| !(1..=selfish::Config::MAX_FIFO).contains(p)) {
            return wish("the SCHED_FIFO priority", priority.to_string(), "1 to 90");
        }
        Ok(())
    }
}

/// The reasons for a measurement of wake-up latency to fail.
#[derive(Debug, thiserror::Error)]
pub enum SleeperError {
    /// The node said no.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A condition on something else than a latency.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// A wish out of range.
    #[error("{parameter} is {found}; it must be {range}")]
    Range {
        /// The parameter.
        parameter: &'static str,
        /// The wish.
        found: String,
        /// The range of the parameter.
        range: &'static str,
    },
    /// No wake-up fits into the duration.
    #[error("the duration is {duration}; it must be the interval between two wake-ups, {interval}, or more")]
    Short {
        /// The duration.
        duration: Ns,
        /// The interval.
        interval: Ns,
    },
    /// A thread could not be started.
    #[error("cannot start the sleeping thread of a CPU: {0}")]
    Thread(std::io::Error),
    /// The kernel refused an exact timer.
    #[error("cannot ask for a timer without slack on CPU {cpu}: {error}")]
    TimerSlack {
        /// The CPU.
        cpu: usize,
        /// The kernel's error.
        error: nix::errno::Errno,
    },
    /// A thread died of a bug of ours.
    #[error("the sleeping thread of CPU {0} panicked")]
    Panicked(usize),
}

impl SleeperError {
    /// True if the caller's request is impossible (exit code 2), false if the run failed (exit code 1).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Range { .. } | Self::Short { .. } | Self::Condition(_) => true,
            Self::Node(e) => e.is_wrong_use(),
            Self::Thread(_) | Self::TimerSlack { .. } | Self::Panicked(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_wishes_are_refused() {
        let good = Config {
            cpus: cpu::usable().expect("linux"),
            duration_ns: 1_000_000_000,
            interval_ns: 1_000_000,
            fifo: None,
            until: Some("latency > 1ms".parse().expect("a condition")),
            attribution: Attribution::Auto,
        };
        assert!(good.check().is_ok());
        for bad in [
            Config { interval_ns: 49_999, ..good.clone() },
            Config { interval_ns: 1_000_000_001, duration_ns: 5_000_000_000, ..good.clone() },
            Config { duration_ns: 999_999, ..good.clone() },
            Config { duration_ns: 86_400_000_000_001, ..good.clone() },
            Config { fifo: Some(0), ..good.clone() },
            Config { cpus: "1000".parse().expect("a list"), ..good.clone() },
            Config { until: Some("detour > 1ms".parse().expect("a condition")), ..good },
        ] {
            assert!(bad.check().is_err_and(|e| e.is_wrong_use()), "{bad:?}");
        }
    }
}
