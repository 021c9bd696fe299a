//! The first model: an operation takes its base time and the delay of the latest node.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::curve::Curve;
use crate::noise::NodeNoise;
use crate::sample::{Samples, stratified};
use crate::tail::Tail;
use crate::{Coordinated, Model, Point, Projection, Scenario, Scheduler, SimError};

/// The model of the largest delay (Colony Linux kernel technical report, section 2.2: "a single instance
/// of a laggard process will block progress for every other process"; ANL 2005).
///
/// A stage of an operation begins on all nodes at once and ends when the last node has done its share.
/// Each node is at a random place of the measured noise, independent of the other nodes; the largest of
/// their delays is drawn from Fⁿ, so the cost does not grow with the number of nodes. What a node may
/// meet depends on how long it has already waited for the others: a node that was running a moment ago
/// is not in the middle of a long detour. So each stage's delay is drawn given the wait before it, which
/// makes a single node lose exactly its stolen share.
///
/// Under coordination the noise that comes in a favored window waits for the regular window, whose start
/// all nodes share: each period costs the longest backlog of all nodes, at most the window, once and not
/// once an operation. The rest of the regular window is as without coordination; operations in favored
/// windows meet the residual noise alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxDelay;

const ASSUMPTIONS: &[&str] = &[
    "Nodes are alike: each has the measured noise, begun at a random instant, independent of the others.",
    "The CPUs of one node are delayed together as they were measured; nodes are not.",
    "A stage of an operation begins everywhere at once and ends with the last node; the network adds no noise.",
    "A detour in progress costs its rest, a detour met on the way costs all of it.",
    "What a node meets depends on its last wait only; longer memory (a daemon that just ran) is forgotten.",
    "Coordinated: the noise of a favored window runs as one backlog from the start of the regular window, \
     at most to its end; a daemon held back makes up for all it missed.",
    "Coordinated: what is left of the regular window is as without coordination.",
    "Coordinated: clocks agree as well as the measured edge lateness says.",
];

impl Model for MaxDelay {
    fn name(&self) -> &'static str {
        "max-delay/1"
    }

    fn assumptions(&self) -> &'static [&'static str] {
        ASSUMPTIONS
    }

    fn project(&self, scenario: &Scenario) -> Result<Projection, SimError> {
        scenario.check()?;
        let mut warnings = Vec::new();
        if let Scheduler::Coordinated(c) = &scenario.scheduler {
            let (noise, room) = (scenario.noise.stolen_share(), 1.0 - c.windows.duty());
            if noise > room {
                warnings.push(format!(
                    "the noise ({:.1} %) does not fit into the regular windows ({:.1} %): work that comes \
                     whether it is done or not would pile up there, and a daemon falls behind; choose a \
                     smaller duty cycle",
                    noise * 100.0,
                    room * 100.0
                ));
            }
        }
        let points = scenario.nodes.iter().map(|&n| point(scenario, n)).collect();
        Ok(Projection { model: self.name().into(), warnings, points })
    }
}

fn point(scenario: &Scenario, nodes: u64) -> Point {
    let base_ns = scenario.program.base_ns(nodes);
    let stages = scenario.program.stages();
    let stage_ns = base_ns / f64::from(stages);
    let samples = match &scenario.scheduler {
        Scheduler::Unmodified => unmodified(scenario, nodes, base_ns, stage_ns),
        // all nodes are delayed by the same: they are one
        Scheduler::Aligned => unmodified(scenario, 1, base_ns, stage_ns),
        Scheduler::Coordinated(c) => coordinated(c, scenario, nodes, base_ns, stage_ns),
    }
    .finish();
    Point {
        nodes,
        base_ns,
        mean_ns: samples.mean(),
        p50_ns: samples.quantile(0.5),
        p99_ns: samples.quantile(0.99),
        p99_9_ns: samples.quantile(0.999),
        max_ns: samples.largest(),
        slowdown: if base_ns > 0.0 { samples.mean() / base_ns } else { 1.0 },
    }
}

/// Draws `scenario.ops` operations of delays under `noise`; the seed alone decides the random numbers, so
/// every node count and scheduler sees the same luck.
fn operations(
    noise: &NodeNoise,
    scenario: &Scenario,
    nodes: u64,
    stage_ns: f64,
    mut each: impl FnMut(f64, usize),
) {
    const BURN_IN: usize = 64;
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
    let ops = scenario.ops as usize;
    let stages = scenario.program.stages() as usize;
    let luck: Vec<Vec<f64>> = (0..stages).map(|_| stratified(ops, &mut rng)).collect();
    let mut waits = Waits::new(noise, stage_ns);
    let mut wait = 0.0;
    for k in 0..BURN_IN + ops {
        let mut delay = 0.0;
        for of_stage in &luck {
            let [own, rounding, early] = rng.random::<[f64; 3]>().map(|u| u.max(f64::MIN_POSITIVE));
            let u = k.checked_sub(BURN_IN).map_or(early, |k| of_stage[k]);
            // the node that was last has not waited, all others have
            let others = waits.tail(wait, rounding).largest_of(nodes - 1, u);
            let last = waits.tail(0.0, 0.0).largest_of(1, if nodes == 1 { u } else { own });
            wait = others.max(last);
            delay += wait;
            if nodes == 1 {
                wait = 0.0;
            }
        }
        if let Some(k) = k.checked_sub(BURN_IN) {
            each(delay, k);
        }
    }
}

fn unmodified(scenario: &Scenario, nodes: u64, base_ns: f64, stage_ns: f64) -> Samples {
    let mut samples = Samples::default();
    operations(&scenario.noise, scenario, nodes, stage_ns, |delay, _| samples.add(base_ns + delay, 1.0));
    samples
}

fn coordinated(c: &Coordinated, scenario: &Scenario, nodes: u64, base_ns: f64, stage_ns: f64) -> Samples {
    let quiet = NodeNoise::quiet();
    let residual = c.residual.as_ref().unwrap_or(&quiet);
    let mut favored = Vec::with_capacity(scenario.ops as usize);
    operations(residual, scenario, nodes, stage_ns, |delay, _| favored.push(base_ns + delay));
    let mean = |xs: &[f64]| xs.iter().sum::<f64>() / xs.len().max(1) as f64;
    let in_favored = c.windows.favored_ns() as f64 / mean(&favored).max(1e-3);
    if in_favored < 1.0 {
        return across_windows(c, scenario, nodes, &favored);
    }
    let held = held(c, scenario, nodes, c.windows.favored_ns());
    let rest = c.windows.regular_ns() as f64 - mean(&held);
    let mut regular = Vec::with_capacity(scenario.ops as usize);
    // an operation that is late in a regular window is done soon after its end: then nothing is in its way
    operations(&scenario.noise, scenario, nodes, stage_ns, |delay, _| {
        regular.push(base_ns + delay.min(rest.max(0.0)))
    });
    let in_regular = rest.max(0.0) / mean(&regular).max(1e-3);
    let mut samples = Samples::default();
    for ((f, h), r) in favored.iter().zip(&held).zip(&regular) {
        samples.add(*f, in_favored - 1.0);
        samples.add(f + h, 1.0);
        samples.add(*r, in_regular);
    }
    samples
}

/// Operations longer than a favored window: each meets as many regular windows as it is periods long,
/// and all noise of a period in each.
fn across_windows(c: &Coordinated, scenario: &Scenario, nodes: u64, favored: &[f64]) -> Samples {
    let held = held(c, scenario, nodes, c.windows.period_ns());
    let mean = held.iter().sum::<f64>() / held.len().max(1) as f64;
    let room = (c.windows.period_ns() as f64 - mean).max(c.windows.favored_ns() as f64);
    let mut samples = Samples::default();
    for (op, h) in favored.iter().zip(&held) {
        let (met, more) = ((op / room).floor(), (op / room).fract());
        samples.add(op + met * h, 1.0 - more);
        samples.add(op + (met + 1.0) * h, more);
    }
    samples
}

/// What a regular window takes from all nodes, drawn for each operation: the longest backlog of the noise
/// that `waited_ns` hold back, at most the window, and the latest edge.
fn held(c: &Coordinated, scenario: &Scenario, nodes: u64, waited_ns: u64) -> Vec<f64> {
    let backlog = Tail::of(&Curve::stolen(&scenario.noise, waited_ns)).unwrap_or_else(Tail::nothing);
    let window = c.windows.regular_ns() as f64;
    let mut lateness: Vec<f64> = c.edge_lateness_ns.iter().map(|&ns| ns as f64).collect();
    lateness.sort_unstable_by(f64::total_cmp);
    let latest = |u: f64| {
        let at = (u.powf(1.0 / nodes as f64) * lateness.len() as f64) as usize;
        lateness.get(at.min(lateness.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    // its own stream, so that the operations keep their luck
    let mut rng = ChaCha8Rng::seed_from_u64(!scenario.seed);
    let [of_backlog, of_edge] = [(); 2].map(|()| stratified(scenario.ops as usize, &mut rng));
    of_backlog
        .iter()
        .zip(of_edge)
        .map(|(&u, e)| backlog.largest_of(nodes, u).min(window) + latest(e))
        .collect()
}

/// Distributions of the delay of one node, by how long it waited before: exact on a grid of waits, built
/// when first needed.
struct Waits<'a> {
    noise: &'a NodeNoise,
    curve: Curve,
    grid: Vec<u64>,
    tails: Vec<Option<Tail>>,
}

impl<'a> Waits<'a> {
    /// Grid points per factor of two.
    const FINENESS: f64 = 2.0;
    const FIRST_NS: f64 = 100.0;

    fn new(noise: &'a NodeNoise, work_ns: f64) -> Self {
        let curve = Curve::delay(noise, work_ns.round().max(0.0) as u64);
        let longest = Tail::of(&curve).map_or(0.0, |t| t.largest());
        let levels = (Self::FINENESS * (longest / Self::FIRST_NS).max(1.0).log2()).ceil() as i32 + 1;
        let grid: Vec<u64> = std::iter::once(0)
            .chain((0..levels).map(|k| (Self::FIRST_NS * (f64::from(k) / Self::FINENESS).exp2()) as u64))
            .collect();
        Self { noise, curve, tails: vec![None; grid.len()], grid }
    }

    /// The distribution after a wait near `wait_ns`: of the two grid points around it, `u` picks one, so
    /// that the mean is kept.
    fn tail(&mut self, wait_ns: f64, u: f64) -> &Tail {
        let above = self.grid.partition_point(|&g| (g as f64) < wait_ns).min(self.grid.len() - 1);
        let below = above.saturating_sub(1);
        let (low, high) = (self.grid[below] as f64, self.grid[above] as f64);
        let pick = if high > low && u > (wait_ns - low) / (high - low) { below } else { above };
        let (noise, curve) = (self.noise, &self.curve);
        let wait = self.grid[pick];
        self.tails[pick].get_or_insert_with(|| {
            Tail::of(&curve.given_free_before(noise, wait))
                // no instant at all when the node's CPUs are never free together
                .or_else(|| Tail::of(curve))
                .unwrap_or_else(Tail::nothing)
        })
    }
}
