// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines: network, collective hardware, and how ranks are placed. Profiles are TOML.

use colony_time::text::rounded_ns;
use serde::{Deserialize, Serialize};

use crate::BaseTime;
use crate::network::{MachineNetwork, Topology};
use crate::{Layout, LogGops, SimError};

mod profile;

/// A machine profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name.
    pub name: String,
    /// The origin of its figures, for readers of results.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Ranks on each node, one a core.
    pub ranks_per_node: u32,
    /// Point-to-point messages.
    pub loggops: LogGops,
    /// The connection of the nodes.
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
        let cpu = self.cpu_ns as f64 * (f64::from(self.phases) + 1.0);
        ((self.time.ns(nodes) - cpu).max(0.0) / f64::from(self.phases.max(1))).round() as u64
    }

    /// Most phases.
    const MAX_PHASES: u32 = 64;

    fn check(&self) -> Result<(), String> {
        self.time.check().map_err(|e| format!("time: {e}"))?;
        if !(1..=Self::MAX_PHASES).contains(&self.phases) {
            return Err(format!("phases is {}; give 1 to {}", self.phases, Self::MAX_PHASES));
        }
        let (cpu, whole) = (self.cpu_ns as f64 * f64::from(self.phases + 1), self.time.ns(1));
        if cpu > whole {
            return Err(format!(
                "cpu_ns of {} in each phase and at the end is more than the whole time on few nodes, {}",
                self.cpu_ns,
                rounded_ns(whole)
            ));
        }
        if self.time.ns(Layout::MAX_RANKS) > LogGops::MAX_NS as f64 {
            return Err("time: more than an hour on many nodes".into());
        }
        Ok(())
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

    /// # Errors
    /// [`SimError::BadMachine`] where its figures make no sense.
    pub fn check(&self) -> Result<(), SimError> {
        let bad = |fault: String| Err(SimError::BadMachine { name: self.name.clone(), fault });
        if self.ranks_per_node == 0 {
            return bad("ranks_per_node is 0; give at least 1".into());
        }
        if let Some((figure, found)) = self.loggops.too_large() {
            return bad(format!("{figure} is {found}, too large to simulate with"));
        }
        let hop_ns = match self.topology {
            Topology::Torus { dims, .. } if dims.contains(&0) && dims != [0; 3] => {
                return bad(format!(
                    "dims are {dims:?}; give all three, or [0, 0, 0] for any number of nodes"
                ));
            }
            Topology::FatTree { radix: radix @ 0..2, .. } => {
                return bad(format!("radix is {radix}; a switch has at least 2 below it"));
            }
            Topology::Flat => 0,
            Topology::Torus { hop_ns, .. } | Topology::FatTree { hop_ns, .. } => hop_ns,
        };
        for (figure, ns) in [("inside_ns", self.inside_ns.unwrap_or(0)), ("hop_ns", hop_ns)] {
            if ns > LogGops::MAX_NS {
                return bad(format!("{figure} is {ns}, too large to simulate with"));
            }
        }
        for (figure, c) in
            [("hardware_barrier", &self.hardware_barrier), ("hardware_reduce", &self.hardware_reduce)]
        {
            if let Some(Err(why)) = c.as_ref().map(HardwareCollective::check) {
                return bad(format!("{figure}: {why}"));
            }
        }
        Ok(())
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
    /// As [`Layout::new`]; [`SimError::Torus`] where one of fixed dimensions has fewer nodes.
    pub fn network(&self, nodes: u32) -> Result<MachineNetwork, SimError> {
        if let Topology::Torus { dims: dims @ [x, y, z], .. } = self.topology {
            let places = u128::from(x) * u128::from(y) * u128::from(z);
            if dims != [0; 3] && places < u128::from(nodes) {
                return Err(SimError::Torus { dims, nodes });
            }
        }
        Ok(MachineNetwork::new(self.loggops, self.topology.clone(), self.layout(nodes)?, self.inside_ns))
    }
}
