//! Machines: network, collective hardware, and how ranks are placed. Profiles are TOML.

use serde::{Deserialize, Serialize};

use crate::network::{MachineNetwork, Topology};
use crate::scenario::BaseTime;
use crate::{Layout, LogGops, SimError};

/// A machine profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name.
    pub name: String,
    /// Where its figures come from, for those who read results.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Ranks on each node, one a core.
    pub ranks_per_node: u32,
    /// Point-to-point messages.
    pub loggops: LogGops,
    /// How nodes are connected.
    #[serde(default)]
    pub topology: Topology,
    /// Latency between ranks of one node; as between nodes where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_ns: Option<u64>,
    /// The barrier in hardware, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_barrier: Option<HardwareCollective>,
    /// The network that reduces and broadcasts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_reduce: Option<HardwareCollective>,
}

/// A collective in hardware (Blue Gene/L's barrier and collective networks, SC06).
///
/// It has `phases`, up and down the tree: in each, every rank takes `cpu_ns` of CPU time to put its part
/// in, and the phase is over for all when the last has and the network's time has passed. At the end
/// every rank takes `cpu_ns` to see the result. So a detour anywhere delays all, once a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareCollective {
    /// Time of the whole operation without noise, by nodes.
    pub time: BaseTime,
    /// Times that all wait for all.
    pub phases: u32,
    /// CPU time of each rank in each phase, and at the end.
    pub cpu_ns: u64,
}

impl HardwareCollective {
    /// Time in the network of one phase on `nodes` nodes: the whole time less the CPU's, over the phases.
    #[must_use]
    pub fn wire_ns(&self, nodes: u64) -> u64 {
        let cpu = self.cpu_ns as f64 * f64::from(self.phases + 1);
        ((self.time.ns(nodes) - cpu).max(0.0) / f64::from(self.phases.max(1))).round() as u64
    }
}

impl Machine {
    /// LogGOPSim's defaults, one rank a node, no hardware collectives.
    #[must_use]
    pub fn loggopsim() -> Self {
        Self {
            name: "loggopsim".into(),
            sources: vec!["the default parameters of LogGOPSim".into()],
            ranks_per_node: 1,
            loggops: LogGops::default(),
            topology: Topology::Flat,
            inside_ns: None,
            hardware_barrier: None,
            hardware_reduce: None,
        }
    }

    /// Its ranks on `nodes` nodes.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn layout(&self, nodes: u32) -> Result<Layout, SimError> {
        Layout::new(nodes, self.ranks_per_node)
    }

    /// Its network on `nodes` nodes.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn network(&self, nodes: u32) -> Result<MachineNetwork, SimError> {
        Ok(MachineNetwork::new(self.loggops, self.topology.clone(), self.layout(nodes)?, self.inside_ns))
    }
}
