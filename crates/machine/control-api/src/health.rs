// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that get no more jobs, and the events that lead to it, in JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of the machine whose compute nodes get no new jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// A compute node, an I/O node (for the compute nodes of its pset), a node card, a midplane or a rack.
    pub location: String,
    /// The reason.
    pub reason: String,
    /// The user who drained it; `colony-control` if a threshold did.
    pub user: String,
    /// When it was drained, seconds since 1970.
    pub since: f64,
}

/// Parts of the machine to drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// A compute node, an I/O node (for the compute nodes of its pset), a node card, a midplane or a rack; or several, separated
    /// by commas, which are drained all or none.
    pub location: String,
    /// The reason.
    pub reason: String,
}

/// The events of one kind at one node that drain the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// The code of the events.
    pub code: String,
    /// Number of events that drains the node; 0: none does.
    pub events: u32,
    /// The window in which they are counted, seconds.
    pub within_s: f64,
}

/// The events of one code at one location.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rate {
    /// The location.
    pub location: String,
    /// The code.
    pub code: String,
    /// Events in the window.
    pub events: u64,
    /// Events an hour.
    pub per_hour: f64,
    /// When the last of them happened, seconds since 1970.
    pub last: f64,
}
