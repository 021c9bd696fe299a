// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of a node: its rank, its peers, its clock.

use std::time::Duration;

use colony_time::clock::Clock;

use crate::fit::History;
use crate::hosts::Host;
use crate::key::Key;

/// The clock of a node.
pub trait LocalClock {
    /// The reading of the clock, nanoseconds.
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

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// All nodes, the same on each of them.
    pub hosts: Vec<Host>,
    /// The rank of this node: its index in `hosts`.
    pub rank: u32,
    /// Time for which a child asks its parent.
    pub round: Duration,
    /// Time between two questions.
    pub interval: Duration,
    /// Time after which a silent node counts as failed.
    pub silence_timeout: Duration,
    /// The assumed change of drifts, parts per million.
    pub wander_ppm: f64,
    /// The key that all nodes share; with it, only datagrams signed by it are taken.
    pub key: Option<Key>,
}

impl Config {
    /// Rounds of 2 s, a question each 5 ms, 10 s of silence_timeout.
    #[must_use]
    pub const fn new(hosts: Vec<Host>, rank: u32) -> Self {
        Self {
            hosts,
            rank,
            round: Duration::from_secs(2),
            interval: Duration::from_millis(5),
            silence_timeout: Duration::from_secs(10),
            wander_ppm: History::WANDER_PPM,
            key: None,
        }
    }
}
