// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of one job: work, checkpoints, failures, recoveries, in virtual time, from one event to the next.

use std::collections::VecDeque;

use colony_sim::rng::Key;

use crate::costs::Costs;
use crate::failures::{Failure, Trace};
use crate::scenario::{Replacement, Scenario};
use crate::schedule::Schedule;

/// What a life was like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Life {
    /// From the job's start to its end, seconds.
    pub wall_s: f64,
    /// Seconds that a node computed or copied, mean of all nodes.
    pub busy_s: f64,
    /// Seconds that a node waited, mean of all nodes.
    pub idle_s: f64,
    /// Failures, those averted included.
    pub failures: u64,
    /// Failures that found an empty node.
    pub averted: u64,
    /// Losses of both copies of a state.
    pub both_lost: u64,
    /// Why it ended.
    pub end: End,
}

/// Why a life ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The work was done.
    #[default]
    Done,
    /// The time was over the limit.
    Time,
    /// The failures were over the limit.
    Failures,
}

/// Where a life is cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) wall_s: f64,
    pub(crate) failures: usize,
}

/// A job under way.
pub(crate) struct Run<'a> {
    scenario: &'a Scenario,
    costs: &'a Costs,
    schedule: &'a Schedule,
    trace: &'a mut Trace,
    limit: Limit,
    nodes: u64,
    now_s: f64,
    /// The place in the schedule.
    place: f64,
    /// The next failure of the trace.
    next: usize,
    alarms: Alarms,
    /// When nodes return, in order; those that a job without spares misses.
    away: VecDeque<f64>,
    /// Nodes whose states have one copy until `risk_until_s`.
    at_risk: Vec<u64>,
    risk_until_s: f64,
    life: Life,
}

/// Warnings that no failure follows, a Poisson process.
struct Alarms {
    key: Key,
    drawn: u64,
    per_s: f64,
    next_s: f64,
}

impl Alarms {
    fn new(s: &Scenario, costs: &Costs, key: Key) -> Self {
        let a = &s.abilities;
        let per_s = if costs.evacuation_s.is_some() {
            a.predicted * (1.0 / a.precision - 1.0) / s.platform_mtbf_s()
        } else {
            0.0
        };
        let mut alarms = Self { key, drawn: 0, per_s, next_s: 0.0 };
        alarms.find_next();
        alarms
    }

    fn find_next(&mut self) {
        if self.per_s <= 0.0 {
            self.next_s = f64::INFINITY;
            return;
        }
        self.drawn += 1;
        self.next_s -= self.key.uniform(self.drawn).ln() / self.per_s;
    }
}

/// Pause of all nodes after a failure: they wait, then a few replay.
#[derive(Clone, Copy)]
struct Pause {
    waiting_until_s: f64,
    until_s: f64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        costs: &'a Costs,
        schedule: &'a Schedule,
        trace: &'a mut Trace,
        key: Key,
        limit: Limit,
    ) -> Self {
        Self {
            scenario,
            costs,
            schedule,
            trace,
            limit,
            nodes: scenario.nodes(),
            now_s: 0.0,
            place: 0.0,
            next: 0,
            alarms: Alarms::new(scenario, costs, key),
            away: VecDeque::new(),
            at_risk: Vec::new(),
            risk_until_s: 0.0,
            life: Life::default(),
        }
    }

    /// Runs the job to its end, or to the limit.
    pub(crate) fn live(mut self) -> Life {
        loop {
            let speed = self.speed();
            let left_s = self.schedule.length_s() - self.place;
            let failure = self.trace.get(self.next);
            let back_s = self.away.front().copied().unwrap_or(f64::INFINITY);
            let event_s = failure.at_s.min(self.alarms.next_s).min(back_s);
            if speed > 0.0 && self.now_s + left_s / speed <= event_s {
                self.now_s += left_s / speed;
                self.advance(left_s);
                break;
            }
            if let Some(end) = self.over(event_s) {
                self.life.end = end;
                break;
            }
            // an event of a pause is one of its end
            let span_s = (event_s - self.now_s).max(0.0);
            self.now_s += span_s;
            self.advance(span_s * speed);
            if event_s == failure.at_s {
                self.recover(failure);
            } else if event_s == self.alarms.next_s {
                self.evacuate();
            }
        }
        self.life.wall_s = self.now_s;
        self.life
    }

    fn over(&self, event_s: f64) -> Option<End> {
        if event_s > self.limit.wall_s {
            Some(End::Time)
        } else if self.next >= self.limit.failures {
            Some(End::Failures)
        } else {
            None
        }
    }

    /// Nodes that take part, over all.
    fn speed(&mut self) -> f64 {
        while self.away.front().is_some_and(|&back_s| back_s <= self.now_s) {
            self.away.pop_front();
        }
        1.0 - (self.away.len() as f64 / self.nodes as f64).min(1.0)
    }

    /// Goes on in the schedule. A node that is away takes no power.
    fn advance(&mut self, by_s: f64) {
        let waiting_s = self.schedule.waiting(self.place + by_s) - self.schedule.waiting(self.place);
        self.place += by_s;
        self.life.busy_s += by_s - waiting_s;
        self.life.idle_s += waiting_s;
    }

    /// Acts on a warning that no failure follows.
    fn evacuate(&mut self) {
        if self.alarms.next_s >= self.now_s {
            let until_s = self.now_s + self.costs.evacuation_s.unwrap_or(0.0);
            self.pause(Pause { waiting_until_s: until_s, until_s });
        }
        self.alarms.find_next();
    }

    /// Acts on a failure, and on those during its recovery.
    fn recover(&mut self, failure: Failure) {
        self.next += 1;
        let pause = self.hit(failure, self.now_s);
        self.pause(pause);
    }

    /// Waits for the end of `pause`; a failure before it makes another.
    fn pause(&mut self, mut pause: Pause) {
        loop {
            let failure = self.trace.get(self.next);
            let until_s = pause.until_s.min(failure.at_s.max(self.now_s));
            let waiting_s = (pause.waiting_until_s.min(until_s) - self.now_s).max(0.0);
            let replay_s = until_s - self.now_s - waiting_s;
            let busy = self.costs.replay.map_or(0.0, |nodes| nodes / self.nodes as f64);
            self.life.busy_s += replay_s * busy;
            self.life.idle_s += waiting_s + replay_s * (1.0 - busy);
            self.now_s = until_s;
            if failure.at_s >= pause.until_s || self.over(failure.at_s).is_some() {
                return;
            }
            self.next += 1;
            pause = self.hit(failure, pause.until_s);
        }
    }

    /// What a failure does to the job, which computes again at the end of the pause. `busy_until_s` is the end of a pause that
    /// it hits.
    fn hit(&mut self, failure: Failure, busy_until_s: f64) -> Pause {
        self.life.failures += 1;
        if self.scenario.failures.replacement == Replacement::Shrink {
            self.away.push_back(failure.at_s + self.scenario.failures.repair_s);
        }
        if let Some(evacuation_s) = self.costs.evacuation_s
            && failure.luck < self.scenario.abilities.predicted
        {
            self.life.averted += 1;
            let until_s = busy_until_s.max(failure.at_s) + evacuation_s;
            return Pause { waiting_until_s: until_s, until_s };
        }
        let waiting = |seconds: f64| {
            let until_s = failure.at_s + seconds;
            Pause { waiting_until_s: until_s, until_s }
        };
        if self.loses_both(failure) {
            self.life.both_lost += 1;
            self.at_risk.clear();
            self.place = self.schedule.saved_second(self.place);
            return waiting(self.costs.recovery_lost_s);
        }
        let Some(speed) = self.costs.replay else {
            self.place = self.schedule.saved(self.place);
            return waiting(self.costs.recovery_s);
        };
        let saved = self.schedule.saved(self.place);
        let lost_s = self.schedule.work(self.place) - self.schedule.work(saved);
        let ahead_s = self.scenario.abilities.independent_s.min(self.costs.recovery_s);
        let ahead_s = ahead_s.min(self.schedule.work_left(self.place));
        self.advance(ahead_s);
        self.life.idle_s -= ahead_s;
        let pause = waiting(self.costs.recovery_s);
        Pause { until_s: pause.until_s + (lost_s + ahead_s) / speed, ..pause }
    }

    /// Returns `true` if the failed node held the only copy of its buddy's state, and notes that its own is alone now.
    fn loses_both(&mut self, failure: Failure) -> bool {
        if failure.at_s >= self.risk_until_s {
            self.at_risk.clear();
        }
        let (nodes, node) = (self.nodes, failure.node);
        let lost =
            self.at_risk.iter().any(|&other| buddy(node, nodes) == other || buddy(other, nodes) == node);
        if self.costs.window_s > 0.0 {
            self.at_risk.push(node);
            // copying starts again with the recovery
            self.risk_until_s = failure.at_s + self.costs.window_s;
        }
        lost
    }
}

/// The node that has the second copy of a node's state: the other one of a pair. The last of an odd number has the first
/// node.
fn buddy(node: u64, nodes: u64) -> u64 {
    if node ^ 1 < nodes { node ^ 1 } else { 0 }
}
