// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine, the daemons and the schedulers of the Colony report, as far as its text gives them.
//!
//! Four things it does not give, and what was chosen for all of its figures alike:
//!
//! * the length of turns. The kernel is Linux 2.6.16, whose scheduler lets interactive tasks of one
//!   priority go round every 10 ms (`TIMESLICE_GRANULARITY`), and whose tick on PowerPC is 4 ms: a
//!   daemon's turn is 10 ms, the job's between two of them one tick;
//! * how the daemons of different nodes lie to one another. A block is booted for its job, and its nodes'
//!   daemons begin together with it; their calculations are of random length, so that they drift apart
//!   from calculation to calculation. The job begins right after;
//! * the allreduce itself. It takes less than half of what ANL 2005 measured for one that goes up the tree
//!   and down in two passes; here it is one: all wait once for the last;
//! * its time without noise. The run that coordination "reduced … to 1.73 seconds" was
//!   500,000 operations of 3.46 µs each, and "almost identical" to runs without noise; with more nodes it
//!   grows as the hardware barrier of ANL 2005 does (0.06 µs for each doubling).

use std::num::NonZeroU64;

use colony_sim::BaseTime;
use colony_sim::machine::{HardwareCollective, Machine};
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program};
use colony_sim::scheduler::{Coordinated, Fair};
use colony_sim::simulate::{Run, Simulation, run_until, simulate};
use colony_sim::source::{Phase, Source};
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::{Params, StudyError, project, simulated};

/// Operations of a run (section 3.1.3).
pub(in crate::seeds) const OPS: u64 = 500_000;
/// After each so many of them it is looked whether all wait for daemons.
const LOOK: NonZeroU64 = NonZeroU64::new(20_000).expect("not 0");
/// Operations of the run that measures an operation without noise.
const QUIET_OPS: u64 = 16;
/// They do where the last so many took a hundred times as long as one without noise.
const PACE: u64 = 2_000;

/// Parameters that the text leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::seeds) struct Chosen {
    /// Turns of daemon and job.
    pub(in crate::seeds) turns: Fair,
    /// Phase of the nodes' daemons relative to one another.
    pub(in crate::seeds) phase: Phase,
    /// Begin of the job, nanoseconds after the boot; `None`: long after.
    pub(in crate::seeds) begin_ns: Option<u64>,
    /// Number of times in an allreduce that all ranks wait for the last.
    pub(in crate::seeds) phases: u32,
}

impl Default for Chosen {
    fn default() -> Self {
        Self {
            turns: Fair { noise_slice_ns: 10_000_000, job_slice_ns: 4_000_000 },
            phase: Phase::Together { spread_ns: 0 },
            begin_ns: Some(0),
            phases: 1,
        }
    }
}

impl Chosen {
    fn sources(&self, percent: f64) -> Vec<Source> {
        let source = || Source::new("thread:noise", project::daemon(percent)).phase(self.phase);
        (percent > 0.0).then(source).into_iter().collect()
    }

    /// Returns `true` for the choice behind all figures.
    pub(in crate::seeds) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// A node under the unmodified scheduler.
    pub(in crate::seeds) fn unmodified(&self, percent: f64) -> Node {
        Node::new(self.sources(percent), self.turns)
    }

    /// A node under the coordinated scheduler.
    pub(in crate::seeds) fn coordinated(&self, percent: f64, windows: Windows) -> Node {
        Node::new(self.sources(percent), Coordinated::exact(windows))
    }
}

/// A run of 500,000 operations.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::seeds) struct Total {
    /// Its time.
    pub(in crate::seeds) ns: f64,
    /// Its shortest operation.
    pub(in crate::seeds) min_ns: u64,
    /// Its longest.
    pub(in crate::seeds) max_ns: u64,
}

/// Blue Gene/L with the time of the report's allreduce of 32 bytes.
fn machine(phases: u32) -> Result<Machine, StudyError> {
    let time = BaseTime::Measured(vec![(1024, 3280.0), (16_384, 3520.0)]);
    let reduce = HardwareCollective { time, phases, cpu_ns: 200 };
    Ok(Machine { hardware_reduce: Some(reduce), ..project::blue_gene(1)? })
}

/// 500,000 allreduces of 32 bytes on `nodes` nodes. Once they all wait for daemons, which have drifted
/// apart then, the others are taken to go on at that pace.
pub(in crate::seeds) fn total(
    params: &Params,
    chosen: &Chosen,
    node: &Node,
    nodes: u32,
) -> Result<Total, StudyError> {
    let simulation = |node: &Node, iterations| {
        Ok::<_, StudyError>(Simulation {
            program: Program::collective(Operation::Allreduce, 32, iterations),
            machine: machine(chosen.phases)?,
            node: node.clone(),
            nodes,
            begin_ns: chosen.begin_ns,
            repetitions: 1,
            seed: params.seed,
        })
    };
    let whole = simulation(node, OPS)?;
    simulated::of(&("total", &whole), || whole_or_paced(&whole, &simulation(&Node::quiet(), QUIET_OPS)?))
}

/// The run `whole`, up to the operations that all wait for daemons; `quiet` is a short one without noise.
fn whole_or_paced(whole: &Simulation, quiet: &Simulation) -> Result<Total, StudyError> {
    let quiet_ns = simulate(quiet)?.mean_ns;
    let all_wait = |run: &Run| pace(&run.iterations) > 100.0 * quiet_ns;
    let run = run_until(whole, LOOK, all_wait)?;
    let left = OPS - run.count();
    let more = if left > 0 { left as f64 * pace(&run.iterations) } else { 0.0 };
    let each = || run.iterations.iter().map(|&(ns, _)| ns);
    Ok(Total {
        ns: run.total_ns as f64 + more,
        min_ns: each().min().unwrap_or(0),
        max_ns: each().max().unwrap_or(0),
    })
}

/// Mean time of the last operations.
fn pace(iterations: &[(u64, u64)]) -> f64 {
    let (mut left, mut ns) = (PACE, 0.0);
    for &(each, count) in iterations.iter().rev() {
        let taken = count.min(left);
        ns += each as f64 * taken as f64;
        left -= taken;
        if left == 0 {
            break;
        }
    }
    ns / (PACE - left).max(1) as f64
}
