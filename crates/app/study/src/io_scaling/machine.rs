// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compute nodes that run the jobs of the study, and what each job used.

use std::path::PathBuf;

use colony_nodes::ciod::{Config, JobSpec};
use colony_nodes::{Machine, Node, Partition, programs};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::{Case, Used, WHAT};
use crate::StudyError;
use crate::error::step;

/// The longest a job may take on a machine under load, seconds.
const PATIENCE_S: f64 = 3600.0;

/// Booted compute nodes, and the program that they run.
#[derive(Debug)]
pub struct Nodes {
    partition: Partition,
    program: PathBuf,
}

impl Nodes {
    /// Boots so many.
    ///
    /// # Errors
    /// [`StudyError::Step`] if nodes cannot be had here, with what to install, or the program is not there.
    pub fn new(nodes: u32, notice: fn(&str)) -> Result<Self, StudyError> {
        let program = programs::static_program("colony-ior").map_err(|e| step(WHAT, &e))?;
        let worker = programs::ciod().map_err(|e| step(WHAT, &e))?;
        let machine = Machine { cpus: 1, torus: Some(0), ..Machine::default() };
        // who looks for news without sleeping would use processor time while it waits
        let config = Config::new(worker).blocking();
        let partition = Partition::boot_telling(machine, nodes, config, notice);
        Ok(Self { partition: partition.map_err(|e| step(WHAT, &e))?, program })
    }

    /// Runs a job.
    ///
    /// # Errors
    /// [`StudyError::Step`] with what the job printed, such as that a file system is full.
    pub fn run(&mut self, case: &Case) -> Result<Used, StudyError> {
        let mut spec = JobSpec::new(&self.program);
        let place = case.place.to_str().ok_or_else(|| step(WHAT, &"the folder's name is not UTF-8"))?;
        let (transfer, count) = (case.transfer.to_string(), case.count.to_string());
        let words = [case.phase.name(), case.layout.word(), place, &transfer, &count];
        spec.arguments = words.map(str::to_owned).to_vec();
        spec.processes = Some(case.nodes);
        spec.pset = Some(case.nodes.div_ceil(case.io_nodes));
        spec.timeout_s = Some(PATIENCE_S);
        let (nodes_ns, io) = (self.nodes_ns()?, io_processes());
        let ran = self.partition.run_captured(spec).map_err(|e| step(WHAT, &e))?;
        if !ran.outcome.success() {
            let told = ran.stderr.lines().next().map_or_else(|| ran.outcome.to_string(), str::to_owned);
            return Err(step(WHAT, &told.trim()));
        }
        // the I/O processes have ended and were waited for; the emulators are still there
        let ended = io_processes();
        Ok(Used {
            wall_s: longest_s(&ran.stdout),
            node_s: self.nodes_ns()?.saturating_sub(nodes_ns) as f64 / 1e9,
            io_s: (ended - io).max(0.0),
        })
    }

    /// Processor time of all emulators, ns.
    fn nodes_ns(&self) -> Result<u64, StudyError> {
        let of = |node: &Node| colony_node::task::cpu_ns(node.pid().cast_signed());
        let all: Option<Vec<u64>> = self.partition.nodes().iter().map(of).collect();
        Ok(all.ok_or_else(|| step(WHAT, &"an emulator has ended"))?.into_iter().sum())
    }
}

/// The time that the slowest node took for its transfers, of those that the nodes printed, seconds.
fn longest_s(printed: &str) -> f64 {
    let all = printed.lines().filter_map(|line| line.trim().parse::<u64>().ok());
    all.max().map_or(0.0, |ns| ns as f64 / 1e9)
}

/// Processor time of the children of this process that have ended and were waited for, seconds. The emulators are not
/// among them.
fn io_processes() -> f64 {
    let seconds = |time: TimeVal| time.num_nanoseconds() as f64 / 1e9;
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}
