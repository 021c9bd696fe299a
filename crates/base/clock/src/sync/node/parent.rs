// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node towards its children: answer them, one at a time, and gather what came out below.

use std::time::{Duration, Instant};

use super::Node;
use crate::sync::config::LocalClock;
use crate::sync::error::SyncError;
use crate::sync::link::Heard;
use crate::tree;
use crate::wire::Message;

/// Interval at which a node tells its parent that it is there.
const ALIVE: Duration = Duration::from_millis(250);
/// Number of times that the end is sent: datagrams may be lost.
const TELLINGS: usize = 3;

impl<C: LocalClock> Node<C> {
    /// Serves the children in the order of their rounds, until all have asked enough.
    pub(super) fn serve(&mut self) -> Result<(), SyncError> {
        for child in self.children.clone() {
            self.state.turn = Some(child);
            self.pump(|node| node.state.served.contains(&child))?;
        }
        self.state.turn = None;
        Ok(())
    }

    /// Waits until everybody below has handed up what came out.
    pub(super) fn gather(&mut self) -> Result<(), SyncError> {
        let all = 1 + self.sizes.values().sum::<usize>();
        self.pump(|node| node.state.records.len() == all)
    }

    /// Answers every child that asks, until `done`; a silent child is an error.
    fn pump(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), SyncError> {
        let parent = tree::parent(self.config.rank);
        let mut next_alive = Instant::now();
        while !done(self) {
            if let Some(parent) = parent.filter(|_| Instant::now() >= next_alive) {
                self.link.send(parent, self.cycle, Message::Alive);
                next_alive = Instant::now() + ALIVE;
            }
            if let Some(heard) = self.link.receive(Instant::now() + ALIVE, &self.clock)? {
                self.check_abort(&heard)?;
                self.answer(&heard);
            }
            self.check_children()?;
        }
        Ok(())
    }

    fn check_children(&self) -> Result<(), SyncError> {
        let all_in = |child: &u32| self.state.arrived.get(child) == self.sizes.get(child);
        let late =
            |(child, at): &(&u32, &Instant)| at.elapsed() > self.config.silence_timeout && !all_in(child);
        let late = self.state.heard.iter().find(late);
        late.map_or(Ok(()), |(&child, _)| Err(self.silent(child)))
    }

    /// Does what a child asks for. Anybody else, and anything else, is passed over.
    pub(super) fn answer(&mut self, heard: &Heard) {
        let child = heard.from;
        if !self.children.contains(&child) {
            return;
        }
        self.state.heard.insert(child, Instant::now());
        let this_walk = heard.cycle == self.cycle;
        let reply = match &heard.message {
            Message::Ask if self.state.turn == Some(child) => Message::Ready,
            Message::Ask => Message::Busy,
            // one at a time: the others' questions would wait in the socket and look like a long way
            Message::Probe { nonce } if this_walk && self.state.turn == Some(child) => {
                Message::Reply { nonce: *nonce, received_ns: heard.at_ns, replied_ns: self.clock.now_ns() }
            }
            Message::Finish { nonce } if this_walk => {
                let Some(estimate) = self.state.known else { return };
                self.state.served.insert(child);
                Message::Known { nonce: *nonce, estimate }
            }
            Message::Records { nonce, records } if this_walk => {
                for r in records {
                    let rank = r.rank.get();
                    if self.is_below(child, rank) && self.state.records.insert(rank, *r).is_none() {
                        *self.state.arrived.entry(child).or_default() += 1;
                    }
                }
                Message::Ack { nonce: *nonce }
            }
            _ => return,
        };
        self.link.send(child, self.cycle, reply);
    }

    /// Returns `true` if `rank` is `child` or below it.
    fn is_below(&self, child: u32, rank: u32) -> bool {
        let up = std::iter::successors(Some(rank), |&r| tree::parent(r));
        (rank as usize) < self.config.hosts.len() && up.take_while(|&r| r >= child).any(|r| r == child)
    }

    /// Returns an error if parent or child report that the walk has failed.
    pub(super) fn check_abort(&self, heard: &Heard) -> Result<(), SyncError> {
        let Message::Abort { rank, silent } = heard.message else { return Ok(()) };
        let neighbour =
            tree::parent(self.config.rank) == Some(heard.from) || self.children.contains(&heard.from);
        if !neighbour || heard.cycle != self.cycle {
            return Ok(());
        }
        let by = self.name(heard.from);
        if !silent {
            return Err(SyncError::Failed { rank, host: self.name(rank), told_by: by });
        }
        let mut error = self.silent(rank);
        if let SyncError::Silent { told_by, .. } = &mut error {
            *told_by = Some(by);
        }
        Err(error)
    }

    /// Tells parent and children that the walk has failed.
    pub(super) fn abort(&self, error: &SyncError) {
        let (rank, silent) = match error {
            SyncError::Silent { rank, .. } => (*rank, true),
            SyncError::Failed { rank, .. } | SyncError::OtherList { rank, .. } => (*rank, false),
            _ => (self.config.rank, false),
        };
        for _ in 0..TELLINGS {
            for &to in self.children.iter().chain(tree::parent(self.config.rank).iter()) {
                self.link.send(to, self.cycle, Message::Abort { rank, silent });
            }
        }
    }
}
