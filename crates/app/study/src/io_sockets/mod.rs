// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bandwidth of client sockets from N compute nodes through one I/O node (SC06, 4.1, Fig. 4).
//!
//! Each compute node connects to a server of this host, outside of the job, and sends it data, or receives data. The I/O
//! daemon makes the calls. The server lets all nodes begin together, takes the time, and moves data no faster than the link
//! of an I/O node would. The same program on this host without compute nodes is the reference.

mod direction;
mod link;
mod results;
mod server;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use colony_node::record::NodeRecord;
use serde::{Deserialize, Serialize};

use self::server::{Expected, ServeError, Served, Server};
use crate::StudyError;
use crate::error::step;
use crate::io_nodes::{IoJob, MOST_NODES, Nodes};
use crate::results::unix_now_s;

pub use direction::Direction;
pub use link::most_data;
pub use results::{Measured, PUBLISHED, Part, Reference, Results, SOURCE};

/// Name of this study in errors.
const WHAT: &str = "sending and receiving through sockets of compute nodes";
/// The program of the nodes.
const PROGRAM: &str = "colony-stream";

/// Sizes of a transfer, bytes.
const TRANSFERS: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// Bytes of a node, at most.
const MOST_BLOCK: u64 = 16 << 30;
/// Links, bytes a second.
const LINKS: std::ops::RangeInclusive<f64> = 1e6..=100e9;
/// Runs of a job without transfers, of which the one with the least processor time counts.
const IDLE_RUNS: u32 = 3;
/// Slower than this is no job on a machine under load, bytes a second.
const SLOWEST: f64 = 1e6;
/// Time that a job has beside its transfers, seconds.
const START_S: f64 = 60.0;

/// A job of the study.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Compute nodes; `None`: a process of this host, without compute nodes.
    pub nodes: Option<u32>,
    /// Its direction.
    pub direction: Direction,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Transfers of a node; with 0, nodes connect only.
    pub count: u64,
    /// The link, bytes a second; `None`: without a limit.
    pub link_bytes_per_s: Option<f64>,
}

/// Resources of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Time from the beginning of all transfers to the end of the last, by the server, seconds.
    pub wall_s: f64,
    /// Processor time of the nodes' emulators, seconds.
    pub node_s: f64,
    /// Of the I/O process.
    pub io_s: f64,
    /// Of the server.
    pub server_s: f64,
}

/// Parameters of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Numbers of compute nodes behind the I/O node, ascending.
    pub nodes: Vec<u32>,
    /// Bytes of a transfer: of a call that the node makes.
    pub transfer: u64,
    /// Bytes that a node sends, and receives.
    pub block_bytes: u64,
    /// Link of the I/O node, bytes a second in each direction; `None`: without a limit.
    pub link_bytes_per_s: Option<f64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: vec![1, 2, 4, 8],
            transfer: 256 << 10,
            block_bytes: 32 << 20,
            // Gigabit Ethernet, as the paper's
            link_bytes_per_s: Some(125e6),
        }
    }
}

impl Plan {
    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`StudyError::Params`].
    pub fn check(&self) -> Result<(), StudyError> {
        let wrong = |text: String| Err(StudyError::Params(text));
        match self.nodes.iter().find(|&&n| n == 0 || n > MOST_NODES) {
            Some(n) => return wrong(format!("--nodes are 1 to {MOST_NODES}, not {n}")),
            None if self.nodes.is_empty() => return wrong("give --nodes at least one number".into()),
            None => {}
        }
        let (transfer, block) = (self.transfer, self.block_bytes);
        if !TRANSFERS.contains(&transfer) {
            let (least, most) = (TRANSFERS.start(), TRANSFERS.end() >> 20);
            return wrong(format!("--transfer is {least} bytes to {most} MiB, not {transfer} bytes"));
        }
        if block < transfer || block > MOST_BLOCK || !block.is_multiple_of(transfer) {
            return wrong(format!(
                "--block is a multiple of --transfer, and {} GiB at most: {block} bytes are not",
                MOST_BLOCK >> 30
            ));
        }
        match self.link_bytes_per_s {
            Some(rate) if !LINKS.contains(&rate) => {
                wrong(format!("--link is 1 MB/s to 100 GB/s or `none`, not {} MB/s", rate / 1e6))
            }
            _ => Ok(()),
        }
    }

    fn largest(&self) -> u32 {
        self.nodes.iter().max().copied().unwrap_or(1)
    }

    /// Links that the reference is measured with.
    fn reference_links(&self) -> Vec<Option<f64>> {
        let limited = self.link_bytes_per_s.map(Some);
        limited.into_iter().chain([None]).collect()
    }

    /// Number of jobs, those that connect only counted once for each number of nodes.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let directions = Direction::ALL.len();
        (self.reference_links().len() * directions + self.nodes.len() * (directions + 1)) as u64
    }

    fn case(&self, nodes: Option<u32>, direction: Direction, link_bytes_per_s: Option<f64>) -> Case {
        let (transfer, count) = (self.transfer, self.block_bytes / self.transfer);
        Case { nodes, direction, transfer, count, link_bytes_per_s }
    }

    /// Runs every case by `job`; `step` is called after each.
    ///
    /// # Errors
    /// The first error of `job`.
    pub fn measure(
        &self,
        job: &mut dyn FnMut(&Case) -> Result<Used, StudyError>,
        step: impl Fn(),
    ) -> Result<(Vec<Reference>, Vec<Measured>), StudyError> {
        let (mut references, mut measured) = (Vec::new(), Vec::new());
        let connect = |nodes| {
            let case = self.case(Some(nodes), Direction::Send, self.link_bytes_per_s);
            Case { count: 0, ..case }
        };
        // the first job waits until all nodes have booted; after it, they leave the CPUs to the reference
        job(&connect(self.largest()))?;
        for link in self.reference_links() {
            for direction in Direction::ALL {
                let used = job(&self.case(None, direction, link))?;
                references.push(Reference::of(direction, link, self.block_bytes, used));
                step();
            }
        }
        let mut idle = Vec::new();
        for &nodes in &self.nodes {
            let runs = (0..IDLE_RUNS).map(|_| job(&connect(nodes))).collect::<Result<Vec<_>, _>>()?;
            let least = runs.into_iter().min_by(|a, b| (a.node_s + a.io_s).total_cmp(&(b.node_s + b.io_s)));
            idle.push(least.unwrap_or_default());
            step();
        }
        for direction in Direction::ALL {
            for (&nodes, idle) in self.nodes.iter().zip(&idle) {
                let used = job(&self.case(Some(nodes), direction, self.link_bytes_per_s))?;
                measured.push(Measured::of(direction, nodes, self, used, *idle));
                step();
            }
        }
        Ok((references, measured))
    }

    /// Runs the study on this node; `notice` hears that it waits for other virtual machines of this user to end.
    ///
    /// # Errors
    /// Wrong parameters, nodes that cannot be had here, with what to install, a job that failed.
    pub fn run(&self, command: &str, notice: fn(&str), step_done: impl Fn()) -> Result<Results, StudyError> {
        self.check()?;
        let (started_unix_s, began) = (unix_now_s(), Instant::now());
        let node = NodeRecord::now();
        let server = Server::new().map_err(|e| step(WHAT, &format!("the server's socket: {e}")))?;
        let mut nodes = Nodes::new(WHAT, PROGRAM, self.largest(), notice)?;
        let (references, measured) = self.measure(&mut |case| case.run(&server, &mut nodes), step_done)?;
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Ok(Results {
            schema: Results::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            started_unix_s,
            took_s: began.elapsed().as_secs_f64(),
            compared: results::compare(self, &measured),
            plan: self.clone(),
            node,
            cpus,
            references,
            measured,
        })
    }
}

impl Case {
    /// Runs it: its programs on nodes or on this host, its server on a thread beside them.
    ///
    /// # Errors
    /// [`StudyError::Step`]: a node that died, a program that failed, a connection that stalled.
    fn run(&self, server: &Server, nodes: &mut Nodes) -> Result<Used, StudyError> {
        let Self { direction, transfer, count, .. } = *self;
        let expected = Expected { clients: self.nodes.unwrap_or(1), direction, transfer, count };
        let running = AtomicBool::new(true);
        let (ran, served) = std::thread::scope(|scope| {
            let serve =
                || server.serve(&expected, self.link_bytes_per_s, &|| running.load(Ordering::Acquire));
            let serving = scope.spawn(serve);
            let ran = self.clients(server.arguments(&expected), nodes);
            running.store(false, Ordering::Release);
            (ran, serving.join())
        });
        let served = served.map_err(|_| step(WHAT, &"the server failed"))?;
        let (node_s, io_s, Served { wall_s, server_s }) = match (ran, served) {
            (Ok((node_s, io_s)), Ok(served)) => (node_s, io_s, served),
            // a server that ends a connection makes its client fail
            (
                _,
                Err(e @ (ServeError::Stalled { .. } | ServeError::Damaged { .. } | ServeError::Socket(_))),
            ) => {
                return Err(step(WHAT, &e));
            }
            (Err(e), _) => return Err(e),
            (Ok(_), Err(e)) => return Err(step(WHAT, &e)),
        };
        Ok(Used { wall_s, node_s, io_s, server_s })
    }

    /// Runs the programs that connect; processor time of the emulators, and of the I/O process.
    fn clients(&self, arguments: Vec<String>, nodes: &mut Nodes) -> Result<(f64, f64), StudyError> {
        let Some(number) = self.nodes else {
            let out = Command::new(nodes.program()).args(arguments).output().map_err(|e| step(WHAT, &e))?;
            let told = String::from_utf8_lossy(&out.stderr);
            return if out.status.success() { Ok((0.0, 0.0)) } else { Err(step(WHAT, &told.trim())) };
        };
        let bytes = (self.transfer * self.count) as f64 * f64::from(number);
        let timeout_s = START_S + bytes / SLOWEST;
        let ran = nodes.run(IoJob { arguments, nodes: number, io_nodes: 1, timeout_s })?;
        Ok((ran.node_s, ran.io_s))
    }
}

#[cfg(test)]
mod tests;
