// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bandwidth of files from N compute nodes through M I/O nodes, and what saturates (SC06, 4.1 and 4.2, Figs. 4 and 5).
//!
//! A program as the benchmark IOR writes files on compute nodes, and reads them again, through I/O processes of the I/O
//! daemon. Processor time is measured by component, so that other programs of the host change it little: of the
//! emulators for the nodes, and of the I/O processes. The file system's part in these is the processor time of the same
//! transfers without nodes and I/O daemon. The storage is measured by the time that a flush, and a read that finds
//! nothing in memory, wait for it. A queueing model ([`model`]) carries these service times to numbers of nodes that this
//! host cannot run.

pub mod folder;
pub mod model;
mod results;

use std::path::PathBuf;
use std::time::Instant;

use colony_node::record::NodeRecord;
use serde::{Deserialize, Serialize};

use crate::StudyError;
use crate::error::step;
use crate::io_nodes::{IoJob, Nodes};
use crate::results::unix_now_s;

pub use crate::io_nodes::MOST_NODES;
pub use folder::Folder;
pub use results::{Group, Line, Measured, PUBLISHED, Point, Quoted, Results, Tested};

/// Name of this study in errors.
const WHAT: &str = "writing and reading files from compute nodes";

/// Sizes of a transfer, bytes.
const TRANSFERS: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// Runs of a job without transfers, of which the median counts.
const IDLE_RUNS: usize = 3;
/// The longest a job may take on a machine under load, seconds.
const JOB_TIMEOUT_S: f64 = 3600.0;
/// Most transfers of a node in a phase.
const MOST_TRANSFERS: u64 = 1 << 24;

/// Files of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// A file for each rank.
    Own,
    /// One file, of which each rank has a part.
    Shared,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Own, Self::Shared];

    /// Its name for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "a file a node",
            Self::Shared => "one shared file",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
        }
    }
}

/// Direction of the transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// To the files.
    Write,
    /// From them.
    Read,
}

impl Phase {
    /// Both, in their order.
    pub const ALL: [Self; 2] = [Self::Write, Self::Read];

    /// As a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// A job of the study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Place for its files.
    pub place: PathBuf,
    /// Its files.
    pub layout: Layout,
    /// Its direction.
    pub phase: Phase,
    /// Compute nodes.
    pub nodes: u32,
    /// I/O nodes.
    pub io_nodes: u32,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Transfers of a node; with 0, files are only opened.
    pub count: u64,
}

impl Case {
    /// Runs it on nodes.
    ///
    /// # Errors
    /// [`StudyError::Step`] with what the job printed, such as that a file system is full.
    fn run(&self, nodes: &mut Nodes) -> Result<Used, StudyError> {
        let place = self.place.to_str().ok_or_else(|| step(WHAT, &"the folder's name is not UTF-8"))?;
        let (transfer, count) = (self.transfer.to_string(), self.count.to_string());
        let words = [self.phase.name(), self.layout.word(), place, &transfer, &count];
        let ran = nodes.run(IoJob {
            arguments: words.map(str::to_owned).to_vec(),
            nodes: self.nodes,
            io_nodes: self.io_nodes,
            timeout_s: JOB_TIMEOUT_S,
        })?;
        Ok(Used { wall_s: longest_s(&ran.stdout), node_s: ran.node_s, io_s: ran.io_s })
    }
}

/// The time that the slowest node took for its transfers, of those that the nodes printed, seconds.
fn longest_s(printed: &str) -> f64 {
    let all = printed.lines().filter_map(|line| line.trim().parse::<u64>().ok());
    all.max().map_or(0.0, |ns| ns as f64 / 1e9)
}

/// Resources of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Time that the slowest node took for its transfers, by its clock, seconds.
    pub wall_s: f64,
    /// Processor time of the nodes' emulators, seconds.
    pub node_s: f64,
    /// Of the I/O processes.
    pub io_s: f64,
}

impl Used {
    /// The median of several runs, component by component.
    fn median(runs: &[Self]) -> Self {
        let median = |of: fn(&Self) -> f64| {
            let mut all: Vec<f64> = runs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        Self { wall_s: median(|u| u.wall_s), node_s: median(|u| u.node_s), io_s: median(|u| u.io_s) }
    }

    /// The resources beyond those of a job without transfers.
    fn beyond(self, other: Self) -> Self {
        let more = |own: f64, other: f64| (own - other).max(0.0);
        Self {
            wall_s: self.wall_s,
            node_s: more(self.node_s, other.node_s),
            io_s: more(self.io_s, other.io_s),
        }
    }
}

/// Parameters of the study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Folders for files, each of its own file system.
    pub folders: Vec<PathBuf>,
    /// Numbers of compute nodes, ascending.
    pub nodes: Vec<u32>,
    /// Numbers of I/O nodes, ascending.
    pub io_nodes: Vec<u32>,
    /// Bytes of a transfer, ascending.
    pub transfers: Vec<u64>,
    /// Bytes of a node in a file.
    pub block_bytes: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            folders: vec!["/dev/shm".into(), ".".into()],
            nodes: vec![1, 2, 4, 8],
            io_nodes: vec![1, 2, 4],
            transfers: vec![256 << 10],
            block_bytes: 64 << 20,
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
        for (flag, all) in [("--nodes", &self.nodes), ("--io-nodes", &self.io_nodes)] {
            match all.iter().find(|&&n| n == 0 || n > MOST_NODES) {
                Some(n) => return wrong(format!("{flag} are 1 to {MOST_NODES}, not {n}")),
                None if all.is_empty() => return wrong(format!("give {flag} at least one number")),
                None => {}
            }
        }
        let (nodes, io_nodes) = (self.largest(), self.io_nodes.iter().min().copied().unwrap_or(1));
        if io_nodes > nodes {
            return wrong(format!(
                "--io-nodes {io_nodes} needs as many nodes at least, and --nodes has {nodes} at most"
            ));
        }
        if self.folders.is_empty() || self.transfers.is_empty() {
            return wrong("give --folder and --transfers at least one value".into());
        }
        for &bytes in &self.transfers {
            let (least, most) = (TRANSFERS.start(), TRANSFERS.end() >> 20);
            if !TRANSFERS.contains(&bytes) {
                return wrong(format!("--transfers are {least} bytes to {most} MiB, not {bytes} bytes"));
            }
            let block = self.block_bytes;
            if block < bytes || !block.is_multiple_of(bytes) {
                return wrong(format!(
                    "--block is a multiple of each transfer: {block} bytes are not one of {bytes}"
                ));
            }
            if block / bytes > MOST_TRANSFERS {
                return wrong(format!(
                    "--block has {MOST_TRANSFERS} transfers at most, not {}",
                    block / bytes
                ));
            }
        }
        Ok(())
    }

    fn largest(&self) -> u32 {
        self.nodes.iter().max().copied().unwrap_or(1)
    }

    /// Bytes of the files of the largest case; more than can be counted are as many as can be.
    #[must_use]
    pub fn largest_bytes(&self) -> u64 {
        self.block_bytes.saturating_mul(self.largest().into())
    }

    /// Compute nodes and I/O nodes that are measured together: an I/O node has a compute node at least.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let of = |&nodes: &u32| self.io_nodes.iter().filter(move |&&m| m <= nodes).map(move |&m| (nodes, m));
        self.nodes.iter().flat_map(of)
    }

    /// Number of jobs, those that open files only counted once for each pair.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let groups = self.folders.len() * Layout::ALL.len() * self.transfers.len() * Phase::ALL.len();
        ((groups + 1) * self.pairs().count()) as u64
    }

    /// Runs every case by `job`; `step` is called after each.
    ///
    /// # Errors
    /// The first error of `job`, or of a folder.
    pub fn measure(
        &self,
        folders: &[Folder],
        job: &mut dyn FnMut(&Case) -> Result<Used, StudyError>,
        step: impl Fn(),
    ) -> Result<Vec<Tested>, StudyError> {
        let Some(first) = folders.first() else { return Ok(Vec::new()) };
        let mut open = |nodes, io_nodes| {
            let (place, layout, phase) = (first.scratch().into(), Layout::Own, Phase::Write);
            let transfer = self.transfers.first().copied().unwrap_or(*TRANSFERS.start());
            let used = job(&Case { place, layout, phase, nodes, io_nodes, transfer, count: 0 });
            first.clear().and(used)
        };
        // the first job waits until all nodes have booted
        open(self.largest(), 1)?;
        let mut idle = Vec::new();
        for (nodes, io_nodes) in self.pairs() {
            let runs = (0..IDLE_RUNS).map(|_| open(nodes, io_nodes)).collect::<Result<Vec<_>, _>>()?;
            idle.push(Used::median(&runs));
            step();
        }
        let mut tested = Vec::new();
        for folder in folders {
            let mut groups = Vec::new();
            for layout in Layout::ALL {
                for &transfer in &self.transfers {
                    groups.extend(self.group(folder, (layout, transfer), &idle, job, &step)?);
                }
            }
            let (path, file_system) = (folder.path.clone(), folder.file_system.clone());
            tested.push(Tested { path, file_system, groups });
        }
        Ok(tested)
    }

    /// All pairs with one layout and size of transfers: what they write, then what they read.
    fn group(
        &self,
        folder: &Folder,
        (layout, transfer): (Layout, u64),
        idle: &[Used],
        job: &mut dyn FnMut(&Case) -> Result<Used, StudyError>,
        step: &impl Fn(),
    ) -> Result<[Group; 2], StudyError> {
        let [mut written, mut read] = [Vec::new(), Vec::new()];
        let count = self.block_bytes / transfer;
        let [write_ns, read_ns] = folder.without_nodes(transfer, count)?;
        for ((nodes, io_nodes), idle) in self.pairs().zip(idle) {
            let mut run = |phase| {
                let place = folder.scratch().into();
                job(&Case { place, layout, phase, nodes, io_nodes, transfer, count })
                    .map(|used| used.beyond(*idle))
            };
            let of = |used, storage_ns| Measured::of((nodes, io_nodes), (transfer, count), used, storage_ns);
            let used = run(Phase::Write)?;
            written.push(of(used, folder.flush()?));
            step();
            // nodes read what is in memory: the storage's part is measured before
            let storage_ns = folder.fetch()?;
            read.push(of(run(Phase::Read)?, storage_ns));
            step();
            folder.clear()?;
        }
        let kind = |phase| (layout, phase, transfer);
        Ok([Group::of(kind(Phase::Write), written, write_ns), Group::of(kind(Phase::Read), read, read_ns)])
    }

    /// Makes a place in each folder.
    ///
    /// # Errors
    /// As [`Folder::new`].
    pub fn folders(&self) -> Result<Vec<Folder>, StudyError> {
        self.check()?;
        self.folders.iter().map(|path| Folder::new(path, self)).collect()
    }

    /// Runs the study on this node, with files in `folders`; `notice` hears that it waits for other virtual machines of this
    /// user to end.
    ///
    /// # Errors
    /// Wrong parameters, nodes that cannot be had here, with what to install, a job that failed.
    pub fn run(
        &self,
        folders: &[Folder],
        command: &str,
        notice: fn(&str),
        step: impl Fn(),
    ) -> Result<Results, StudyError> {
        self.check()?;
        let (started_unix_s, began) = (unix_now_s(), Instant::now());
        let node = NodeRecord::now();
        let mut nodes = Nodes::new(WHAT, "colony-ior", self.largest(), notice)?;
        let tested = self.measure(folders, &mut |case| case.run(&mut nodes), step)?;
        Ok(Results {
            schema: Results::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            started_unix_s,
            took_s: began.elapsed().as_secs_f64(),
            plan: self.clone(),
            node,
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            published: PUBLISHED.map(Quoted::from).to_vec(),
            folders: tested,
        })
    }
}

#[cfg(test)]
mod tests;
