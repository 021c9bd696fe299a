// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparing the clocks of all nodes, along the [tree](mod@crate::tree), over UDP.
//!
//! A node first compares its clock with its parent's, then serves its children one after the other, then passes
//! what came out to its parent, so that rank 0 knows of all. A node that is not yet ready says that it is there;
//! one from which nothing comes for as long as [`Config::patience`] is named in the error, on every node.

mod child;
mod link;
mod parent;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use colony_time::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::Estimate;
use crate::fit::{FitError, History};
use crate::hosts::{self, Host};
use crate::key::Key;
use crate::tree;
use crate::wire::{Record, WireError};
use link::{Complaint, Link};

/// How long a node that is done answers children whose last words were lost.
const LINGER: Duration = Duration::from_millis(300);

/// The clock of a node.
pub trait LocalClock {
    /// What it reads, nanoseconds.
    fn now_ns(&self) -> i64;
}

/// `CLOCK_TAI`, which windows are counted on.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl LocalClock for SystemClock {
    fn now_ns(&self) -> i64 {
        Clock::Tai.now_ns()
    }
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Config {
    /// All nodes, the same on each of them.
    pub hosts: Vec<Host>,
    /// Which of them this is.
    pub rank: u32,
    /// How long a child asks its parent.
    pub round: Duration,
    /// Time between two questions.
    pub interval: Duration,
    /// How long a node may be silent.
    pub patience: Duration,
    /// What drifts are believed to change by, parts per million.
    pub wander_ppm: f64,
    /// The key that all nodes share; with it, only datagrams signed by it are taken.
    pub key: Option<Key>,
}

impl Config {
    /// Rounds of 2 s, a question each 5 ms, 10 s of patience.
    #[must_use]
    pub const fn new(hosts: Vec<Host>, rank: u32) -> Self {
        Self {
            hosts,
            rank,
            round: Duration::from_secs(2),
            interval: Duration::from_millis(5),
            patience: Duration::from_secs(10),
            wander_ppm: History::WANDER_PPM,
            key: None,
        }
    }
}

/// Why clocks were not compared.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A rank the list has not.
    #[error("rank {rank} is not in a list of {nodes} nodes (0 to {})", nodes.saturating_sub(1))]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// Nodes in the list.
        nodes: usize,
    },
    /// The list cannot be used.
    #[error(transparent)]
    Hosts(#[from] hosts::HostsError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A node was not heard of.
    #[error(
        "nothing was heard of rank {rank} ({host}) for {seconds} s{}; see that `colony clock sync` runs there with the \
         same host list and that UDP port {port} is open{}",
        told_by.as_ref().map(|by| format!(", says {by}")).unwrap_or_default(),
        if dropped.any() { format!(" (dropped datagrams: {dropped})") } else { String::new() }
    )]
    Silent {
        /// The node.
        rank: u32,
        /// Its name.
        host: String,
        /// Its port.
        port: u16,
        /// The patience it had.
        seconds: f64,
        /// Who told, where it was not this node that waited.
        told_by: Option<String>,
        /// Datagrams that were not taken.
        dropped: Dropped,
    },
    /// A node failed for a reason of its own.
    #[error("rank {rank} ({host}) has failed, says {told_by}; its own message tells why")]
    Failed {
        /// The node.
        rank: u32,
        /// Its name.
        host: String,
        /// Who told.
        told_by: String,
    },
    /// A node has another list of hosts.
    #[error("rank {rank} ({host}) has another host list; give all nodes the same file, in the same order")]
    OtherList {
        /// The node.
        rank: u32,
        /// Its name.
        host: String,
    },
    /// A node has another version.
    #[error("{host}: {source}")]
    OtherVersion {
        /// Its name.
        host: String,
        /// Which.
        source: WireError,
    },
    /// The trips say nothing.
    #[error("comparing with rank {rank} ({host}): {source}")]
    Fit {
        /// The parent.
        rank: u32,
        /// Its name.
        host: String,
        /// Why.
        source: FitError,
    },
}

impl SyncError {
    /// Whether other words of the user would have done it.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Rank { .. } | Self::Hosts(_))
    }
}

/// Datagrams that were dropped in a walk, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// From addresses that are not in the host list.
    pub strangers: u64,
    /// Not signed with the key of this node, if it has one.
    pub unsigned: u64,
    /// Of no known form.
    pub malformed: u64,
    /// Of another version.
    pub other_version: u64,
    /// Of a node with another host list.
    pub other_list: u64,
}

impl Dropped {
    /// Whether there were any.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            (self.strangers, "from addresses outside the host list"),
            (self.unsigned, "not signed with this key"),
            (self.malformed, "malformed"),
            (self.other_version, "of another version"),
            (self.other_list, "with another host list"),
        ];
        let mut between = "";
        for (n, why) in all.into_iter().filter(|(n, _)| *n > 0) {
            write!(f, "{between}{n} {why}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// What came out for a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeResult {
    /// Its rank.
    pub rank: u32,
    /// Its name in the list.
    pub host: String,
    /// Steps to rank 0.
    pub depth: u32,
    /// Rank 0's clock as this node's clock tells it.
    pub estimate: Estimate,
    /// Quickest round trip to its parent, nanoseconds.
    pub round_trip_ns: u64,
    /// Distance of the line from its samples, nanoseconds.
    pub residual_ns: f64,
    /// Round trips made with the parent.
    pub trips: u32,
    /// Questions that were not answered.
    pub lost: u32,
}

/// What came out of one walk of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncReport {
    /// [`SyncReport::SCHEMA`].
    pub schema: String,
    /// How often the tree has been walked, this time included.
    pub cycle: u32,
    /// Nodes that took part.
    pub node_count: u32,
    /// Rounds that takes.
    pub rounds: u32,
    /// Time of a round, nanoseconds.
    pub round_ns: u64,
    /// Time between two questions, nanoseconds.
    pub interval_ns: u64,
    /// What drifts are believed to change by, parts per million.
    pub wander_ppm: f64,
    /// This node's rank.
    pub rank: u32,
    /// Datagrams that this node dropped.
    #[serde(default)]
    pub dropped: Dropped,
    /// This node on rank 0's list; on all others only itself and those below it.
    pub nodes: Vec<NodeResult>,
}

impl SyncReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.clock.sync/1";

    /// What came out for the node that made the report.
    #[must_use]
    pub fn own(&self) -> Option<&NodeResult> {
        self.nodes.iter().find(|n| n.rank == self.rank)
    }
}

/// A node among others.
#[derive(Debug)]
pub struct Node<C> {
    config: Config,
    clock: C,
    link: Link,
    children: Vec<u32>,
    /// Of each child: itself and all below it.
    sizes: BTreeMap<u32, usize>,
    /// This node's clock against its parent's.
    history: History,
    cycle: u32,
    state: Walk,
}

/// What is known in one walk.
#[derive(Debug, Default)]
struct Walk {
    /// The reference on this clock, once it is known.
    known: Option<Estimate>,
    /// The child whose turn it is.
    turn: Option<u32>,
    /// Children that have had theirs.
    served: BTreeSet<u32>,
    /// What came out, here and below.
    records: BTreeMap<u32, Record>,
    /// How many of them came from each child.
    arrived: BTreeMap<u32, usize>,
    /// When a child was heard of last.
    heard: BTreeMap<u32, Instant>,
}

impl<C: LocalClock> Node<C> {
    /// Opens the port of this node.
    ///
    /// # Errors
    /// [`SyncError::Rank`], [`SyncError::Hosts`], or [`SyncError::System`] where the port is taken.
    pub fn open(config: Config, clock: C) -> Result<Self, SyncError> {
        let addresses = hosts::addresses(&config.hosts)?;
        let link = Link::open(&config, addresses)?;
        Ok(Self::on(config, clock, link))
    }

    /// As [`open`](Self::open), on a socket that is there already; `addresses` are the nodes'.
    ///
    /// # Errors
    /// As there.
    pub fn with_socket(
        config: Config,
        clock: C,
        socket: std::net::UdpSocket,
        addresses: Vec<SocketAddr>,
    ) -> Result<Self, SyncError> {
        let link = Link::with_socket(&config, socket, addresses)?;
        Ok(Self::on(config, clock, link))
    }

    fn on(config: Config, clock: C, link: Link) -> Self {
        let nodes = config.hosts.len() as u32;
        let children = tree::children(config.rank, nodes);
        Self {
            sizes: children.iter().map(|&c| (c, tree::subtree(c, nodes).len())).collect(),
            children,
            history: History::new(config.wander_ppm),
            cycle: 0,
            state: Walk::default(),
            config,
            clock,
            link,
        }
    }

    /// Forgets earlier walks: this node's clock was set, or its rate changed.
    pub fn forget(&mut self) {
        self.history.clear();
    }

    /// Walks the tree once; rank 0's report tells of all nodes, another one's of itself and those below it.
    ///
    /// # Errors
    /// [`SyncError`] with the node that is to blame; the others are told, and fail as well.
    pub fn walk(&mut self) -> Result<SyncReport, SyncError> {
        self.cycle = self.cycle.wrapping_add(1);
        let now = Instant::now();
        self.state = Walk { heard: self.children.iter().map(|&c| (c, now)).collect(), ..Walk::default() };
        self.link.begin();
        let done = self.compare().and_then(|record| {
            self.state.records.insert(record.rank, record);
            self.serve()?;
            self.gather()?;
            self.hand_up()
        });
        if let Err(e) = &done {
            self.abort(e);
        }
        done?;
        Ok(self.report())
    }

    /// Answers the others until `until`: those that are not done yet, and those that are early.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    pub fn idle(&mut self, until: Instant) -> Result<(), SyncError> {
        while Instant::now() < until {
            if let Some(heard) = self.link.receive(until, &self.clock)? {
                self.answer(&heard);
            }
        }
        Ok(())
    }

    /// Answers a little longer, before this node ends: what it said last may have been lost.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    pub fn linger(&mut self) -> Result<(), SyncError> {
        if self.children.is_empty() { Ok(()) } else { self.idle(Instant::now() + LINGER) }
    }

    /// The clock it compares.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    fn report(&self) -> SyncReport {
        let nodes = self.state.records.values().filter_map(|r| {
            Some(NodeResult {
                rank: r.rank,
                host: self.config.hosts.get(r.rank as usize)?.name.clone(),
                depth: tree::depth(r.rank),
                estimate: r.estimate,
                round_trip_ns: r.round_trip_ns,
                residual_ns: r.residual_ns,
                trips: r.trips,
                lost: r.lost,
            })
        });
        let node_count = self.config.hosts.len() as u32;
        SyncReport {
            schema: SyncReport::SCHEMA.into(),
            cycle: self.cycle,
            node_count,
            rounds: tree::rounds(node_count),
            round_ns: self.config.round.as_nanos() as u64,
            interval_ns: self.config.interval.as_nanos() as u64,
            wander_ppm: self.config.wander_ppm,
            rank: self.config.rank,
            dropped: self.link.dropped,
            nodes: nodes.collect(),
        }
    }

    fn name(&self, rank: u32) -> String {
        self.config.hosts.get(rank as usize).map_or_else(|| "?".into(), |h| h.name.clone())
    }

    /// The error where nothing that could be taken came from `rank`.
    fn silent(&self, rank: u32) -> SyncError {
        let host = self.name(rank);
        match self.link.complaint(rank) {
            Some(Complaint::List) => return SyncError::OtherList { rank, host },
            Some(Complaint::Version(version)) => {
                return SyncError::OtherVersion { host, source: WireError::Version(version) };
            }
            None => {}
        }
        SyncError::Silent {
            rank,
            host,
            port: self.config.hosts.get(rank as usize).map_or(hosts::DEFAULT_PORT, |h| h.port),
            seconds: self.config.patience.as_secs_f64(),
            told_by: None,
            dropped: self.link.dropped,
        }
    }
}
