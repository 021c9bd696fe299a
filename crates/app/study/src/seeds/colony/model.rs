// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine, the daemons and the schedulers of the Colony report, as far as its text gives them.
//!
//! Five things it does not give, and what was chosen for all of its figures alike:
//!
//! * the length of turns. The kernel is Linux 2.6.16, whose scheduler lets interactive tasks of one
//!   priority go round every 10 ms (`TIMESLICE_GRANULARITY`), and whose tick on PowerPC is 4 ms: a
//!   daemon's turn is 10 ms, the job's between two of them one tick;
//! * the instants at which a daemon wakes and a window opens. Linux 2.6.16 has no timers between ticks, the ticks of
//!   all nodes come at the same instants ("in concert", section 3.2), and "the duty cycle and period are examined
//!   by the scheduler during each scheduler tick";
//! * the begin of the daemons. They begin on all nodes together, [`DAEMONS_BEGIN_NS`] after the job: this
//!   time is fitted ([`super::fit`]). Their calculations are of random length, so the daemons drift apart
//!   from calculation to calculation;
//! * the allreduce itself. It takes less than half of what ANL 2005 measured for one that goes up the tree
//!   and down in two passes; here it is one: all wait once for the last;
//! * its time without noise. The run that coordination "reduced … to 1.73 seconds" was
//!   500,000 operations of 3.46 µs each, and "almost identical" to runs without noise; with more nodes it
//!   grows as the hardware barrier of ANL 2005 does (0.06 µs for each doubling).

use std::num::NonZeroU64;

use colony_sim::BaseTime;
use colony_sim::SimError;
use colony_sim::machine::{HardwareCollective, Machine};
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program};
use colony_sim::scheduler::{Coordinated, Fair};
use colony_sim::simulate::{Run, Simulation, run_until, simulate};
use colony_sim::source::{Burst, Done, Model, Noise, Phase, Source, Stream};
use colony_time::{DutyCycle, Windows, cycles};
use serde::{Deserialize, Serialize};

use crate::{Params, StudyError, project, simulated};

/// Operations of a run (section 3.1.3).
pub(in crate::seeds) const OPS: u64 = 500_000;
/// Operations after which the simulation is asked whether it may end.
const LOOK: NonZeroU64 = NonZeroU64::new(20_000).expect("not 0");
/// Operations of the run that measures an operation without noise.
const QUIET_OPS: u64 = 16;
/// Operations whose mean time is the pace of a run.
const PACE: u64 = 2_000;
/// The pace is steady if it differs from the pace of the operations before by no more than this share.
const STEADY: f64 = 0.01;

/// Time from the begin of the job to the begin of the daemons: the value with which Figs. 6 and 8 come out best.
pub(in crate::seeds) const DAEMONS_BEGIN_NS: u64 = 340_000_000;
/// The tick of Linux 2.6.16 on PowerPC (`CONFIG_HZ` 250).
pub(in crate::seeds) const TICK_NS: u64 = 4_000_000;

/// Parameters that the text leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::seeds) struct Chosen {
    /// Turns of daemon and job.
    pub(in crate::seeds) turns: Fair,
    /// Phase of the nodes' daemons relative to one another.
    pub(in crate::seeds) phase: Phase,
    /// Begin of the job, nanoseconds after the boot; `None`: long after.
    pub(in crate::seeds) begin_ns: Option<u64>,
    /// Begin of the daemons, nanoseconds after the boot.
    pub(in crate::seeds) daemons_begin_ns: u64,
    /// Time between two ticks, at which daemons wake and windows open; `None`: they do so at any instant.
    pub(in crate::seeds) tick_ns: Option<NonZeroU64>,
    /// Number of times in an allreduce that all ranks wait for the last.
    pub(in crate::seeds) phases: u32,
}

impl Default for Chosen {
    fn default() -> Self {
        Self {
            turns: Fair { noise_slice_ns: 10_000_000, job_slice_ns: 4_000_000 },
            phase: Phase::Together { spread_ns: 0 },
            begin_ns: Some(0),
            daemons_begin_ns: DAEMONS_BEGIN_NS,
            tick_ns: NonZeroU64::new(TICK_NS),
            phases: 1,
        }
    }
}

impl Chosen {
    /// Daemons at any phase, long after their begin.
    pub(in crate::seeds) fn at_random() -> Self {
        Self { phase: Phase::Random, begin_ns: None, daemons_begin_ns: 0, ..Self::default() }
    }

    fn sources(&self, percent: f64) -> Vec<Source> {
        let daemon = || ReportDaemon {
            daemon: project::daemon(percent),
            begin_ns: self.daemons_begin_ns,
            tick_ns: self.tick_ns,
        };
        let source = || Source::new("thread:noise", daemon()).phase(self.phase);
        (percent > 0.0).then(source).into_iter().collect()
    }

    /// The windows of the report's experiments: period 0xffffffff, and `duty` cycles of it favored. They begin with the
    /// boot.
    ///
    /// # Errors
    /// [`StudyError::Params`] where one of the windows has no time.
    pub(in crate::seeds) fn windows(&self, duty: u32) -> Result<Windows, StudyError> {
        let favored_ns = at_tick(cycles::to_ns(duty), self.tick_ns);
        Windows::new(at_tick(cycles::MAX_NS, self.tick_ns), DutyCycle::Ns(favored_ns), 0)
            .map_err(|e| StudyError::Params(e.to_string()))
    }

    /// The longest calculation that a daemon ends in a regular window of this length, in which daemon and job
    /// take turns: "the normal Linux algorithms are used" there (section 2.3).
    pub(in crate::seeds) fn longest_in_window_ns(&self, regular_ns: u64) -> f64 {
        let Fair { noise_slice_ns, job_slice_ns } = self.turns;
        regular_ns as f64 * noise_slice_ns as f64 / (noise_slice_ns + job_slice_ns) as f64
    }

    /// Returns `true` for the choice behind all figures.
    pub(in crate::seeds) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// A node under the unmodified scheduler.
    pub(in crate::seeds) fn unmodified(&self, percent: f64) -> Node {
        Node::new(self.sources(percent), self.turns)
    }

    /// A node under the coordinated scheduler.
    pub(in crate::seeds) fn coordinated(&self, percent: f64, windows: Windows) -> Node {
        Node::new(self.sources(percent), Coordinated::exact(windows))
    }
}

/// The first tick at `at_ns` or later.
fn at_tick(at_ns: u64, tick_ns: Option<NonZeroU64>) -> u64 {
    tick_ns.map_or(at_ns, |tick| at_ns.next_multiple_of(tick.get()))
}

/// The noise daemon, which begins some time after the boot and wakes at ticks.
#[derive(Clone, Debug)]
struct ReportDaemon {
    daemon: Model,
    /// Nanoseconds after the boot.
    begin_ns: u64,
    tick_ns: Option<NonZeroU64>,
}

impl Noise for ReportDaemon {
    fn first(&self, stream: &Stream) -> Option<Burst> {
        let first = self.daemon.first(stream)?;
        let arrival_ns = at_tick(first.arrival_ns.checked_add(self.begin_ns)?, self.tick_ns);
        Some(Burst { arrival_ns, ..first })
    }

    fn next(&self, stream: &Stream, last: Done) -> Option<Burst> {
        let next = self.daemon.next(stream, last)?;
        Some(Burst { arrival_ns: at_tick(next.arrival_ns, self.tick_ns), ..next })
    }

    fn cycle_ns(&self) -> f64 {
        self.daemon.cycle_ns()
    }

    fn load(&self) -> f64 {
        self.daemon.load()
    }

    fn settle_ns(&self) -> u64 {
        self.daemon.settle_ns()
    }

    fn sleeps(&self) -> bool {
        self.daemon.sleeps()
    }

    fn check(&self) -> Result<(), SimError> {
        self.daemon.check()
    }
}

/// A run of 500,000 operations.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::seeds) struct Total {
    /// Its time.
    pub(in crate::seeds) ns: f64,
    /// Its shortest operation.
    pub(in crate::seeds) min_ns: u64,
    /// Its longest.
    pub(in crate::seeds) max_ns: u64,
}

/// Blue Gene/L with the time of the report's allreduce of 32 bytes.
fn machine(phases: u32) -> Result<Machine, StudyError> {
    let time = BaseTime::Measured(vec![(1024, 3280.0), (16_384, 3520.0)]);
    let reduce = HardwareCollective { time, phases, cpu_ns: 200 };
    Ok(Machine { hardware_reduce: Some(reduce), ..project::blue_gene(1)? })
}

/// Simulates 500,000 allreduces of 32 bytes on `nodes` nodes. When the operations wait for daemons at a steady pace, the simulation
/// ends, and the remaining operations count with that pace.
pub(in crate::seeds) fn total(
    params: &Params,
    chosen: &Chosen,
    node: &Node,
    nodes: u32,
) -> Result<Total, StudyError> {
    let simulation = |node: &Node, iterations| {
        Ok::<_, StudyError>(Simulation {
            program: Program::collective(Operation::Allreduce, 32, iterations),
            machine: machine(chosen.phases)?,
            node: node.clone(),
            nodes,
            begin_ns: chosen.begin_ns,
            repetitions: 1,
            seed: params.seed,
        })
    };
    let whole = simulation(node, OPS)?;
    simulated::of(&("total", &whole), || whole_or_paced(&whole, &simulation(&Node::quiet(), QUIET_OPS)?))
}

/// The run `whole`, up to the operations that wait for daemons at a steady pace; `quiet` is a short one without noise.
fn whole_or_paced(whole: &Simulation, quiet: &Simulation) -> Result<Total, StudyError> {
    let slow_ns = 100.0 * simulate(quiet)?.mean_ns;
    let goes_on_so = |run: &Run| {
        let [now, before] = [0, PACE].map(|skipped| pace(&run.iterations, skipped));
        now > slow_ns && (now / before - 1.0).abs() < STEADY
    };
    let run = run_until(whole, LOOK, goes_on_so)?;
    let left = OPS - run.count();
    let more = if left > 0 { left as f64 * pace(&run.iterations, 0) } else { 0.0 };
    let each = || run.iterations.iter().map(|&(ns, _)| ns);
    Ok(Total {
        ns: run.total_ns as f64 + more,
        min_ns: each().min().unwrap_or(0),
        max_ns: each().max().unwrap_or(0),
    })
}

/// Mean time of [`PACE`] operations: the last of all but the last `skipped`.
fn pace(iterations: &[(u64, u64)], skipped: u64) -> f64 {
    let (mut skip, mut left, mut ns) = (skipped, PACE, 0.0);
    for &(each, count) in iterations.iter().rev() {
        let skipped = count.min(skip);
        let taken = (count - skipped).min(left);
        skip -= skipped;
        left -= taken;
        ns += each as f64 * taken as f64;
        if left == 0 {
            break;
        }
    }
    ns / (PACE - left).max(1) as f64
}
