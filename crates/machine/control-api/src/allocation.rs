// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocation of a site's scheduler that a machine is a part of, in JSON, and what fits in it.

use std::fmt::{self, Display, Formatter};

use colony_model::Shape;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{IoNodeKind, NodeRequest};

/// Memory of the host that a compute node takes at most beside that of its processes, MiB: emulator, kernel, translated code.
const BESIDE_MIB: u64 = 32;
/// Memory of a Linux I/O node beside the windows of its compute nodes, MiB.
const LINUX_MIB: u64 = 512;
/// Compute nodes for each CPU, unless a shape is asked for.
const NODES_PER_CPU: u64 = 8;
/// Shapes that are chosen from, the largest first.
const SHAPES: [[u32; 3]; 7] = [[8, 8, 8], [8, 8, 4], [8, 4, 4], [4, 4, 4], [4, 4, 2], [4, 2, 2], [2, 2, 2]];

/// A scheduler of jobs of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Slurm.
    Slurm,
    /// Flux.
    Flux,
}

impl Display for Scheduler {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "Slurm",
            Self::Flux => "Flux",
        })
    }
}

/// The part of an allocation that the host of the machine is. Nodes take no more than it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Allocation {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The job of the scheduler.
    pub job: String,
    /// Hosts of the allocation. The machine is on one of them.
    pub hosts: u32,
    /// CPUs of this host.
    pub cpus: u32,
    /// Memory of this host, MiB; without it, the memory is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// When the allocation ends, seconds since 1970; without it, it has no end, or the end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<f64>,
    /// When the daemon ends jobs and begins to switch the nodes off, seconds since 1970. The daemon computes it: 60 s before the
    /// end, or a tenth of the time from the request to the end if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops: Option<f64>,
}

impl Display for Allocation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} job {}", self.scheduler, self.job)
    }
}

/// Memory of the host that compute nodes and their I/O nodes take at most, MiB.
#[must_use]
pub fn memory_mib(nodes: u32, node: &NodeRequest) -> u64 {
    let nodes = u64::from(nodes);
    let own = node.memory_mib.saturating_add(BESIDE_MIB).saturating_mul(nodes);
    match node.io_nodes {
        IoNodeKind::Process => own,
        IoNodeKind::Linux => {
            let psets = nodes.div_ceil(u64::from(node.pset.max(1)));
            own.saturating_add(LINUX_MIB.saturating_mul(psets))
                .saturating_add(node.memory_mib.saturating_mul(nodes))
        }
    }
}

impl Allocation {
    /// Refuses nodes that do not fit beside those that take `others_mib` of memory.
    ///
    /// # Errors
    /// What does not fit, and the remedy.
    pub fn check(&self, nodes: u32, node: &NodeRequest, others_mib: u64) -> Result<(), String> {
        if node.cpus > self.cpus {
            return Err(format!(
                "a node of {} CPUs does not fit in {self}, which has {} on this host: use fewer --cpus, or ask {} for more",
                node.cpus, self.cpus, self.scheduler
            ));
        }
        let needs = memory_mib(nodes, node);
        match self.memory_mib {
            Some(has) if needs.saturating_add(others_mib) > has => Err(format!(
                "{nodes} nodes of {} MiB take up to {needs} MiB of the host's memory{}, and {self} has {has} MiB on this host: use \
                 a smaller --shape or --memory, or ask {} for more memory",
                node.memory_mib,
                if others_mib > 0 {
                    format!(" beside {others_mib} MiB of other partitions")
                } else {
                    String::new()
                },
                self.scheduler
            )),
            _ => Ok(()),
        }
    }

    /// The largest usual shape whose nodes fit. `node` gives the nodes of a partition of that many.
    ///
    /// # Errors
    /// As [`Allocation::check`], of the smallest shape.
    pub fn largest(&self, node: impl Fn(u32) -> NodeRequest) -> Result<Shape, String> {
        let most = u64::from(self.cpus).saturating_mul(NODES_PER_CPU);
        let mut refused = Err("no shape fits".to_owned());
        for sides in SHAPES {
            let shape = Shape::new(sides).map_err(|e| e.to_string())?;
            let nodes = shape.nodes();
            if u64::from(nodes) <= most {
                refused = self.check(nodes, &node(nodes), 0).map(|()| shape);
            }
            if refused.is_ok() {
                break;
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(cpus: u32, memory_mib: impl Into<Option<u64>>) -> Allocation {
        let (scheduler, job) = (Scheduler::Slurm, "77".to_owned());
        Allocation { scheduler, job, hosts: 1, cpus, memory_mib: memory_mib.into(), ends: None, stops: None }
    }

    fn node(cpus: u32, memory_mib: u64) -> NodeRequest {
        NodeRequest { pset: 8, cpus, memory_mib, io_nodes: IoNodeKind::Process, io_exports: vec![] }
    }

    #[test]
    fn nodes_that_do_not_fit_are_refused_with_the_reason() {
        let own = allocation(4, 2000);
        assert_eq!(own.check(32, &node(4, 16), 0), Ok(()));
        assert_eq!(own.check(16, &node(1, 16), 2000 - 16 * 48), Ok(()), "the last byte");
        let linux = NodeRequest { io_nodes: IoNodeKind::Linux, ..node(1, 16) };
        assert_eq!(memory_mib(16, &linux), 16 * (16 + 32) + 2 * 512 + 16 * 16);
        for (nodes, node, others, said) in [
            (64, node(1, 16), 0, "3072 MiB"),
            (8, node(1, 256), 0, "2304 MiB"),
            (8, node(5, 16), 0, "a node of 5 CPUs"),
            (8, node(1, 16), 1700, "beside 1700 MiB"),
            (16, linux, 0, "2048 MiB"),
            (u32::MAX, node(1, u64::MAX), u64::MAX, "MiB"),
        ] {
            let text = own.check(nodes, &node, others).expect_err("too much");
            assert!(
                text.contains(said) && text.contains("Slurm job 77 has") || text.contains("in Slurm job 77"),
                "{text}"
            );
        }
        assert_eq!(allocation(1, None).check(512, &node(1, 1 << 20), 0), Ok(()), "its memory is not limited");
    }

    #[test]
    fn the_largest_shape_that_fits_is_chosen() {
        let shape =
            |own: &Allocation, memory| own.largest(|_| node(1, memory)).map(|shape| shape.to_string());
        assert_eq!(shape(&allocation(4, 2000), 16).as_deref(), Ok("4x4x2"), "8 nodes a CPU");
        assert_eq!(shape(&allocation(4, 2000), 64).as_deref(), Ok("4x2x2"), "as far as the memory goes");
        assert_eq!(shape(&allocation(128, None), 16).as_deref(), Ok("8x8x8"));
        assert_eq!(shape(&allocation(1, None), 16).as_deref(), Ok("2x2x2"));
        let text = shape(&allocation(4, 100), 16).expect_err("too small");
        assert!(text.starts_with("8 nodes of 16 MiB take up to 384 MiB"), "{text}");
    }
}
