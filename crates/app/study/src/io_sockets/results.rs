// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the study: bandwidth over compute nodes, beside the published value.

use colony_node::record::NodeRecord;
use serde::{Deserialize, Serialize};

use super::{Direction, Plan, Used, most_data};
use crate::chart::{self, Chart, Quantity};
use crate::format::{NOT_KNOWN, bytes_per_s, count, counted, percent};
use crate::results::{Basis, Published};

/// The published sentence. The document at hand does not have the plot.
pub const PUBLISHED: &str = "Out of a peak Gigabit Ethernet bandwidth of 125 MB/s per I/O node, we see that socket I/O in Blue \
                             Gene/L achieves over 110 MB/s per I/O node.";
/// Place of [`PUBLISHED`].
pub const SOURCE: &str =
    "Designing a Highly-Scalable Operating System: The Blue Gene/L Story (SC06), section 4.1, Fig. 4";
/// Share of the link in [`PUBLISHED`]: 110 of 125 MB/s.
const PUBLISHED_SHARE: f64 = 110.0 / 125.0;
/// Name of this study in rows of published values.
const NAME: &str = "io-sockets";

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
    /// The same program without compute nodes.
    pub references: Vec<Reference>,
    /// Each direction and number of compute nodes.
    pub measured: Vec<Measured>,
    /// Published values beside ours.
    pub compared: Vec<Published>,
}

/// A transfer of the program on this host, without compute nodes and I/O daemon.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Direction.
    pub direction: Direction,
    /// The link, bytes a second; `None`: without a limit.
    pub link_bytes_per_s: Option<f64>,
    /// Bytes moved.
    pub bytes: u64,
    /// Time that this took, seconds.
    pub wall_s: f64,
    /// Processor time of the server, seconds.
    pub server_s: f64,
}

/// Measurements of a job. The processor time of a job that connects only is subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Direction.
    pub direction: Direction,
    /// Compute nodes.
    pub nodes: u32,
    /// Transfers of all nodes.
    pub transfers: u64,
    /// Bytes of all nodes.
    pub bytes: u64,
    /// Time from the beginning of all transfers to the end of the last, seconds.
    pub wall_s: f64,
    /// Processor time of the emulators, seconds.
    pub node_s: f64,
    /// Of the I/O process, seconds.
    pub io_s: f64,
    /// Of the server, seconds.
    pub server_s: f64,
}

/// A part that can be busy all of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The link of the I/O node.
    Link,
    /// The I/O process.
    IoProcess,
    /// The nodes themselves.
    Nodes,
    /// The processors of this host, which nodes, I/O process and server share.
    Host,
}

impl Part {
    /// Its name for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::IoProcess => "I/O process",
            Self::Nodes => "nodes",
            Self::Host => "host CPUs",
        }
    }
}

impl Reference {
    pub(super) fn of(direction: Direction, link_bytes_per_s: Option<f64>, bytes: u64, used: Used) -> Self {
        Self { direction, link_bytes_per_s, bytes, wall_s: used.wall_s, server_s: used.server_s }
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.wall_s
    }
}

impl Measured {
    pub(super) fn of(direction: Direction, nodes: u32, plan: &Plan, used: Used, idle: Used) -> Self {
        let bytes = plan.block_bytes * u64::from(nodes);
        let more = |own: f64, idle: f64| (own - idle).max(0.0);
        Self {
            direction,
            nodes,
            transfers: bytes / plan.transfer,
            bytes,
            wall_s: used.wall_s,
            node_s: more(used.node_s, idle.node_s),
            io_s: more(used.io_s, idle.io_s),
            server_s: used.server_s,
        }
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.wall_s
    }

    /// Processor time of a transfer, ns: of the nodes, of the I/O process, of the server.
    #[must_use]
    pub fn cpu_ns(&self) -> [f64; 3] {
        [self.node_s, self.io_s, self.server_s].map(|s| s * 1e9 / self.transfers.max(1) as f64)
    }

    /// Bandwidth of the data as a share of the link's peak.
    #[must_use]
    pub fn share_of(&self, link_bytes_per_s: f64) -> f64 {
        self.bytes_per_s() / link_bytes_per_s
    }

    /// The part that was busy for the largest share of the time, and the share.
    #[must_use]
    pub fn busiest(&self, plan: &Plan, cpus: u32) -> (Part, f64) {
        let cpu_s = self.node_s + self.io_s + self.server_s;
        let carried_s = plan.link_bytes_per_s.map_or(0.0, |link| self.bytes as f64 / most_data(link));
        let parts = [
            (Part::Nodes, self.node_s / f64::from(self.nodes.max(1))),
            (Part::IoProcess, self.io_s),
            (Part::Host, cpu_s / f64::from(cpus.max(1))),
            (Part::Link, carried_s),
        ];
        let most = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or((Part::Nodes, 0.0), |(part, s)| (part, (s / self.wall_s).min(1.0)))
    }
}

/// The published share of the link beside ours, a row for each direction; none without a link.
pub(super) fn compare(plan: &Plan, measured: &[Measured]) -> Vec<Published> {
    let Some(link) = plan.link_bytes_per_s else { return Vec::new() };
    let row = |direction: Direction| {
        let jobs = measured.iter().filter(|m| m.direction == direction);
        let best = jobs.max_by(|a, b| a.share_of(link).total_cmp(&b.share_of(link)))?;
        let share = best.share_of(link);
        Some(Published {
            experiment: NAME.into(),
            place: SOURCE.into(),
            what: format!("share of the link, {}", direction.name()),
            published: "over 88 %".into(),
            // "over": a limit
            published_value: None,
            basis: Some(Basis::Measured),
            ours: percent(share),
            value: Some(share),
            note: format!("measured on this host with {}", counted(best.nodes.into(), "compute node")),
        })
    };
    Direction::ALL.into_iter().filter_map(row).collect()
}

impl Results {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.study.io-sockets/1";

    /// Jobs of a direction.
    pub fn jobs(&self, direction: Direction) -> impl Iterator<Item = &Measured> {
        self.measured.iter().filter(move |m| m.direction == direction)
    }

    /// The fewest compute nodes that reach the published share of the link; `None` if no number does, or there is no link.
    #[must_use]
    pub fn reached_from(&self, direction: Direction) -> Option<u32> {
        let link = self.plan.link_bytes_per_s?;
        self.jobs(direction).find(|m| m.share_of(link) >= PUBLISHED_SHARE).map(|m| m.nodes)
    }

    /// From how many compute nodes on the published share is reached, a sentence for both directions.
    #[must_use]
    pub fn reached(&self) -> String {
        if self.plan.link_bytes_per_s.is_none() {
            return "Without a link (--link none), no share of it can be compared with the published one."
                .into();
        }
        let told = |direction| match self.reached_from(direction) {
            Some(nodes) => {
                format!("{} reaches it from {} on", Direction::name(direction), counted(nodes.into(), "node"))
            }
            None => format!("{} does not reach it", Direction::name(direction)),
        };
        let [send, receive] = Direction::ALL.map(told);
        format!("The published share of the link is 88 %: {send}, {receive}.")
    }

    /// The reference of a direction without compute nodes, and without a link if `limited` is false.
    #[must_use]
    pub fn reference(&self, direction: Direction, limited: bool) -> Option<&Reference> {
        self.references.iter().find(|r| r.direction == direction && r.link_bytes_per_s.is_some() == limited)
    }

    /// The references in one sentence.
    #[must_use]
    pub fn without_nodes(&self) -> String {
        let pair = |limited: bool| {
            let rates = Direction::ALL.map(|direction| {
                let rate = self.reference(direction, limited)?.bytes_per_s();
                Some(format!("{} {}", direction.name(), bytes_per_s(rate)))
            });
            let [send, receive] = rates;
            Some(format!("{}, {}", send?, receive?))
        };
        let limited = pair(true).map(|rates| format!("over the link {rates}; "));
        let open = pair(false).unwrap_or_else(|| NOT_KNOWN.into());
        format!(
            "The same program without compute nodes: {}without a link {open}.",
            limited.unwrap_or_default()
        )
    }

    /// The main result in one sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let best = |direction| self.jobs(direction).map(Measured::bytes_per_s).fold(0.0, f64::max);
        let [send, receive] = Direction::ALL.map(best);
        let text = format!(
            "Through one I/O node, compute nodes send {} and receive {}",
            bytes_per_s(send),
            bytes_per_s(receive)
        );
        match self.plan.link_bytes_per_s {
            Some(link) => format!(
                "{text}: {} and {} of a link of {}.",
                percent(send / link),
                percent(receive / link),
                bytes_per_s(link)
            ),
            None => format!("{text}, without a link."),
        }
    }

    /// Bandwidth over compute nodes.
    #[must_use]
    pub fn chart(&self) -> Chart {
        let nodes = &self.plan.nodes;
        let measured = |direction: Direction| chart::Line {
            name: direction.name().into(),
            values: self.jobs(direction).map(Measured::bytes_per_s).collect(),
        };
        let level =
            |name: &str, rate: f64| chart::Line { name: name.into(), values: vec![rate; nodes.len()] };
        let mut lines = Direction::ALL.map(measured).to_vec();
        if let Some(link) = self.plan.link_bytes_per_s {
            lines.push(level("peak of the link", link));
            lines.push(level("published share", link * PUBLISHED_SHARE));
        }
        Chart {
            id: "sockets".into(),
            title: "Sockets through one I/O node".into(),
            caption: format!(
                "Bandwidth of all compute nodes, each of which moves {} bytes in transfers of {}. {}",
                count(self.plan.block_bytes),
                count(self.plan.transfer),
                self.reached()
            ),
            quantity: Quantity::BytesPerS,
            nodes: nodes.clone(),
            lines,
        }
    }
}
