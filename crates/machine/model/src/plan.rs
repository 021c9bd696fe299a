// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it takes to boot a machine: connections, bytes, messages, state and time.
//!
//! The tree is the one that a real boot uses ([`crate::PushTree`]); only the transport is simulated.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::transport::{Loads, Timeline, simulate};
use crate::{ENCODED_BYTES, Machine, ModelError, PsetSize, Psets, PushTree, Sender, Shape};

pub use crate::transport::{Link, Transport};

/// Bytes of the things that a boot moves and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// Kernel of compute nodes.
    pub kernel: u64,
    /// Kernel and ramdisk of I/O nodes.
    pub io_image: u64,
    /// A report or a heartbeat.
    pub message: u64,
    /// State that the control daemon keeps of a node beside its personality.
    pub node_state: u64,
}

impl Default for Sizes {
    /// The compute node kernel of this release, rounded up, and assumptions.
    fn default() -> Self {
        Self { kernel: 512 << 10, io_image: 16 << 20, message: 64, node_state: 256 }
    }
}

/// What is to be booted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The machine, one partition.
    pub machine: Machine,
    /// Compute nodes of a pset.
    pub pset: PsetSize,
    /// The most I/O nodes that a node sends to.
    pub fanout: NonZeroU32,
    /// Sizes.
    pub sizes: Sizes,
    /// Parameters of the transport.
    pub transport: Transport,
}

/// What it takes to boot a machine. Times are seconds from the first byte.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What is booted.
    pub boot: Boot,
    /// Extent of a pset.
    pub pset_shape: Shape,
    /// Compute nodes.
    pub nodes: u32,
    /// I/O nodes.
    pub io_nodes: u32,
    /// Midplanes.
    pub midplanes: u32,
    /// Racks.
    pub racks: u32,
    /// Depth of the collective network.
    pub collective_depth: u32,
    /// Steps of the push, from the service node down.
    pub steps: Vec<Step>,
    /// Bytes.
    pub bytes: Bytes,
    /// Control messages.
    pub messages: Messages,
    /// Bytes of state that the control daemon keeps.
    pub state_bytes: u64,
    /// The last I/O node has booted.
    pub io_nodes_ready_s: f64,
    /// The last compute node has booted.
    pub nodes_ready_s: f64,
    /// The service node has the reports of all nodes.
    pub reported_s: f64,
    /// The same boot with other fan-outs.
    pub fanouts: Vec<Fanout>,
}

/// A step of the push.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Level of the receivers: 1 for I/O nodes that the service node sends to. Compute nodes are the last step.
    pub level: u32,
    /// True if the receivers are compute nodes.
    pub is_compute: bool,
    /// Nodes that send.
    pub senders: u32,
    /// Nodes that receive: as many connections.
    pub receivers: u32,
    /// Bytes of all connections.
    pub bytes: u64,
    /// The last receiver has its data.
    pub given_s: f64,
}

/// Bytes of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Personalities of all nodes, each once.
    pub personalities: u64,
    /// Sent by the service node.
    pub service: u64,
    /// Sent by the I/O node that sends most.
    pub busiest_io_node: u64,
    /// On all connections.
    pub total: u64,
}

/// Control messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Messages {
    /// Pushes, one for each node.
    pub pushes: u64,
    /// Reports, one for each node; an I/O node reports for all below it at once.
    pub reports: u64,
    /// Connections of the service node.
    pub service_connections: u32,
    /// Heartbeats on all connections, per second.
    pub heartbeats_per_s: f64,
    /// Heartbeats that the service node receives, per second.
    pub service_heartbeats_per_s: f64,
    /// Bytes of heartbeats that the service node receives, per second. A heartbeat has one bit for each node below.
    pub service_heartbeat_bytes_per_s: f64,
}

/// The same boot with another fan-out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fanout {
    /// The fan-out.
    pub fanout: NonZeroU32,
    /// Levels of I/O nodes.
    pub levels: u32,
    /// Bytes sent by the service node.
    pub service_bytes: u64,
    /// The service node has the reports of all nodes.
    pub reported_s: f64,
}

/// Plans a boot.
///
/// # Errors
/// [`ModelError::PsetTooLarge`] and [`ModelError::Transport`].
pub fn plan(boot: &Boot) -> Result<Plan, ModelError> {
    boot.transport.check()?;
    let machine = boot.machine;
    let psets = Psets::new(machine.shape(), boot.pset)?;
    let (nodes, io_nodes) = (u64::from(machine.nodes()), u64::from(psets.count()));
    let tree = PushTree::new(psets, boot.fanout);
    let (loads, timeline) = push(tree, boot);
    let bytes = bytes(tree, loads);
    let latest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    Ok(Plan {
        boot: *boot,
        pset_shape: psets.shape(),
        nodes: machine.nodes(),
        io_nodes: psets.count(),
        midplanes: machine.midplanes(),
        racks: machine.racks(),
        collective_depth: crate::Collective::new(psets).depth(),
        steps: steps(tree, loads, &timeline),
        bytes,
        messages: messages(tree, boot),
        state_bytes: (nodes + io_nodes)
            .saturating_mul(boot.sizes.node_state.saturating_add(ENCODED_BYTES as u64)),
        io_nodes_ready_s: latest(&timeline.io_given) + boot.transport.io_boot_s,
        nodes_ready_s: latest(&timeline.pset_given) + boot.transport.node_boot_s,
        reported_s: timeline.reported,
        fanouts: fanouts(psets.count()).map(|fanout| other(psets, fanout, boot)).collect(),
    })
}

fn push(tree: PushTree, boot: &Boot) -> (Loads, Timeline) {
    let personality = ENCODED_BYTES as u64;
    let loads = Loads {
        io: boot.sizes.io_image.saturating_add(boot.sizes.kernel),
        pset: (1 + u64::from(boot.pset.nodes())) * personality,
        node: boot.sizes.kernel.saturating_add(personality),
    };
    (loads, simulate(tree, loads, &boot.transport))
}

/// Bytes that a node sends to I/O nodes.
fn to_io(tree: PushTree, subtrees: &[u32], loads: Loads, from: Sender) -> u64 {
    tree.io_children(from).map(|pset| loads.to_io(subtrees[pset as usize])).fold(0, u64::saturating_add)
}

fn bytes(tree: PushTree, loads: Loads) -> Bytes {
    let (psets, subtrees) = (tree.psets(), tree.subtrees());
    let to_nodes = loads.node.saturating_mul(psets.size().nodes().into());
    let service = to_io(tree, &subtrees, loads, Sender::Service);
    let sent = |pset| to_io(tree, &subtrees, loads, Sender::Io(pset)).saturating_add(to_nodes);
    let all = (0..psets.count()).map(sent);
    let (most, sum) = all.fold((0, service), |(most, sum), sent| (sent.max(most), sent.saturating_add(sum)));
    Bytes { personalities: u64::from(psets.count()) * loads.pset, service, busiest_io_node: most, total: sum }
}

fn steps(tree: PushTree, loads: Loads, timeline: &Timeline) -> Vec<Step> {
    let (psets, subtrees) = (tree.psets(), tree.subtrees());
    let mut steps: Vec<Step> = Vec::new();
    for pset in 0..psets.count() {
        let (level, at) = (tree.level(pset), timeline.io_given[pset as usize]);
        // psets are numbered by level
        if steps.last().is_none_or(|step| step.level != level) {
            steps.push(Step { level, is_compute: false, senders: 0, receivers: 0, bytes: 0, given_s: 0.0 });
        }
        if let Some(step) = steps.last_mut() {
            step.senders += u32::from(pset.is_multiple_of(tree.fanout().get()));
            step.receivers += 1;
            step.bytes = step.bytes.saturating_add(loads.to_io(subtrees[pset as usize]));
            step.given_s = step.given_s.max(at);
        }
    }
    let nodes = psets.count() * psets.size().nodes();
    steps.push(Step {
        level: steps.last().map_or(1, |step| step.level + 1),
        is_compute: true,
        senders: psets.count(),
        receivers: nodes,
        bytes: loads.node.saturating_mul(nodes.into()),
        given_s: timeline.pset_given.iter().copied().fold(0.0, f64::max),
    });
    steps
}

fn messages(tree: PushTree, boot: &Boot) -> Messages {
    let psets = tree.psets();
    let all = u64::from(psets.count()) * u64::from(1 + psets.size().nodes());
    let direct = tree.io_children(Sender::Service).len() as u32;
    let per_s = 1.0 / boot.transport.heartbeat_s;
    let bits = all.div_ceil(8) as f64;
    Messages {
        pushes: all,
        reports: all,
        service_connections: direct,
        heartbeats_per_s: all as f64 * per_s,
        service_heartbeats_per_s: f64::from(direct) * per_s,
        service_heartbeat_bytes_per_s: (f64::from(direct) * boot.sizes.message as f64 + bits) * per_s,
    }
}

/// Powers of two, and last the service node alone.
fn fanouts(io_nodes: u32) -> impl Iterator<Item = NonZeroU32> {
    let powers = (1..32).map(|n| 1 << n).take_while(move |&n| n < io_nodes);
    powers.chain([io_nodes]).filter_map(NonZeroU32::new)
}

fn other(psets: Psets, fanout: NonZeroU32, boot: &Boot) -> Fanout {
    let tree = PushTree::new(psets, fanout);
    let (loads, timeline) = push(tree, boot);
    let service_bytes = to_io(tree, &tree.subtrees(), loads, Sender::Service);
    Fanout { fanout, levels: tree.levels(), service_bytes, reported_s: timeline.reported }
}
