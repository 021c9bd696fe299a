// SPDX-License-Identifier: MIT OR Apache-2.0
//! The failures of all nodes of a job, in order.
//!
//! N nodes are N renewal processes: a node that fails is replaced by a new one, and the others keep their ages. The first
//! failures of the N nodes are N independent lives, so in order they are order statistics: while k of the first nodes are
//! left, the cumulative hazard to the next failure grows by an exponential number over k (Rényi, "On the theory of order
//! statistics", 1953). They are drawn one after another, without a queue of N nodes. Only nodes that were replaced
//! wait in a queue, so f failures cost O(f log f) time and O(f) memory on any number of nodes. Nothing is approximated: no
//! thinning, no Poisson limit. The accuracy is that of the inverse distribution functions (1e-9, `residual.rs`).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use colony_sim::rng::Key;
use rustc_hash::FxHashMap;

use crate::residual::Lifetime;
use crate::scenario::{Ages, Replacement, Scenario};

/// A failure of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// Time since the job's start, seconds.
    pub at_s: f64,
    /// The node's number. A replacement has the number of the node that it replaces.
    pub node: u64,
    /// A uniform number: a warning precedes the failure if it is below the predicted share.
    pub luck: f64,
}

/// Earliest first in a heap.
#[derive(Clone, Copy, Debug)]
struct Later {
    at_s: f64,
    node: u64,
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Later {}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.node.cmp(&self.node))
    }
}

/// The failures of one run, made as they are asked for. Intervals and schemes that are compared ask for the same.
#[derive(Clone, Debug)]
pub struct Trace {
    known: Vec<Failure>,
    nodes: Nodes,
}

impl Trace {
    /// Failures of the nodes of `scenario`; `key` decides all of them.
    #[must_use]
    pub fn new(scenario: &Scenario, key: Key) -> Self {
        Self { known: Vec::new(), nodes: Nodes::new(scenario, key) }
    }

    /// Failure number `index`.
    pub fn get(&mut self, index: usize) -> Failure {
        while self.known.len() <= index {
            let next = self.nodes.fail();
            self.known.push(next);
        }
        self.known[index]
    }
}

/// The nodes between two failures.
#[derive(Clone, Debug)]
struct Nodes {
    key: Key,
    drawn: u64,
    life: Lifetime,
    ages: Ages,
    /// From a failure to a new node's start.
    absent_s: f64,
    /// First nodes that have not failed.
    first: u64,
    /// Their cumulative hazard at the next failure.
    hazard: f64,
    /// Time of that failure.
    next_s: f64,
    /// A shuffle of the first nodes, where it differs from their order (Fisher and Yates).
    moved: FxHashMap<u64, u64>,
    replaced: BinaryHeap<Later>,
}

impl Nodes {
    fn new(s: &Scenario, key: Key) -> Self {
        let f = &s.failures;
        let mut nodes = Self {
            key,
            drawn: 0,
            life: Lifetime::new(f.mtbf_s, f.shape),
            ages: f.ages,
            absent_s: if f.replacement == Replacement::Shrink { f.repair_s } else { 0.0 },
            first: s.nodes(),
            hazard: 0.0,
            next_s: 0.0,
            moved: FxHashMap::default(),
            replaced: BinaryHeap::new(),
        };
        nodes.find_next();
        nodes
    }

    fn uniform(&mut self) -> f64 {
        self.drawn += 1;
        self.key.uniform(self.drawn)
    }

    /// Draws when the next of the first nodes fails.
    fn find_next(&mut self) {
        if self.first == 0 {
            self.next_s = f64::INFINITY;
            return;
        }
        self.hazard += -self.uniform().ln() / self.first as f64;
        self.next_s = match self.ages {
            Ages::New => self.life.age_at(self.hazard),
            Ages::Steady => self.life.residual_at(self.hazard),
        };
    }

    fn fail(&mut self) -> Failure {
        let (at_s, node) = match self.replaced.peek().copied() {
            Some(next) if next.at_s < self.next_s => {
                self.replaced.pop();
                (next.at_s, next.node)
            }
            _ => {
                let at_s = self.next_s;
                let node = self.draw_first();
                self.find_next();
                (at_s, node)
            }
        };
        let hazard = -self.uniform().ln();
        let life_s = self.life.age_at(hazard);
        self.replaced.push(Later { at_s: at_s + self.absent_s + life_s, node });
        Failure { at_s, node, luck: self.uniform() }
    }

    /// One of the first nodes at random, which is one of them no more.
    fn draw_first(&mut self) -> u64 {
        let place = ((self.uniform() * self.first as f64) as u64).min(self.first - 1);
        self.first -= 1;
        let node = self.moved.get(&place).copied().unwrap_or(place);
        let last = self.moved.remove(&self.first).unwrap_or(self.first);
        if place != self.first {
            self.moved.insert(place, last);
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(nodes: u64, mtbf_s: f64, shape: f64, ages: Ages) -> Scenario {
        let mut s = Scenario::default().on(nodes * 64).with_mtbf(mtbf_s);
        s.failures.shape = shape;
        s.failures.ages = ages;
        s
    }

    /// Failures until `end_s`, mean of many runs and its standard error.
    fn failures(s: &Scenario, end_s: f64, runs: u64) -> (f64, f64) {
        let count = |run: u64| {
            let mut trace = Trace::new(s, Key::new(9).part(run));
            (0..).take_while(|&i| trace.get(i).at_s < end_s).count() as f64
        };
        let all: Vec<f64> = (0..runs).map(count).collect();
        let mean = all.iter().sum::<f64>() / runs as f64;
        let variance = all.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (runs - 1) as f64;
        (mean, (variance / runs as f64).sqrt())
    }

    #[test]
    fn failures_are_in_order_and_every_node_fails_once_before_it_is_replaced() {
        let s = scenario(50, 1e6, 1.0, Ages::New);
        let mut trace = Trace::new(&s, Key::new(1));
        let all: Vec<Failure> = (0..500).map(|i| trace.get(i)).collect();
        assert!(all.windows(2).all(|w| w[0].at_s <= w[1].at_s));
        let seen: std::collections::BTreeSet<u64> = all.iter().map(|f| f.node).collect();
        assert!(seen.len() == 50 && seen.iter().all(|&n| n < 50), "{seen:?}");
    }

    #[test]
    fn in_a_steady_machine_the_rate_is_that_of_the_mean_life_for_every_shape() {
        for shape in [0.5, 0.7, 1.0, 3.0] {
            let s = scenario(40, 1e6, shape, Ages::Steady);
            let (mean, error) = failures(&s, 2e6, 2000);
            // a renewal process in equilibrium: t / mean, exactly
            assert!((mean - 80.0).abs() < 4.0 * error, "shape {shape}: {mean} ± {error}");
        }
    }

    #[test]
    fn new_machines_fail_as_a_queue_of_all_nodes_does() {
        for shape in [0.6, 1.0, 2.0] {
            let s = scenario(30, 1e6, shape, Ages::New);
            let (mean, error) = failures(&s, 8e5, 2000);
            let life = Lifetime::new(1e6, shape);
            let mut draws = 0;
            let mut count = 0;
            for _ in 0..30 * 2000 {
                let mut at_s = 0.0;
                loop {
                    draws += 1;
                    at_s += life.age_at(-Key::new(5).uniform(draws).ln());
                    if at_s >= 8e5 {
                        break;
                    }
                    count += 1;
                }
            }
            let plain = f64::from(count) / 2000.0;
            assert!((mean - plain).abs() < 4.0 * error * 2f64.sqrt(), "shape {shape}: {mean}, {plain}");
        }
    }

    #[test]
    fn a_million_nodes_cost_no_more_than_their_failures() {
        let s = scenario(1 << 20, 1e8, 0.7, Ages::Steady);
        let mut trace = Trace::new(&s, Key::new(3));
        let last = trace.get(9_999);
        assert!(trace.nodes.replaced.len() <= 10_000 && trace.nodes.moved.len() <= 10_000);
        // 10,000 failures at one each 95 s
        assert!((last.at_s / (1e4 * 1e8 / f64::from(1 << 20)) - 1.0).abs() < 0.05, "{last:?}");
    }
}
