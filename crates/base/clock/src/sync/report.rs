// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a walk of the tree.

use colony_time::Estimate;
use serde::{Deserialize, Serialize};

/// Datagrams that were dropped in a walk, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// From addresses that are not in the host list.
    pub strangers: u64,
    /// Not signed with the key of this node, if it has one.
    pub unsigned: u64,
    /// Of no known form.
    pub malformed: u64,
    /// Of another version.
    pub other_version: u64,
    /// Of a node with another host list.
    pub other_list: u64,
}

impl Dropped {
    /// Returns `true` if datagrams were dropped.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            (self.strangers, "from addresses outside the host list"),
            (self.unsigned, "not signed with this key"),
            (self.malformed, "malformed"),
            (self.other_version, "of another version"),
            (self.other_list, "with another host list"),
        ];
        let mut between = "";
        for (n, why) in all.into_iter().filter(|(n, _)| *n > 0) {
            write!(f, "{between}{n} {why}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// The result of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeResult {
    /// Its rank.
    pub rank: u32,
    /// Its name in the list.
    pub host: String,
    /// Steps to rank 0.
    pub depth: u32,
    /// Rank 0's clock as this node's clock tells it.
    pub estimate: Estimate,
    /// Quickest round trip to its parent, nanoseconds.
    pub round_trip_ns: u64,
    /// Distance of the line from its samples, nanoseconds.
    pub residual_ns: f64,
    /// Round trips made with the parent.
    pub trips: u32,
    /// Questions that were not answered.
    pub lost: u32,
}

/// The result of one walk of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncReport {
    /// [`SyncReport::SCHEMA`].
    pub schema: String,
    /// Number of walks of the tree, this one included.
    pub cycle: u32,
    /// Nodes that took part.
    pub node_count: u32,
    /// Rounds that takes.
    pub rounds: u32,
    /// Time of a round, nanoseconds.
    pub round_ns: u64,
    /// Time between two questions, nanoseconds.
    pub interval_ns: u64,
    /// The assumed change of drifts, parts per million.
    pub wander_ppm: f64,
    /// This node's rank.
    pub rank: u32,
    /// Datagrams that this node dropped.
    #[serde(default)]
    pub dropped: Dropped,
    /// This node on rank 0's list; on all others only itself and those below it.
    pub nodes: Vec<NodeResult>,
}

impl SyncReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.clock.sync/1";

    /// The result of the node that made the report.
    #[must_use]
    pub fn own(&self) -> Option<&NodeResult> {
        self.nodes.iter().find(|n| n.rank == self.rank)
    }
}
