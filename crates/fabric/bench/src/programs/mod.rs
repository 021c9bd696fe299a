// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs: one source for every network with a [`Comm`], which is MPI in `colony-bench` and the compute
//! nodes' window in `colony-bench-cnk`.
//!
//! * `operation`: what is measured, each with a check of the values it left;
//! * `measure`: the timed loop; `detour`: detours made inside it; `work`: a fixed amount of work;
//! * `gather`: from all ranks to rank 0.

mod choose;
mod detour;
mod gather;
mod measure;
mod operation;
mod output;
mod work;

use colony_comm::Comm;
use colony_node::record::NodeRecord;
use colony_time::clock::Clock;
use colony_time::tsc::{Calibration, CounterKind};

pub use measure::{agreed, stretch};
pub use operation::{Allreduce, Operation};
pub use output::Output;

use crate::{BenchResult, Comparison, Measurement, MpiRecord, Params, Program};

/// A run of a program, as one rank sees it.
#[derive(Debug)]
pub struct Session {
    params: Params,
    calibration: Calibration,
    rank: u32,
    host: String,
    node: NodeRecord,
    start_ns: i64,
}

impl Session {
    /// Begins a run: records the node's state, before anything disturbs it.
    #[must_use]
    pub fn begin(params: Params) -> Self {
        // until `join` says which counter it is: the clock needs no measuring
        let calibration = Calibration::measure_kind(CounterKind::Vdso);
        let (start_ns, node) = (Clock::Tai.now_ns(), NodeRecord::now());
        Self { params, calibration, rank: 0, host: String::new(), node, start_ns }
    }

    /// Sets who this rank is, the name of its node, and the counter to read.
    ///
    /// # Errors
    /// A message, if the program needs more ranks; the same at every rank.
    pub fn join(mut self, world: &impl Comm, host: String, calibration: Calibration) -> Result<Self, String> {
        let (program, ranks) = (self.params.program, world.size());
        let least = program.min_ranks();
        if ranks < least {
            return Err(format!("{} needs at least {least} ranks and has {ranks}", program.name()));
        }
        (self.rank, self.host, self.calibration) = (world.rank(), host, calibration);
        Ok(self)
    }

    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// The counter.
    #[must_use]
    pub const fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Runs the program; one measurement for each group of ranks, `None` where this rank was not in it.
    ///
    /// # Errors
    /// A message of this rank.
    pub fn run(&self, world: &impl Comm) -> Result<Vec<Option<Measurement>>, String> {
        choose::run(self, world)
    }

    /// The result of all ranks, at rank 0; `None` elsewhere.
    ///
    /// # Errors
    /// A message of this rank.
    pub fn result(
        self,
        world: &impl Comm,
        mine: Vec<Option<Measurement>>,
        comparison: Option<Comparison>,
        library: MpiRecord,
    ) -> Result<Option<BenchResult>, String> {
        let ranks = world.size();
        let Some(results) = gather::to_root(world, mine, self.params.slowest as usize)? else {
            return Ok(None);
        };
        let mut result = BenchResult {
            schema: BenchResult::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ranks,
            hosts: Vec::new(),
            mpi: library,
            node: self.node,
            counter: self.calibration,
            start_ns: self.start_ns,
            wall_s: (Clock::Tai.now_ns() - self.start_ns) as f64 / 1e9,
            results,
            comparison,
            params: self.params,
        };
        complete(&mut result);
        Ok(Some(result))
    }
}

/// Fills in what only all ranks together say.
fn complete(result: &mut BenchResult) {
    for m in &mut result.results {
        if let Some(work) = &mut m.work {
            work.slowdown = m.all.mean_ns / (work.loops as f64 * work.turn_ns);
        }
    }
    let mut hosts: Vec<String> =
        result.results.iter().flat_map(|m| m.per_rank.iter().map(|r| r.host.clone())).collect();
    hosts.sort_unstable();
    hosts.dedup();
    result.hosts = hosts;
    debug_assert!(result.params.program == Program::Glob || result.results.len() == 1);
}
