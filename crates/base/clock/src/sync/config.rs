// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a node takes part: its rank, its peers, its clock.

use std::time::Duration;

use colony_time::clock::Clock;

use crate::fit::History;
use crate::hosts::Host;
use crate::key::Key;

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
