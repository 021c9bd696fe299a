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
/// Under coordination a node's noise of one period waits for the regular window, whose start all nodes
/// share: each period costs the longest backlog of all nodes, at most the window, once and not once an
/// operation; operations in favored windows meet the residual noise alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxDelay;

const ASSUMPTIONS: &[&str] = &[
    "Nodes are alike: each has the measured noise, begun at a random instant, independent of the others.",
    "The CPUs of one node are delayed together as they were measured; nodes are not.",
    "A stage of an operation begins everywhere at once and ends with the last node; the network adds no noise.",
    "A detour in progress costs its rest, a detour met on the way costs all of it.",
    "What a node meets depends on its last wait only; longer memory (a daemon that just ran) is forgotten.",
    "Coordinated: all noise of a period runs in its regular window, as one backlog from the window's start; \
     what does not fit is cut at the window's end, and a daemon held back makes up for all it missed.",
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
                    "the noise ({:.1} %) does not fit into the regular windows ({:.1} %): on a real node its \
                     backlog would grow; choose a smaller duty cycle",
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
        Scheduler::Unmodified => {
            let mut samples = Samples::default();
            operations(&scenario.noise, scenario, nodes, stage_ns, |delay, _| {
                samples.add(base_ns + delay, 1.0);
            });
            samples
        }
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

fn coordinated(c: &Coordinated, scenario: &Scenario, nodes: u64, base_ns: f64, stage_ns: f64) -> Samples {
    let period = c.windows.period_ns() as f64;
    let window = c.windows.regular_ns() as f64;
    let backlog = Tail::of(&Curve::stolen(&scenario.noise, c.windows.period_ns()));
    let mut lateness: Vec<f64> = c.edge_lateness_ns.iter().map(|&ns| ns as f64).collect();
    lateness.sort_unstable_by(f64::total_cmp);
    let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed ^ 0x77696e646f7773);
    let luck = [(); 2].map(|()| stratified(scenario.ops as usize, &mut rng));
    let loss = |k: usize| {
        let held = backlog.as_ref().map_or(0.0, |t| t.largest_of(nodes, luck[0][k]).min(window));
        let share = luck[1][k].powf(1.0 / nodes as f64) * lateness.len() as f64;
        let late = lateness.get((share as usize).min(lateness.len().saturating_sub(1))).copied();
        held + late.unwrap_or(0.0)
    };
    let mean_loss = (0..scenario.ops as usize).map(loss).sum::<f64>() / f64::from(scenario.ops);
    // what a period leaves for operations; never nothing, the window is only a part of it
    let room = (period - mean_loss).max(period - window).max(1.0);
    let quiet = NodeNoise::quiet();
    let residual = c.residual.as_ref().unwrap_or(&quiet);
    let mut samples = Samples::default();
    operations(residual, scenario, nodes, stage_ns, |delay, k| {
        // an operation meets whole windows and, with the probability of the rest, one more
        let op = base_ns + delay;
        let (met, more) = ((op / room).floor(), (op / room).fract());
        samples.add(op + met * loss(k), 1.0 - more);
        samples.add(op + (met + 1.0) * loss(k), more);
    });
    samples
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
