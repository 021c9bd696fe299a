// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise waits for the regular window, which all nodes share.

use colony_time::{WindowKind, Windows};
use serde::{Deserialize, Serialize};

use super::{Cpu, Scheduler, Tasks};
use crate::SimError;
use crate::noise::Detour;
use crate::source::normal;

/// The error of a node's clock: at true time `t` it reads `t + offset_ns + drift_ppm · t / 10⁶`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeClock {
    /// Its reading less true time when the node booted, nanoseconds. A clock that is ahead has its windows
    /// early.
    pub offset_ns: i64,
    /// Its gain on true time, parts per million.
    #[serde(default)]
    pub drift_ppm: f64,
}

/// The errors of the nodes' clocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockError {
    /// Standard deviation of the nodes' offsets, nanoseconds (normal).
    pub offset_sigma_ns: f64,
    /// Standard deviation of the nodes' drifts, parts per million (normal).
    pub drift_sigma_ppm: f64,
    /// Measured clocks: every node has one of them, any with equal probability, and the normal errors on
    /// top. May be empty.
    pub measured: Vec<NodeClock>,
}

impl ClockError {
    fn of(&self, cpu: &Cpu) -> NodeClock {
        let key = || cpu.node_key().part(CLOCK);
        let picked = match self.measured.len() {
            0 => NodeClock::default(),
            1 => self.measured[0],
            n => self.measured[(key().bits(PICK) % n as u64) as usize],
        };
        let normal = |sigma: f64, index| if sigma > 0.0 { sigma * normal(key(), index) } else { 0.0 };
        NodeClock {
            offset_ns: picked.offset_ns.saturating_add(normal(self.offset_sigma_ns, OFFSET).round() as i64),
            drift_ppm: picked.drift_ppm + normal(self.drift_sigma_ppm, DRIFT),
        }
    }
}

impl NodeClock {
    /// True time when the clock reads `reading_ns`.
    fn true_ns(&self, reading_ns: i64) -> i64 {
        let since_boot = reading_ns.saturating_sub(self.offset_ns);
        if self.drift_ppm == 0.0 {
            return since_boot;
        }
        let drift = self.drift_ppm * 1e-6;
        since_boot.saturating_sub((since_boot as f64 * (drift / (1.0 + drift))).round() as i64)
    }

    /// The reading of the clock at `true_ns`.
    fn reading_ns(&self, true_ns: i64) -> i64 {
        let gained = true_ns as f64 * self.drift_ppm * 1e-6;
        true_ns.saturating_add(self.offset_ns).saturating_add(gained.round() as i64)
    }
}

/// Parts of a node's key, and numbers of its clock.
const CLOCK: u64 = 0;
const LATENESS: u64 = 1;
const OFFSET: u64 = 0;
const DRIFT: u64 = 2;
const PICK: u64 = 4;

/// Coordinated scheduling (Colony report, section 3.2): in favored windows threads wait, in regular
/// windows they go first, in order of arrival; a burst that does not end goes on in the next one.
/// Interrupts wait for nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinated {
    /// The windows, the same on every node; their instants are nanoseconds since boot.
    pub windows: Windows,
    /// The errors of the nodes' clocks, which shift the windows.
    pub clock: ClockError,
    /// Measured lateness of edges, one of which every edge of every node has; may be empty. Until a favored
    /// window opens, threads run on; until a regular one opens, they wait on. An edge comes at the latest
    /// when the next one is due.
    pub edge_lateness_ns: Vec<u64>,
}

impl Coordinated {
    /// Largest drift of a clock that makes sense.
    const MOST_DRIFT_PPM: f64 = 10_000.0;

    /// Windows that all nodes keep exactly.
    #[must_use]
    pub fn exact(windows: Windows) -> Self {
        Self { windows, clock: ClockError::default(), edge_lateness_ns: Vec::new() }
    }

    /// The instant, in true time, at which a window of period `period` opens by the node's clock.
    fn due_ns(&self, clock: &NodeClock, period: i64, opens: WindowKind) -> i64 {
        let favored = self.windows.epoch_ns().saturating_add(period.saturating_mul(self.period_ns()));
        clock.true_ns(match opens {
            WindowKind::Favored => favored,
            WindowKind::Regular => favored.saturating_add_unsigned(self.windows.favored_ns()),
        })
    }

    /// The instant at which it opens, lateness of the edge included.
    fn opens_ns(&self, cpu: &Cpu, clock: &NodeClock, period: i64, opens: WindowKind) -> i64 {
        let due_ns = self.due_ns(clock, period, opens);
        let (edge, next_due_ns) = match opens {
            _ if self.edge_lateness_ns.is_empty() => return due_ns,
            WindowKind::Favored => (period.wrapping_mul(2), self.due_ns(clock, period, WindowKind::Regular)),
            WindowKind::Regular => {
                (period.wrapping_mul(2) + 1, self.due_ns(clock, period + 1, WindowKind::Favored))
            }
        };
        let random = cpu.node_key().part(LATENESS).bits(edge as u64);
        let late_ns = self.edge_lateness_ns[(random % self.edge_lateness_ns.len() as u64) as usize];
        due_ns.saturating_add_unsigned(late_ns).min(next_due_ns)
    }

    /// The regular window of a node that holds `at_ns`, or the next one: from `at_ns` on, to its end.
    fn regular(&self, cpu: &Cpu, at_ns: u64) -> Option<(u64, u64)> {
        let clock = self.clock.of(cpu);
        // the times of a simulation end long before those of its windows
        let at = i64::try_from(at_ns).ok().filter(|&at| at < i64::MAX / 2)?;
        let since_epoch = clock.reading_ns(at).saturating_sub(self.windows.epoch_ns());
        // the end of the regular window before may be late
        let mut period = since_epoch.div_euclid(self.period_ns()) - 1;
        loop {
            let end = self.opens_ns(cpu, &clock, period + 1, WindowKind::Favored);
            if end > at {
                let start = self.opens_ns(cpu, &clock, period, WindowKind::Regular).max(at);
                if start < end {
                    return Some((start as u64, end as u64));
                }
            }
            period += 1;
        }
    }

    /// The burst that came first, as far as its window lasts, and the end of the window.
    fn first_burst(&self, cpu: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<(Detour, u64)> {
        let (task, arrival_ns) = tasks.earliest()?;
        let (start_ns, end_ns) = self.regular(cpu, arrival_ns.max(now_ns))?;
        Some((Detour { start_ns, duration_ns: tasks.serve(task, end_ns - start_ns) }, end_ns))
    }

    fn period_ns(&self) -> i64 {
        // at most an hour
        self.windows.period_ns() as i64
    }
}

impl Scheduler for Coordinated {
    fn name(&self) -> &'static str {
        "coordinated"
    }

    fn next(&self, cpu: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<Detour> {
        let (first, end_ns) = self.first_burst(cpu, now_ns, tasks)?;
        let mut at_ns = first.start_ns + first.duration_ns;
        // Bursts that arrived in a favored window follow each other without a gap: one stretch, whose window is computed once.
        while at_ns < end_ns && tasks.only_source_goes_on(at_ns) {
            at_ns += tasks.serve(0, end_ns - at_ns);
        }
        Some(Detour { duration_ns: at_ns - first.start_ns, ..first })
    }

    fn until_ns(&self, cpu: &Cpu, at_ns: u64) -> u64 {
        self.regular(cpu, at_ns).map_or(u64::MAX, |(_, end_ns)| end_ns)
    }

    fn exact_windows(&self) -> Option<Windows> {
        let exact = self.clock == ClockError::default() && self.edge_lateness_ns.is_empty();
        exact.then_some(self.windows)
    }

    fn settle_ns(&self) -> u64 {
        self.windows.period_ns()
    }

    fn check(&self) -> Result<(), SimError> {
        let bad = |parameter, found, must| {
            Err(SimError::Scheduler { scheduler: "coordinated", parameter, found, must })
        };
        let drift_fits = |ppm: f64| ppm.abs() <= Self::MOST_DRIFT_PPM;
        let ClockError { offset_sigma_ns, drift_sigma_ppm, measured } = &self.clock;
        if !(0.0..=3.6e12).contains(offset_sigma_ns) {
            return bad("clock offset (standard deviation, ns)", *offset_sigma_ns, "from 0 to an hour");
        }
        if !(0.0..=Self::MOST_DRIFT_PPM / 10.0).contains(drift_sigma_ppm) {
            return bad("clock drift (standard deviation, ppm)", *drift_sigma_ppm, "from 0 to 1000");
        }
        if let Some(c) = measured.iter().find(|c| !drift_fits(c.drift_ppm)) {
            return bad("measured clock drift (ppm)", c.drift_ppm, "within 10000 of 0");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::NodeNoise;
    use crate::machine::Machine;
    use crate::node::Node;
    use crate::program::{Operation, Program, Step};
    use crate::simulate::{Simulation, simulate_with_runs};
    use crate::source::{Class, Model, Source, Trace};

    /// [`Coordinated`] without stretches of several bursts.
    #[derive(Debug)]
    struct OneAtATime(Coordinated);

    impl Scheduler for OneAtATime {
        fn name(&self) -> &'static str {
            self.0.name()
        }

        fn next(&self, cpu: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<Detour> {
            self.0.first_burst(cpu, now_ns, tasks).map(|(detour, _)| detour)
        }

        fn until_ns(&self, cpu: &Cpu, at_ns: u64) -> u64 {
            self.0.until_ns(cpu, at_ns)
        }

        fn settle_ns(&self) -> u64 {
            self.0.settle_ns()
        }
    }

    fn measured(detours: &[(u64, u64)]) -> NodeNoise {
        let mut at = 0;
        let detour = |&(gap, duration_ns): &(u64, u64)| {
            let start_ns = at + gap;
            at = start_ns + duration_ns;
            Detour { start_ns, duration_ns }
        };
        let detours: Vec<Detour> = detours.iter().map(detour).collect();
        NodeNoise::new(vec![crate::CpuNoise::new(at + 1_000, detours).expect("sound")]).expect("one CPU")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bursts_served_together_delay_a_job_as_those_served_one_at_a_time(
            detours in prop::collection::vec((1_000u64..200_000, 1u64..20_000), 1..60),
            late in prop::collection::vec(0u64..300_000, 0..4),
            ticks in any::<bool>(),
            offset_sigma_ns in prop::sample::select(vec![0.0, 50_000.0]),
            seed in any::<u64>(),
        ) {
            let windows = Windows::new(1_000_000, colony_time::DutyCycle::Ppm(700_000), 0).expect("possible");
            let scheduler = Coordinated {
                windows,
                clock: ClockError { offset_sigma_ns, ..ClockError::default() },
                edge_lateness_ns: late,
            };
            let mut sources = vec![Source::new("measured", Trace::new(measured(&detours))).class(Class::Task)];
            if ticks {
                sources.push(Source::new("tick", Model::periodic(70_000, 2_000)).class(Class::Local));
            }
            let body = vec![Step::compute(30_000), Step::collective(Operation::Allreduce, 8)];
            let run = |node: Node| {
                let simulation = Simulation {
                    program: Program::new("steps", 200, body.clone()),
                    machine: Machine::named("bgl").expect("ours"),
                    node,
                    nodes: 4,
                    begin_ns: None,
                    repetitions: 1,
                    seed,
                };
                simulate_with_runs(&simulation)
            };
            let together = run(Node::new(sources.clone(), scheduler.clone()));
            let alone = run(Node::new(sources, OneAtATime(scheduler)));
            match (together, alone) {
                (Ok(together), Ok(alone)) => prop_assert_eq!(together.1, alone.1),
                (together, alone) => prop_assert_eq!(together.is_ok(), alone.is_ok()),
            }
        }
    }
}
