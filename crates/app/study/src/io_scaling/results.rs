// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the study: what was measured, the service times that follow, and the model's lines.

use std::path::PathBuf;

use colony_node::record::NodeRecord;
use serde::{Deserialize, Serialize};

use super::model::{Saturated, Services};
use super::{Layout, Phase, Plan, Used};
use crate::chart::{self, Chart, Quantity};
use crate::format::{bytes_per_s, count, counted, number};

/// Sentences of the SC06 paper on Figs. 4 and 5, each with its place. The document at hand does not have the plots.
pub const PUBLISHED: [(&str, &str); 3] = [
    (
        "section 4.1, Fig. 4",
        "Out of a peak Gigabit Ethernet bandwidth of 125 MB/s per I/O node, we see that socket I/O in Blue Gene/L achieves \
         over 110 MB/s per I/O node.",
    ),
    (
        "section 4.2, Fig. 5",
        "It is clear from the graph that performance scales well with number of nodes until \"something else\" saturates. \
         For this particular experiment, that something else is the DS4300 disk controllers.",
    ),
    (
        "section 4.2, Fig. 5",
        "Writes saturate before reads because of the RAID-5 operations in the controllers.",
    ),
];

/// Compute nodes and I/O nodes of the model's lines; the paper's machine had 2048 and 256.
const LINE_NODES: [u32; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
const LINE_IO_NODES: [u32; 6] = [1, 2, 4, 16, 64, 256];

/// Results of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`Results::SCHEMA`].
    pub schema: String,
    /// Version of Colony that made them.
    pub version: String,
    /// The command that makes them again.
    pub command: String,
    /// Begin of the study, seconds since 1970 (UTC).
    pub started_unix_s: i64,
    /// Duration of the study, seconds.
    pub took_s: f64,
    /// Its parameters.
    pub plan: Plan,
    /// The node it ran on.
    pub node: NodeRecord,
    /// CPUs of the host that the study could use.
    pub cpus: u32,
    /// Published sentences.
    pub published: Vec<Quoted>,
    /// Each folder.
    pub folders: Vec<Tested>,
}

/// A published sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quoted {
    /// Place in the SC06 paper.
    pub place: String,
    /// Word for word.
    pub text: String,
}

impl From<(&str, &str)> for Quoted {
    fn from((place, text): (&str, &str)) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

/// A folder that was tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// The folder.
    pub path: PathBuf,
    /// Its file system.
    pub file_system: String,
    /// A group for each layout, size of transfers and direction.
    pub groups: Vec<Group>,
}

/// Jobs that differ in their numbers of nodes only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Files.
    pub layout: Layout,
    /// Direction.
    pub phase: Phase,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// The jobs.
    pub measured: Vec<Measured>,
    /// Service times of a transfer, from all of them.
    pub services: Services,
    /// The model's lines.
    pub lines: Vec<Line>,
}

/// Measurements of a job. What a job without transfers takes of processor time is subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Compute nodes.
    pub nodes: u32,
    /// I/O nodes.
    pub io_nodes: u32,
    /// Transfers of all nodes.
    pub transfers: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Time that the slowest node took for its transfers, by its clock, seconds.
    pub wall_s: f64,
    /// Processor time of the nodes' emulators, seconds.
    pub node_s: f64,
    /// Of the I/O processes with the file system's part, seconds.
    pub io_s: f64,
    /// Time that a flush of what was written, or a read of what was not in memory, waited for the storage, seconds.
    pub storage_s: f64,
}

/// A line of the model: bandwidth over nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// I/O nodes.
    pub io_nodes: u32,
    /// The part that saturates.
    pub saturated: Saturated,
    /// From this number of nodes on; `None` if nothing does.
    pub from_nodes: Option<f64>,
    /// The line.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Compute nodes.
    pub nodes: u32,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

impl Measured {
    pub(super) fn of(
        (nodes, io_nodes): (u32, u32),
        (transfer, count): (u64, u64),
        used: Used,
        storage_ns: f64,
    ) -> Self {
        let transfers = count.saturating_mul(nodes.into());
        let Used { wall_s, node_s, io_s } = used;
        let bytes = transfers.saturating_mul(transfer);
        Self { nodes, io_nodes, transfers, bytes, wall_s, node_s, io_s, storage_s: storage_ns / 1e9 }
    }

    /// Bytes a second, by the clock.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.wall_s
    }

    /// Processor time that a transfer takes of the nodes, and of the I/O processes in all, ns.
    #[must_use]
    pub fn cpu_ns(&self) -> [f64; 2] {
        [self.node_s, self.io_s].map(|s| s * 1e9 / self.transfers.max(1) as f64)
    }

    /// The part that was busy for most of the time, and the share of the time.
    #[must_use]
    pub fn busiest(&self, cpus: u32) -> (Saturated, f64) {
        let parts = [
            (Saturated::Host, (self.node_s + self.io_s) / f64::from(cpus.max(1))),
            (Saturated::IoProcess, self.io_s / f64::from(self.io_nodes.max(1))),
            (Saturated::Nodes, self.node_s / f64::from(self.nodes.max(1))),
        ];
        let most = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or((Saturated::Nodes, 0.0), |(part, s)| (part, (s / self.wall_s).min(1.0)))
    }
}

impl Group {
    /// `file_system_ns`: processor time of a transfer without nodes, which is a part of the I/O process's.
    pub(super) fn of(
        (layout, phase, transfer): (Layout, Phase, u64),
        measured: Vec<Measured>,
        file_system_ns: f64,
    ) -> Self {
        let transfers = measured.iter().map(|m| m.transfers).sum::<u64>().max(1) as f64;
        let each_ns = |of: fn(&Measured) -> f64| measured.iter().map(of).sum::<f64>() * 1e9 / transfers;
        let served_ns = each_ns(|m| m.io_s);
        let file_system_ns = file_system_ns.min(served_ns);
        let services = Services {
            node_ns: each_ns(|m| m.node_s),
            io_ns: served_ns - file_system_ns,
            file_system_ns,
            storage_ns: each_ns(|m| m.storage_s),
        };
        let line = |io_nodes: u32| {
            let (saturated, from) = services.saturation(io_nodes);
            let point = |nodes: u32| Point {
                nodes,
                bytes_per_s: services.transfers_per_s(nodes, io_nodes) * transfer as f64,
            };
            let points = LINE_NODES.map(point).to_vec();
            Line { io_nodes, saturated, from_nodes: from.is_finite().then_some(from), points }
        };
        let lines = LINE_IO_NODES.map(line).to_vec();
        Self { layout, phase, transfer, measured, services, lines }
    }

    /// Bandwidth here by the model, whose nodes and I/O processes share the host's CPUs.
    #[must_use]
    pub fn modelled_here(&self, m: &Measured, cpus: u32) -> f64 {
        // the storage is measured apart from the jobs
        let services = Services { storage_ns: 0.0, ..self.services };
        services.transfers_per_s_here(m.nodes, m.io_nodes, cpus) * self.transfer as f64
    }

    /// Its name, for a table and a figure.
    #[must_use]
    pub fn name(&self, folder: &Tested) -> String {
        let size = match self.transfer {
            mib if mib.is_multiple_of(1 << 20) => format!("{} MiB", mib >> 20),
            kib if kib.is_multiple_of(1 << 10) => format!("{} KiB", kib >> 10),
            bytes => format!("{} bytes", count(bytes)),
        };
        let (phase, layout) = (self.phase.name(), self.layout.name());
        format!("{phase}, {layout}, {}, {size} a transfer", folder.file_system)
    }

    /// The model's lines as a chart.
    #[must_use]
    pub fn chart(&self, folder: &Tested, id: String) -> Chart {
        let line = |l: &Line| chart::Line {
            name: counted(l.io_nodes.into(), "I/O node"),
            values: l.points.iter().map(|p| p.bytes_per_s).collect(),
        };
        Chart {
            id,
            title: self.name(folder),
            caption: format!(
                "Modelled with the service times measured in {}. {}",
                folder.path.display(),
                self.ends()
            ),
            quantity: Quantity::BytesPerS,
            nodes: LINE_NODES.to_vec(),
            lines: self.lines.iter().map(line).collect(),
        }
    }

    /// Where the lines saturate, in a sentence.
    #[must_use]
    pub fn ends(&self) -> String {
        let end = |l: &Line| match l.from_nodes {
            Some(from) => {
                format!("{}: {} from {} nodes on", l.io_nodes, l.saturated.name(), number(from.ceil()))
            }
            None => format!("{}: nothing", l.io_nodes),
        };
        let all: Vec<String> = self.lines.iter().map(end).collect();
        format!("What saturates, by I/O nodes: {}.", all.join("; "))
    }
}

impl Results {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.study.io-scaling/1";

    /// All groups with their folders.
    pub fn groups(&self) -> impl Iterator<Item = (&Tested, &Group)> {
        self.folders.iter().flat_map(|folder| folder.groups.iter().map(move |group| (folder, group)))
    }

    /// Shapes beside the published ones, a sentence for each folder and layout.
    #[must_use]
    pub fn shapes(&self) -> Vec<String> {
        let most = |g: &Group, at: usize| g.lines.get(at)?.points.last().map(|p| p.bytes_per_s);
        let shape = |folder: &Tested, write: &Group, read: &Group| {
            let last = LINE_IO_NODES.len() - 1;
            let [w, r] = [most(write, last)?, most(read, last)?];
            let (one, many) = (write.lines.first()?, write.lines.last()?);
            Some(format!(
                "{}, {}: bandwidth grows with the nodes until the {} saturates with 1 I/O node, and the {} with {}. With {}, writes \
                 end at {} and reads at {}: {}.",
                folder.file_system,
                write.layout.name(),
                one.saturated.name(),
                many.saturated.name(),
                count(many.io_nodes.into()),
                count(many.io_nodes.into()),
                bytes_per_s(w),
                bytes_per_s(r),
                if w < r {
                    "writes saturate before reads, as published"
                } else {
                    "reads saturate before writes, unlike published"
                },
            ))
        };
        let pairs = self.folders.iter().flat_map(|f| f.groups.chunks_exact(2).map(move |pair| (f, pair)));
        pairs.filter_map(|(folder, pair)| shape(folder, &pair[0], &pair[1])).collect()
    }

    /// The main result in one sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let Some((folder, group)) = self.groups().next() else { return "Nothing was measured.".into() };
        let (Some(one), Some(many)) = (group.lines.first(), group.lines.last()) else {
            return "Nothing was modelled.".into();
        };
        let most = |line: &Line| line.points.last().map_or(0.0, |p| p.bytes_per_s);
        format!(
            "On {}, one I/O node writes {} at most, where the {} saturates; {} I/O nodes with {} compute nodes write {}.",
            folder.file_system,
            bytes_per_s(most(one)),
            one.saturated.name(),
            count(many.io_nodes.into()),
            count(many.points.last().map_or(0, |p| p.nodes).into()),
            bytes_per_s(most(many)),
        )
    }
}
