// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine, the job, and how nodes fail.

use serde::{Deserialize, Serialize};

use crate::SurvivalError;

/// Seconds of a year of 365 days.
pub const YEAR_S: f64 = 365.0 * 86_400.0;

/// A machine whose nodes are alike.
///
/// The default is a node of Frontier as published (64 cores, 512 GB of DDR4 at 205 GB/s, four links of 25 GB/s; 24.6 MW
/// for 9,408 nodes, TOP500 of November 2024) with these choices: a copy in memory reads and writes, so it runs at half of
/// the memory bandwidth; a message uses one of the four links. Both are lower bounds of the time, as a `memcpy` and a
/// `sendrecv` have them, not measurements of a runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// PEs of a node.
    pub pes_per_node: u64,
    /// Bytes of memory of a PE.
    pub memory_bytes: f64,
    /// Bytes a second that a node copies within its memory, all PEs together.
    pub copy_bytes_per_s: f64,
    /// Bytes a second that a node sends, and receives at the same time.
    pub link_bytes_per_s: f64,
    /// Latency of a message, seconds.
    pub latency_s: f64,
    /// Bytes a second of the shared file system, all nodes together.
    pub disk_bytes_per_s: f64,
    /// Power of a node that computes, watts.
    pub busy_w: f64,
    /// Power of a node that waits, watts.
    pub idle_w: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            pes_per_node: 64,
            memory_bytes: 8e9,
            copy_bytes_per_s: 102.5e9,
            link_bytes_per_s: 25e9,
            latency_s: 2e-6,
            disk_bytes_per_s: 5e12,
            busy_w: 2600.0,
            idle_w: 1000.0,
        }
    }
}

/// Ages of the nodes when the job starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ages {
    /// The machine has run for long: ages are those of renewal processes in equilibrium (Cox, "Renewal theory", 1962,
    /// chapter 5).
    Steady,
    /// All nodes are new.
    New,
}

/// What stands in for a failed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// A new spare node. There are enough.
    Spare,
    /// None: the job goes on with fewer nodes, and so slower, until the node is repaired.
    Shrink,
}

/// How nodes fail, and what that costs before anything is read back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// Mean time between failures of a node, seconds.
    pub mtbf_s: f64,
    /// Shape of the Weibull distribution of a node's life; 1 is the exponential distribution.
    pub shape: f64,
    /// Ages of the nodes when the job starts.
    pub ages: Ages,
    /// From a failure to the moment that the runtime knows of it, seconds.
    pub detection_s: f64,
    /// Time in which a running job takes in a spare node or does without one, seconds.
    pub restart_s: f64,
    /// Time in which the batch system starts the job again, seconds.
    pub relaunch_s: f64,
    /// What stands in for a failed node.
    pub replacement: Replacement,
    /// With [`Replacement::Shrink`], from a failure to the return of the node, seconds.
    pub repair_s: f64,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            mtbf_s: 5.0 * YEAR_S,
            shape: 1.0,
            ages: Ages::Steady,
            detection_s: 5.0,
            restart_s: 10.0,
            relaunch_s: 120.0,
            replacement: Replacement::Spare,
            repair_s: 86_400.0,
        }
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// PEs.
    pub pes: u64,
    /// Time of the job without failures and without a scheme, seconds.
    pub work_s: f64,
    /// Bytes of state of a PE.
    pub state_bytes: f64,
}

impl Default for Job {
    fn default() -> Self {
        Self { pes: 131_072, work_s: 7.0 * 86_400.0, state_bytes: 1e9 }
    }
}

/// What single schemes can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Abilities {
    /// Share of failures that a warning precedes (recall).
    pub predicted: f64,
    /// Share of warnings that a failure follows (precision).
    pub precision: f64,
    /// From a warning to its failure, seconds.
    pub warning_s: f64,
    /// Time that message logging adds to computing, as a share of it.
    pub logging: f64,
    /// Nodes that replay the objects of a failed node.
    pub replay_nodes: u64,
    /// Time that the other nodes can go on computing after a failure before they need data of the failed node, seconds.
    pub independent_s: f64,
}

impl Default for Abilities {
    /// The weaker of the two predictors of Aupy, Robert, Vivien and Zaidouni, "Checkpointing algorithms and fault
    /// prediction", JPDC 74(2), 2014: recall 0.7 and precision 0.4. The other values are choices.
    fn default() -> Self {
        Self {
            predicted: 0.7,
            precision: 0.4,
            warning_s: 60.0,
            logging: 0.05,
            replay_nodes: 8,
            independent_s: 0.0,
        }
    }
}

/// Everything that decides what failures cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// How its nodes fail.
    pub failures: Failures,
    /// The job.
    pub job: Job,
    /// What single schemes can do.
    pub abilities: Abilities,
}

/// The largest number that counts: a thousand years in seconds are less, and so is any machine in bytes.
const MOST: f64 = 1e21;

impl Scenario {
    /// PEs a machine of this study has at most.
    pub const MOST_PES: u64 = 1 << 32;

    /// Nodes of the job; the last may have idle PEs.
    #[must_use]
    pub const fn nodes(&self) -> u64 {
        self.job.pes.div_ceil(self.machine.pes_per_node)
    }

    /// Bytes of state of a node.
    #[must_use]
    pub fn node_bytes(&self) -> f64 {
        self.job.state_bytes * self.machine.pes_per_node.min(self.job.pes) as f64
    }

    /// Mean time between failures of the job's nodes, seconds.
    #[must_use]
    pub fn platform_mtbf_s(&self) -> f64 {
        self.failures.mtbf_s / self.nodes() as f64
    }

    /// The scenario with another job size.
    #[must_use]
    pub fn on(&self, pes: u64) -> Self {
        Self { job: Job { pes, ..self.job.clone() }, ..self.clone() }
    }

    /// The scenario with another mean time between failures of a node.
    #[must_use]
    pub fn with_mtbf(&self, mtbf_s: f64) -> Self {
        Self { failures: Failures { mtbf_s, ..self.failures.clone() }, ..self.clone() }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// [`SurvivalError`] names the first parameter that makes no sense.
    pub fn check(&self) -> Result<(), SurvivalError> {
        let (m, f, j, a) = (&self.machine, &self.failures, &self.job, &self.abilities);
        let count = |parameter, found: u64, most: u64| {
            (1..=most).contains(&found).then_some(()).ok_or(SurvivalError::Parameter {
                parameter,
                found: found as f64,
                must: "a whole number from 1 to 4294967296",
            })
        };
        count("--pes", j.pes, Self::MOST_PES)?;
        count("--pes-per-node", m.pes_per_node, Self::MOST_PES)?;
        count("--replay-nodes", a.replay_nodes, Self::MOST_PES)?;
        for (parameter, found) in [
            ("--memory", m.memory_bytes),
            ("--copy-bandwidth", m.copy_bytes_per_s),
            ("--link-bandwidth", m.link_bytes_per_s),
            ("--disk-bandwidth", m.disk_bytes_per_s),
            ("--power", m.busy_w),
            ("--mtbf", f.mtbf_s),
            ("--work", j.work_s),
            ("--state", j.state_bytes),
        ] {
            within(parameter, found, 1e-9, MOST, "a number above 0 and at most 1e21")?;
        }
        for (parameter, found) in [
            ("--latency", m.latency_s),
            ("--idle-power", m.idle_w),
            ("--detection", f.detection_s),
            ("--restart", f.restart_s),
            ("--relaunch", f.relaunch_s),
            ("--repair", f.repair_s),
            ("--warning", a.warning_s),
            ("--independent", a.independent_s),
        ] {
            within(parameter, found, 0.0, MOST, "a number of at least 0 and at most 1e21")?;
        }
        within("--shape", f.shape, 0.3, 10.0, "a number from 0.3 to 10 (1 is the exponential distribution)")?;
        within("--predicted", a.predicted, 0.0, 1.0, "a share from 0 to 1")?;
        within("--precision", a.precision, 0.01, 1.0, "a share from 0.01 to 1")?;
        within("--logging-overhead", a.logging, 0.0, 100.0, "a share from 0 to 100")?;
        if j.state_bytes > m.memory_bytes {
            return Err(SurvivalError::Memory { state: j.state_bytes, memory: m.memory_bytes });
        }
        Ok(())
    }
}

/// `found`, if it is from `least` to `most`.
fn within(
    parameter: &'static str,
    found: f64,
    least: f64,
    most: f64,
    must: &'static str,
) -> Result<(), SurvivalError> {
    // not a number is not within
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(SurvivalError::Parameter { parameter, found, must })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_outside_of_its_range_is_named_with_its_value() {
        assert_eq!(Scenario::default().check(), Ok(()));
        let wrong = |change: &dyn Fn(&mut Scenario)| {
            let mut s = Scenario::default();
            change(&mut s);
            s.check().expect_err("refused").to_string()
        };
        for (text, parts) in [
            (wrong(&|s| s.job.pes = 0), ["--pes is 0", "from 1"]),
            (wrong(&|s| s.failures.mtbf_s = -1.0), ["--mtbf is -1", "above 0"]),
            (wrong(&|s| s.failures.mtbf_s = f64::NAN), ["--mtbf is NaN", "above 0"]),
            (wrong(&|s| s.failures.shape = 0.0), ["--shape is 0", "0.3 to 10"]),
            (wrong(&|s| s.abilities.predicted = 1.5), ["--predicted is 1.5", "0 to 1"]),
            (wrong(&|s| s.job.state_bytes = 1e12), ["--state", "--memory"]),
        ] {
            assert!(parts.iter().all(|p| text.contains(p)), "{text}");
        }
    }
}
