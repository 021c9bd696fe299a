// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and answers of the control daemon's HTTP interface, in JSON. `GET /v1/openapi.json` describes the interface.

use std::collections::BTreeMap;

use colony_ciod::Export;
use colony_model::Shape;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::access::{Caller, Network, NetworkRequest, Token, TokenRequest};
pub use crate::allocation::{Allocation, Scheduler, memory_mib};
pub use crate::health::{Drain, DrainRequest, Rate, Threshold};
pub use crate::job::{InputTaken, Job, JobRequest, JobState, MACHINE_FAILED, ProgramOfRanks, SignalRequest};
pub use crate::place::{FreeNodes, JobBlock};
pub use crate::rights::{Holder, RightsRequest};

/// A machine to set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineRequest {
    /// Compute nodes along x, y and z, such as `8x8x8`.
    #[schema(value_type = String)]
    pub shape: Shape,
    /// The partition of all nodes, which is booted; without one, the machine has no partitions at first.
    #[serde(default)]
    pub partition: Option<NodeRequest>,
    /// The allocation of a site's scheduler that the machine is a part of.
    #[serde(default)]
    pub allocation: Option<Allocation>,
}

/// The kind of a partition's I/O nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IoNodeKind {
    /// Processes of the host, with its files.
    #[default]
    Process,
    /// Virtual Linux machines, each with files of its own: one a pset.
    Linux,
}

/// The nodes of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeRequest {
    /// Compute nodes of a pset: 8, 16, 32, 64 or 128.
    pub pset: u32,
    /// CPUs of a compute node.
    pub cpus: u32,
    /// Memory of a compute node's processes, MiB: a power of two.
    pub memory_mib: u64,
    /// The kind of its I/O nodes.
    #[serde(default)]
    pub io_nodes: IoNodeKind,
    /// Folders of the host that jobs on its Linux I/O nodes use, each `DIR`, or `DIR:ro` to read only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub io_exports: Vec<Export>,
}

/// A partition to make, of nodes that no other partition has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionRequest {
    /// Its name; by default, that of its first midplane or node.
    #[serde(default)]
    pub name: Option<String>,
    /// Compute nodes along x, y and z, such as `4x4x2`.
    #[schema(value_type = String)]
    pub shape: Shape,
    /// Its first node; by default, the first place where the shape fits, in any orientation.
    #[serde(default)]
    pub origin: Option<[u32; 3]>,
    /// Its nodes.
    pub nodes: NodeRequest,
}

/// State of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionState {
    /// Its nodes boot.
    Booting,
    /// Its nodes take jobs.
    Ready,
    /// As `ready`, but some nodes are drained: `usable` says what still fits.
    Degraded,
    /// The process that owns the nodes is stopped or hangs. Jobs that run may go on; no other job begins.
    Lost,
    /// Its nodes are being switched off.
    Freeing,
    /// Its nodes are switched off.
    Free,
    /// It could not be booted, or the process that owns its nodes has ended.
    Failed,
}

/// State of a compute node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It has not been started.
    Off,
    /// Its kernel has not asked for work yet.
    Booting,
    /// It waits for a job.
    Ready,
    /// It runs a job.
    Busy,
    /// A job left the node in the middle, or its emulator is stopped: the node is started again before the next job. All nodes of a
    /// partition are lost while the process that owns them does not answer.
    Lost,
    /// It has died.
    Dead,
    /// It gets no new jobs: an operator or a threshold of events has drained it. While a job runs on it, it is busy.
    Drained,
}

/// A partition of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// Compute nodes along x, y and z.
    #[schema(value_type = String)]
    pub shape: Shape,
    /// Coordinates of its first node in the machine.
    pub origin: [u32; 3],
    /// Its nodes.
    pub node: NodeRequest,
    /// I/O nodes: one a pset.
    pub io_nodes: u32,
    /// Its state.
    pub state: PartitionState,
    /// The reason of a failure, or why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Process id of the process that owns its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Time from the start of the first node until all were ready, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_s: Option<f64>,
    /// The users and groups who may run jobs, beside operators; nobody: all users may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Holder>,
    /// Number of nodes by state.
    pub nodes: BTreeMap<NodeState, u32>,
    /// The nodes that jobs can have now, if it is ready or degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<FreeNodes>,
    /// The nodes that jobs could have if no job ran, if it is degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable: Option<FreeNodes>,
}

/// A compute node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its number in the partition.
    pub number: u32,
    /// Its location, such as `R00-M0-N04-J12`.
    pub location: String,
    /// Its coordinates in the machine.
    pub coords: [u32; 3],
    /// The number of its pset.
    pub pset: u32,
    /// Its state.
    pub state: NodeState,
    /// The reason why it gets no new jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<String>,
}

/// A compute node, and what it has been told about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    /// The node.
    pub node: Node,
    /// Its personality.
    pub personality: NodePersonality,
}

/// The personality of a compute node, with locations instead of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodePersonality {
    /// Memory of its processes, MiB.
    pub memory_mib: u64,
    /// Extent of the partition's torus.
    #[schema(value_type = String)]
    pub torus: Shape,
    /// Its coordinates in the torus.
    pub torus_coords: [u32; 3],
    /// Its rank in its pset.
    pub rank_in_pset: u32,
    /// Compute nodes of each pset.
    pub pset_size: u32,
    /// The I/O node of its pset.
    pub io_node: String,
    /// The node above it in the collective network.
    pub parent: Option<String>,
    /// The nodes below it in the collective network.
    pub children: Vec<String>,
    /// Links between it and the root of the collective network.
    pub depth: u32,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// `colony.machine/1`.
    pub schema: String,
    /// Compute nodes along x, y and z.
    #[schema(value_type = String)]
    pub shape: Shape,
    /// Its partitions by name.
    pub partitions: Vec<Partition>,
    /// Jobs that wait or run, the newest first, without their environments: 1,000 at most.
    pub jobs: Vec<Job>,
    /// Jobs that wait or run and are left out of `jobs`.
    #[serde(default)]
    pub more_jobs: u64,
    /// Its parts that get no new jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<Drain>,
    /// The allocation of a site's scheduler that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something that is expected.
    Info,
    /// Something to look at.
    Warning,
    /// A part does not work, and has been or can be replaced.
    Error,
    /// Work has been lost.
    Fatal,
}

/// An event of reliability, availability and serviceability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number. Events are numbered in the order in which they are stored.
    pub id: u64,
    /// When it happened, seconds since 1970.
    pub time: f64,
    /// Its severity.
    pub severity: Severity,
    /// Location of the event: a partition, or a node of one.
    pub location: String,
    /// Its kind.
    pub code: String,
    /// Description of the event.
    pub message: String,
    /// The job that it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The failure, and the remedy.
    pub error: String,
}

/// The name of a state or severity, as JSON has it.
#[must_use]
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
