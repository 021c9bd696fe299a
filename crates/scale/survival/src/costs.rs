// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a checkpoint, a recovery and an evacuation cost, from the parameters of machine and job.

use serde::{Deserialize, Serialize};

use crate::formula;
use crate::scenario::Scenario;
use crate::scheme::Scheme;

/// Copies of a state in memory at once: the live one, and old and new checkpoint of the PE and of its buddy. An old
/// checkpoint is dropped when the new one is complete everywhere.
const COPIES: f64 = 5.0;
/// Copies of a state that an evacuation moves: the live one, the PE's checkpoint and its buddy's.
const MOVED: f64 = 3.0;

/// Why a scheme is impossible on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Unfit {
    /// The job has one node.
    #[error("a copy in memory needs a second node, and the job has one")]
    OneNode,
    /// The copies do not fit.
    #[error("five copies of the state ({needed:.3e} bytes a PE) do not fit into memory ({memory:.3e})")]
    Memory {
        /// Bytes of the copies.
        needed: f64,
        /// Bytes of memory of a PE.
        memory: f64,
    },
    /// A warning comes too late.
    #[error("an evacuation takes {needed_s:.3} s, and a warning precedes a failure by {warning_s:.3} s")]
    Warning {
        /// Time of an evacuation.
        needed_s: f64,
        /// Time from warning to failure.
        warning_s: f64,
    },
}

/// Times of a scheme on a machine, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// A checkpoint, in which no PE computes.
    pub checkpoint_s: f64,
    /// A checkpoint on disk, if the scheme has these as a second level.
    pub second_s: Option<f64>,
    /// From a failure to the moment that PEs compute again; computing the lost work again comes on top.
    pub recovery_s: f64,
    /// The same if both copies in memory are lost.
    pub recovery_lost_s: f64,
    /// From a failure to the moment that every state has two copies again.
    pub window_s: f64,
    /// An evacuation, in which no PE computes; `None`: the scheme has none.
    pub evacuation_s: Option<f64>,
    /// Time of computing, over that without the scheme.
    pub stretch: f64,
    /// Speed at which lost work is replayed by a few nodes while the others wait; `None`: all nodes compute it again.
    pub replay: Option<f64>,
    /// True if the nodes wait in a checkpoint, for the file system; in memory they copy.
    pub waits: bool,
}

impl Costs {
    /// Costs of `scheme`.
    ///
    /// # Errors
    /// [`Unfit`] if the machine cannot run it.
    pub fn of(s: &Scenario, scheme: Scheme) -> Result<Self, Unfit> {
        let (m, f) = (&s.machine, &s.failures);
        let bytes = s.node_bytes();
        // one node's link bounds a small job, the file system a large one
        let disk_s = (bytes * s.nodes() as f64 / m.disk_bytes_per_s).max(bytes / m.link_bytes_per_s);
        let link_s = m.latency_s + bytes / m.link_bytes_per_s;
        let relaunch_s = f.detection_s + f.relaunch_s;
        let mut costs = Self {
            checkpoint_s: 0.0,
            second_s: None,
            recovery_s: relaunch_s,
            recovery_lost_s: relaunch_s,
            window_s: 0.0,
            evacuation_s: None,
            stretch: 1.0,
            replay: None,
            waits: false,
        };
        if scheme == Scheme::Disk {
            (costs.checkpoint_s, costs.recovery_s, costs.waits) = (disk_s, relaunch_s + disk_s, true);
        }
        if scheme.in_memory() {
            fits(s)?;
            // the failed node's state comes from its buddy; its buddy's copy goes to the new node afterwards
            costs.checkpoint_s = bytes / m.copy_bytes_per_s + link_s;
            costs.recovery_s = f.detection_s + f.restart_s + link_s.max(bytes / m.copy_bytes_per_s);
            costs.window_s = costs.recovery_s + link_s;
        }
        match scheme {
            Scheme::DoubleDisk => {
                costs.second_s = Some(disk_s);
                costs.recovery_lost_s = relaunch_s + disk_s;
            }
            Scheme::Evacuation => {
                let needed_s = m.latency_s + MOVED * bytes / m.link_bytes_per_s;
                if needed_s > s.abilities.warning_s {
                    return Err(Unfit::Warning { needed_s, warning_s: s.abilities.warning_s });
                }
                costs.evacuation_s = Some(needed_s);
            }
            Scheme::Logging => {
                costs.stretch = 1.0 + s.abilities.logging;
                costs.replay = Some(s.abilities.replay_nodes.min(s.nodes() - 1) as f64);
            }
            Scheme::None | Scheme::Disk | Scheme::Double => {}
        }
        Ok(costs)
    }

    /// Mean time between failures that the scheme does not avert.
    #[must_use]
    pub fn unaverted_mtbf_s(&self, s: &Scenario) -> f64 {
        let averted = if self.evacuation_s.is_some() { s.abilities.predicted } else { 0.0 };
        // none at all is as good as one in a very long time
        s.platform_mtbf_s() / (1.0 - averted).max(1e-12)
    }

    /// Optimal interval by Daly's formula. With evacuation, for the failures that are not averted; with replay, for an MTBF
    /// longer by the speed of the replay: lost work costs so much less (of first order). `None` without checkpoints.
    #[must_use]
    pub fn daly_s(&self, s: &Scenario) -> Option<f64> {
        (self.checkpoint_s > 0.0)
            .then(|| formula::daly(self.checkpoint_s, self.unaverted_mtbf_s(s) * self.replay.unwrap_or(1.0)))
    }

    /// Number of checkpoints in memory from one on disk to the next, with Young's interval for losses of both copies.
    /// The job's length if it is longer.
    #[must_use]
    pub fn every(&self, s: &Scenario, interval_s: f64) -> Option<u64> {
        let lost_per_s = s.nodes() as f64 / s.failures.mtbf_s * (self.window_s / s.failures.mtbf_s);
        let best_s = formula::young(self.second_s?, 1.0 / lost_per_s).min(s.job.work_s);
        Some(((best_s / interval_s).round() as u64).max(1))
    }

    /// Expected time of the job over its work. Exact for exponential failures and the schemes that go back to a checkpoint,
    /// losses of both copies left out; of first order for evacuations and replay. Infinite if there is no progress.
    #[must_use]
    pub fn expected(&self, s: &Scenario, interval_s: f64) -> f64 {
        let (work_s, mtbf_s) = (s.job.work_s * self.stretch, self.unaverted_mtbf_s(s));
        let time_s = match self.replay {
            None => formula::expected_wall(work_s, interval_s, self.checkpoint_s, self.recovery_s, mtbf_s),
            Some(speed) => {
                // a failure interrupts computing at the rate 1 / M for a pause that failures restart: e^(pause / M)
                let lost_s = (interval_s + self.checkpoint_s).min(work_s) / 2.0;
                let pauses = ((self.recovery_s + lost_s / speed) / mtbf_s).exp();
                work_s * (1.0 + self.checkpoint_s / interval_s) * pauses
            }
        };
        time_s * self.evacuations(s) / s.job.work_s
    }

    /// Time over that without evacuations. A predicted failure in the pause of an evacuation makes it longer; a false alarm
    /// does not.
    fn evacuations(&self, s: &Scenario) -> f64 {
        let Some(pause_s) = self.evacuation_s else { return 1.0 };
        let predicted = s.abilities.predicted * pause_s / s.platform_mtbf_s();
        if predicted >= 1.0 {
            return f64::INFINITY;
        }
        1.0 + predicted / s.abilities.precision / (1.0 - predicted)
    }
}

/// Checks that a state has a second node and room for its copies.
fn fits(s: &Scenario) -> Result<(), Unfit> {
    if s.nodes() < 2 {
        return Err(Unfit::OneNode);
    }
    let (needed, memory) = (COPIES * s.job.state_bytes, s.machine.memory_bytes);
    if needed > memory { Err(Unfit::Memory { needed, memory }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_the_bytes_that_move() {
        let s = Scenario::default();
        let double = Costs::of(&s, Scheme::Double).expect("fits");
        // 64 GB a node: 0.62 s to copy, 2.56 s to send
        assert!((double.checkpoint_s - (64e9 / 102.5e9 + 64e9 / 25e9 + 2e-6)).abs() < 1e-9);
        assert!((double.recovery_s - 17.56).abs() < 0.01, "{double:?}");
        let disk = Costs::of(&s, Scheme::Disk).expect("fits");
        assert!((disk.checkpoint_s - 131.072e12 / 5e12).abs() < 1e-6, "{disk:?}");
        let small = Costs::of(&s.on(128), Scheme::Disk).expect("fits");
        assert!((small.checkpoint_s - 2.56).abs() < 1e-9, "bounded by the link: {small:?}");
    }

    #[test]
    fn a_scheme_that_the_machine_cannot_run_says_why() {
        let s = Scenario::default();
        assert_eq!(Costs::of(&s.on(64), Scheme::Double), Err(Unfit::OneNode));
        let mut large = s.clone();
        large.job.state_bytes = 2e9;
        assert!(matches!(Costs::of(&large, Scheme::Logging), Err(Unfit::Memory { .. })));
        assert!(Costs::of(&large, Scheme::Disk).is_ok());
        let mut late = s;
        late.abilities.warning_s = 1.0;
        assert!(matches!(Costs::of(&late, Scheme::Evacuation), Err(Unfit::Warning { .. })));
    }
}
