// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compute nodes that run the jobs of a study of I/O, and the processor time of each job.

use std::path::{Path, PathBuf};
use std::time::Duration;

use colony_nodes::ciod::{Config, JobSpec};
use colony_nodes::{Captured, Machine, Node, Partition, programs};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::time::{ClockId, clock_gettime};

use crate::StudyError;
use crate::error::step;

/// Most compute nodes that a study of I/O runs here.
pub const MOST_NODES: u32 = 64;

/// Booted compute nodes, and the program that they run.
#[derive(Debug)]
pub(crate) struct Nodes {
    partition: Partition,
    program: PathBuf,
    /// Name of the study in errors.
    what: &'static str,
}

/// A job of the program.
#[derive(Clone, Debug)]
pub(crate) struct IoJob {
    /// Arguments of the program.
    pub(crate) arguments: Vec<String>,
    /// Compute nodes, a process on each.
    pub(crate) nodes: u32,
    /// I/O nodes.
    pub(crate) io_nodes: u32,
    /// The longest it may take on a machine under load, seconds.
    pub(crate) timeout_s: f64,
}

/// Resources of a job that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// Standard output of all processes.
    pub(crate) stdout: String,
    /// Processor time of the nodes' emulators, seconds.
    pub(crate) node_s: f64,
    /// Of the I/O processes.
    pub(crate) io_s: f64,
}

impl Nodes {
    /// Boots `nodes` nodes that run the static program `program`; `notice` hears that this waits for other virtual machines
    /// of this user to end.
    ///
    /// # Errors
    /// [`StudyError::Step`] if nodes cannot be had here, with what to install, or the program is not there.
    pub(crate) fn new(
        what: &'static str,
        program: &str,
        nodes: u32,
        notice: fn(&str),
    ) -> Result<Self, StudyError> {
        let program = programs::static_program(program).map_err(|e| step(what, &e))?;
        let worker = programs::ciod().map_err(|e| step(what, &e))?;
        let machine = Machine { cpus: 1, torus: Some(0), ..Machine::default() };
        // who looks for news without sleeping would use processor time while it waits
        let config = Config::new(worker).blocking();
        let partition = Partition::boot_telling(machine, nodes, config, notice);
        Ok(Self { partition: partition.map_err(|e| step(what, &e))?, program, what })
    }

    /// The program that the nodes run.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs a job.
    ///
    /// # Errors
    /// [`StudyError::Step`] with the node that died, or with what the job printed, such as that a file system is full.
    pub(crate) fn run(&mut self, job: IoJob) -> Result<Ran, StudyError> {
        let mut spec = JobSpec::new(&self.program);
        spec.arguments = job.arguments;
        spec.processes = Some(job.nodes);
        spec.pset = Some(job.nodes.div_ceil(job.io_nodes));
        spec.timeout_s = Some(job.timeout_s);
        let (nodes_ns, io) = (self.nodes_ns()?, io_processes());
        let ran = self.partition.run_captured(spec).map_err(|e| step(self.what, &e))?;
        if !ran.outcome.success() {
            return Err(step(self.what, &reason(&ran)));
        }
        // the I/O processes have ended and were waited for; the emulators are still there
        let ended = io_processes();
        let node_s = self.nodes_ns()?.saturating_sub(nodes_ns) as f64 / 1e9;
        Ok(Ran { stdout: ran.stdout, node_s, io_s: (ended - io).max(0.0) })
    }

    /// Processor time of all emulators, ns.
    fn nodes_ns(&self) -> Result<u64, StudyError> {
        let of = |(number, node): (u32, &Node)| {
            let dead = || step(self.what, &format!("node {number} died: its emulator ended"));
            colony_node::task::cpu_ns(node.pid().cast_signed()).ok_or_else(dead)
        };
        (0..).zip(self.partition.nodes()).map(of).sum()
    }
}

/// Reason why a job failed: a node that died, then what a program printed, then how the job ended.
fn reason(ran: &Captured) -> String {
    let dead = ran.deaths.first().map(ToString::to_string);
    let printed = || ran.stderr.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    dead.or_else(printed).unwrap_or_else(|| ran.outcome.to_string())
}

/// Processor time of the children of this process that have ended and were waited for, seconds. The emulators are not
/// among them.
fn io_processes() -> f64 {
    let seconds = |time: TimeVal| time.num_nanoseconds() as f64 / 1e9;
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
