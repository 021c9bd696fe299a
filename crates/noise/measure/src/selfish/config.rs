// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of an observation, and the reasons for it to fail.

use colony_node::NodeError;
use colony_node::cpu::{self, CpuSet};
use colony_time::text::Ns;

use crate::condition::{Condition, ConditionError, Quantity};

/// The parameters of an observation.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs to observe, a thread each.
    pub cpus: CpuSet,
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Gaps shorter than this, the loop's own turn taken off, are not detours. At least [`Config::MIN_THRESHOLD_NS`].
    pub threshold_ns: u64,
    /// `None`: the class the process has; else `SCHED_FIFO` with this priority.
    pub fifo: Option<u8>,
    /// Allows a `SCHED_FIFO` observer to take every CPU of the node.
    pub all_cpus: bool,
    /// Single detours kept per CPU.
    pub ring: usize,
    /// All observers end at the first detour that meets the condition; `None`: they end after the duration.
    pub until: Option<Condition>,
}

impl Config {
    /// The shortest threshold: five turns of the loop.
    pub const MIN_THRESHOLD_NS: u64 = 50;
    /// The longest observation: a day.
    pub const MAX_DURATION_NS: u64 = 86_400 * colony_time::NS_PER_S;
    /// Most single detours kept per CPU: 1 GiB.
    pub const MAX_RING: usize = 1 << 26;
    /// Highest priority of an observer: the watchdog needs one above it.
    pub const MAX_FIFO: u8 = 90;

    /// Checks what can be checked before anything runs.
    ///
    /// # Errors
    /// [`SelfishError`] names the wish that cannot be fulfilled.
    pub fn check(&self) -> Result<(), SelfishError> {
        cpu::check(&self.cpus)?;
        let wish = |parameter, found: &dyn std::fmt::Display, range| SelfishError::Range {
            parameter,
            found: found.to_string(),
            range,
        };
        if self.threshold_ns < Self::MIN_THRESHOLD_NS {
            return Err(wish("the threshold", &Ns(self.threshold_ns), "50 ns or more"));
        }
        if !(1..=Self::MAX_DURATION_NS).contains(&self.duration_ns) {
            return Err(wish("the duration", &Ns(self.duration_ns), "1 ns to 24 h"));
        }
        if !(1..=Self::MAX_RING).contains(&self.ring) {
            return Err(wish("the ring", &self.ring, "1 to 67108864 detours a CPU"));
        }
        if let Some(until) = self.until {
            until.check(Quantity::Detour)?;
        }
        if let Some(until) = self.until.filter(|until| until.limit_ns < self.threshold_ns) {
            let range = "the threshold or more, because shorter detours are not seen";
            return Err(wish("the limit of the condition", &Ns(until.limit_ns), range));
        }
        if let Some(priority) = self.fifo {
            if !(1..=Self::MAX_FIFO).contains(&priority) {
                return Err(wish("the SCHED_FIFO priority", &priority, "1 to 90"));
            }
            if !self.all_cpus && cpu::online()?.without(&self.cpus).is_empty() {
                return Err(SelfishError::AllCpus);
            }
        }
        Ok(())
    }
}

/// The reasons for an observation to fail.
#[derive(Debug, thiserror::Error)]
pub enum SelfishError {
    /// The node said no.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A condition on something else than detours.
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
    /// A real-time observer on every CPU would starve the node.
    #[error(
        "a SCHED_FIFO observer on every CPU would stop this node until it ends; leave one out with --cpus, or say --all-cpus"
    )]
    AllCpus,
    /// A thread could not be started.
    #[error("cannot start an observer thread: {0}")]
    Thread(std::io::Error),
    /// An observer died of a bug of ours.
    #[error("the observer of CPU {0} panicked")]
    Panicked(usize),
}

impl SelfishError {
    /// True if the caller's request is impossible (exit code 2), false if the run failed (exit code 1).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Range { .. } | Self::Condition(_) | Self::AllCpus => true,
            Self::Node(e) => e.is_wrong_use(),
            Self::Thread(_) | Self::Panicked(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let last = cpu::usable().expect("linux").iter().last().expect("a CPU");
        Config {
            cpus: [last].into_iter().collect(),
            duration_ns: 50_000_000,
            threshold_ns: 50,
            fifo: None,
            all_cpus: false,
            ring: 1 << 12,
            until: None,
        }
    }

    #[test]
    fn a_real_time_observer_never_takes_all_cpus_unasked() {
        let all = Config { cpus: cpu::online().expect("linux"), fifo: Some(50), ..config() };
        assert!(matches!(all.check(), Err(SelfishError::AllCpus)));
        assert!(Config { all_cpus: true, ..all }.check().is_ok());
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for bad in [
            Config { threshold_ns: 49, ..config() },
            Config { duration_ns: 0, ..config() },
            Config { ring: 0, ..config() },
            Config { fifo: Some(91), ..config() },
            Config { cpus: "1000".parse().expect("a list"), ..config() },
            Config { until: Some("latency > 1ms".parse().expect("a condition")), ..config() },
            Config { until: Some("detour >= 49ns".parse().expect("a condition")), ..config() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
