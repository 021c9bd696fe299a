// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node: its place in the tree, and one walk after the other.

mod child;
mod parent;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use colony_time::Estimate;

use super::config::{Config, LocalClock};
use super::error::SyncError;
use super::link::{Complaint, Link};
use super::report::{NodeResult, SyncReport};
use crate::fit::History;
use crate::hosts;
use crate::tree;
use crate::wire::{Record, WireError};

/// Time for which a node that is done still answers children whose last datagram was lost.
const LINGER: Duration = Duration::from_millis(300);

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

/// The state of one walk.
#[derive(Debug, Default)]
struct Walk {
    /// The reference on this clock, once it is known.
    known: Option<Estimate>,
    /// The child whose turn it is.
    turn: Option<u32>,
    /// Children that have had theirs.
    served: BTreeSet<u32>,
    /// The results of this node and those below it.
    records: BTreeMap<u32, Record>,
    /// The number of results from each child.
    arrived: BTreeMap<u32, usize>,
    /// The instant of the last datagram from each child.
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
            self.state.records.insert(record.rank.get(), record);
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
            let rank = r.rank.get();
            Some(NodeResult {
                rank,
                host: self.config.hosts.get(rank as usize)?.name.clone(),
                depth: tree::depth(rank),
                estimate: r.estimate.into(),
                round_trip_ns: r.round_trip_ns.get(),
                residual_ns: r.residual_ns.get(),
                trips: r.trips.get(),
                lost: r.lost.get(),
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
            seconds: self.config.silence_timeout.as_secs_f64(),
            told_by: None,
            dropped: self.link.dropped,
        }
    }
}
