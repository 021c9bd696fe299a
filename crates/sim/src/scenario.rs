use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::{NodeNoise, SimError};

/// Time of a collective on `n` nodes without noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseTime {
    /// A latency model: `fixed_ns + level_ns · log2 n`.
    Log2 {
        /// Cost whatever the number of nodes, nanoseconds.
        fixed_ns: f64,
        /// Cost of each doubling.
        level_ns: f64,
    },
    /// Measured times `(nodes, ns)`, straight lines over log2 n between them; below the first its value,
    /// above the last the last line goes on.
    Measured(Vec<(u64, f64)>),
}

impl BaseTime {
    /// The hardware barrier of Blue Gene/L: "from about 1 microsecond to 1.3 microseconds" on 512 and
    /// 16,384 nodes (ANL 2005).
    #[must_use]
    pub fn blue_gene_barrier() -> Self {
        Self::Measured(vec![(512, 1_000.0), (16_384, 1_300.0)])
    }

    /// Allreduce on Blue Gene/L's collective network: 8.3 to 11.6 µs (ANL 2005).
    #[must_use]
    pub fn blue_gene_allreduce() -> Self {
        Self::Measured(vec![(512, 8_300.0), (16_384, 11_600.0)])
    }

    /// Allreduce with a user-defined operation, in software: 38 to 73 µs (ANL 2005).
    #[must_use]
    pub fn blue_gene_myallreduce() -> Self {
        Self::Measured(vec![(512, 38_000.0), (16_384, 73_000.0)])
    }

    /// Nanoseconds on `nodes` nodes.
    #[must_use]
    pub fn ns(&self, nodes: u64) -> f64 {
        let level = (nodes.max(1) as f64).log2();
        match self {
            Self::Log2 { fixed_ns, level_ns } => fixed_ns + level_ns * level,
            Self::Measured(points) => {
                let i = points.partition_point(|p| p.0 <= nodes).clamp(1, points.len().max(1));
                match (points.get(i - 1), points.get(i).or_else(|| points.get(i.wrapping_sub(2)))) {
                    (Some(&(n0, t0)), Some(&(n1, t1))) if nodes > n0 && n0 != n1 => {
                        let (l0, l1) = ((n0.max(1) as f64).log2(), (n1.max(1) as f64).log2());
                        t0 + (t1 - t0) * (level - l0) / (l1 - l0)
                    }
                    (Some(&(_, t)), _) => t,
                    _ => 0.0,
                }
            }
        }
    }

    /// # Errors
    /// [`SimError::Program`] where times are negative, no numbers, or fall with the nodes.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let check = |what, found: f64| match found.is_finite() && found >= 0.0 {
            true => Ok(()),
            false => Err(SimError::Program { what, found, least: 0.0 }),
        };
        match self {
            Self::Log2 { fixed_ns, level_ns } => {
                check("fixed time", *fixed_ns).and_then(|()| check("time per level", *level_ns))
            }
            Self::Measured(points) => {
                check("time on one node", points.first().map_or(f64::NAN, |p| p.1))?;
                let rising = points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
                let last = points.last().map_or(f64::NAN, |p| p.1);
                check("list of measured times", if rising { last } else { f64::NAN })
            }
        }
    }
}

/// The bulk-synchronous program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Collectives one after the other.
    Collective {
        /// Its time without noise.
        base: BaseTime,
        /// How often within one operation every node waits for every other; a detour anywhere delays
        /// each of these by itself. A barrier in hardware has 1, a reduction up and down a tree 2.
        stages: u32,
    },
    /// Work, then a barrier, and again (HPC-Colony progress report 2006, figure 3).
    Bsp {
        /// Work of each node before the barrier.
        work_ns: u64,
        /// The barrier's own time.
        barrier: BaseTime,
    },
}

impl Program {
    /// Time of one operation (one iteration) on `nodes` without noise, nanoseconds.
    #[must_use]
    pub fn base_ns(&self, nodes: u64) -> f64 {
        match self {
            Self::Collective { base, .. } => base.ns(nodes),
            Self::Bsp { work_ns, barrier } => *work_ns as f64 + barrier.ns(nodes),
        }
    }

    /// Synchronising stages of one operation.
    #[must_use]
    pub const fn stages(&self) -> u32 {
        match self {
            Self::Collective { stages, .. } => *stages,
            Self::Bsp { .. } => 1,
        }
    }
}

/// Coordinated scheduling on every node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coordinated {
    /// The windows, the same on every node.
    pub windows: Windows,
    /// Noise that is left inside favored windows, as measured there; `None`: none is.
    pub residual: Option<NodeNoise>,
    /// Measured lateness of window edges: each regular window ends when the latest node's does. May be empty.
    pub edge_lateness_ns: Vec<u64>,
}

/// How each node's scheduler treats the noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// Noise runs when it comes, on each node at its own time.
    Unmodified,
    /// Noise runs when it comes, at the same instants on all nodes (daemons whose "wakeup \[is\]
    /// coordinated across nodes", HPC-Colony progress report 2006; detours in phase, ANL 2005).
    Aligned,
    /// Noise waits for the regular window, which is the same on all nodes.
    Coordinated(Coordinated),
}

/// What to project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The program.
    pub program: Program,
    /// The noise of each node, as it is without coordination.
    pub noise: NodeNoise,
    /// What the nodes' schedulers do about it.
    pub scheduler: Scheduler,
    /// Node counts to project to.
    pub nodes: Vec<u64>,
    /// Operations drawn for each node count.
    pub ops: u32,
    /// Seed of all random numbers; the same seed gives the same projection.
    pub seed: u64,
}

impl Scenario {
    /// Most operations that are drawn.
    pub const MAX_OPS: u32 = 10_000_000;

    /// # Errors
    /// [`SimError`] where the scenario makes no sense.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        if self.nodes.is_empty() || self.nodes.contains(&0) {
            return Err(SimError::Nodes);
        }
        if !(1..=Self::MAX_OPS).contains(&self.ops) {
            return Err(SimError::Ops(self.ops));
        }
        if self.program.stages() == 0 {
            return Err(SimError::Program { what: "number of stages", found: 0.0, least: 1.0 });
        }
        match &self.program {
            Program::Collective { base: time, .. } | Program::Bsp { barrier: time, .. } => time.check(),
        }
    }
}

/// An operation at one node count. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Nodes.
    pub nodes: u64,
    /// Time without noise.
    pub base_ns: f64,
    /// Mean time.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99 of 100 are no longer.
    pub p99_ns: f64,
    /// 999 of 1000 are no longer.
    pub p99_9_ns: f64,
    /// Longest that was drawn.
    pub max_ns: f64,
    /// Mean over the time without noise.
    pub slowdown: f64,
}

/// What a model says about a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// The model's name and version.
    pub model: String,
    /// What a reader should know about this projection beyond the model's assumptions.
    pub warnings: Vec<String>,
    /// One point a node count, in the order asked for.
    pub points: Vec<Point>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_times_are_met_between_and_beyond() {
        let b = BaseTime::blue_gene_barrier();
        assert_eq!((b.ns(1), b.ns(512), b.ns(16_384)), (1_000.0, 1_000.0, 1_300.0));
        assert!((b.ns(1024) - 1_060.0).abs() < 1e-9);
        assert!((b.ns(1 << 20) - 1_660.0).abs() < 1e-9);
        assert_eq!(BaseTime::Log2 { fixed_ns: 5.0, level_ns: 2.0 }.ns(8), 11.0);
        assert_eq!(BaseTime::Measured(vec![(2, 7.0)]).ns(1024), 7.0);
        assert!(BaseTime::Measured(vec![]).check().is_err());
        assert!(BaseTime::Measured(vec![(2, 7.0), (4, 6.0)]).check().is_err());
        assert!(BaseTime::Log2 { fixed_ns: -1.0, level_ns: 2.0 }.check().is_err());
    }
}
