// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same estimates on simulated nodes, where the truth is known.
//!
//! Every node has a clock that is off by hours and drifts; messages take their way through a network, the two
//! ways between nodes are not equally long, and both are held up at random, now and then for long. The tree is
//! walked as [`sync`](crate::sync) walks it, and what comes out is compared with the truth.

use colony_time::Estimate;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::fit::{History, Probe, Sample};
use crate::tree;

/// The simulated nodes, clocks and network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Nodes.
    pub nodes: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Clocks are off by up to this, either way, nanoseconds.
    pub offset_ns: u64,
    /// Standard deviation of drifts, parts per million; none is over 500.
    pub drift_ppm: f64,
    /// Mean of what a message is held up on each way (exponential), nanoseconds.
    pub jitter_ns: f64,
    /// Share of messages that are held up for long (Pareto, exponent 1.5, from ten times the jitter on).
    pub tail: f64,
    /// The largest difference between the two ways between two nodes, as a share.
    pub asymmetry: f64,
    /// Time of a round, nanoseconds.
    pub round_ns: u64,
    /// Time between two questions, nanoseconds.
    pub interval_ns: u64,
    /// The change of drifts within minutes, simulated and assumed, parts per million.
    pub wander_ppm: f64,
    /// Number of walks of the tree; earlier walks improve the estimates of the drifts.
    pub walks: u32,
    /// Time from walk to walk, nanoseconds.
    pub every_ns: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            nodes: 16_384,
            seed: 1,
            offset_ns: 3_600_000_000_000,
            drift_ppm: 20.0,
            jitter_ns: 10_000.0,
            tail: 0.01,
            asymmetry: 0.1,
            round_ns: 500_000_000,
            interval_ns: 5_000_000,
            wander_ppm: History::WANDER_PPM,
            walks: 12,
            every_ns: 10_000_000_000,
        }
    }
}

/// A model that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} = {found} cannot be simulated; it must be {must}")]
pub struct ModelError {
    what: &'static str,
    found: String,
    must: &'static str,
}

/// Errors and bounds of the nodes that know their clocks after a number of rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Nodes of this row.
    pub nodes: u32,
    /// Rounds until the last of them knows its clock.
    pub rounds: u32,
    /// Steps of the farthest of them to rank 0.
    pub depth: u32,
    /// Error of the estimates at the end of those rounds: the median, nanoseconds.
    pub residual_p50_ns: u64,
    /// 99 of 100 are no larger.
    pub residual_p99_ns: u64,
    /// The largest.
    pub residual_max_ns: u64,
    /// Their root mean square.
    pub residual_rms_ns: f64,
    /// The bound that nodes report: the median.
    pub bound_p50_ns: u64,
    /// The largest.
    pub bound_max_ns: u64,
    /// Nodes whose error is over their bound: none, if the bound is one.
    pub outside: u32,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// [`Simulation::SCHEMA`].
    pub schema: String,
    /// The model.
    pub model: Model,
    /// For 2, 4, 8 … nodes, and all.
    pub by_nodes: Vec<Row>,
    /// For nodes of all as many steps from rank 0.
    pub by_depth: Vec<Row>,
}

impl Simulation {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.clock.simulation/1";
}

/// A clock: at true time `t` it reads `t + offset + drift · t`, and a slow wave on that.
#[derive(Clone, Copy, Debug)]
struct True {
    offset_ns: i64,
    drift: f64,
    /// Height of the wave, nanoseconds, and where it begins.
    wave: (f64, f64),
}

/// Time of a wave of the drift, nanoseconds: as the air in a machine room.
const WAVE_NS: f64 = 600e9;

impl True {
    fn reads(self, t_ns: i64) -> i64 {
        let (height, begin) = self.wave;
        let wave = height * (std::f64::consts::TAU * (t_ns as f64 / WAVE_NS + begin)).sin();
        t_ns + self.offset_ns + (self.drift * t_ns as f64 + wave).round() as i64
    }
}

/// Longest time a responder takes to answer, nanoseconds.
const ANSWER_NS: f64 = 5_000.0;

/// Walks the tree, and judges what is known at the end; `way_ns` is the quickest way from node to node.
///
/// # Errors
/// [`ModelError`]: what cannot be simulated.
pub fn simulate(model: &Model, way_ns: impl Fn(u32, u32) -> u64 + Sync) -> Result<Simulation, ModelError> {
    model.check()?;
    let clocks: Vec<True> = (0..model.nodes).map(|rank| model.clock(rank)).collect();
    let mut known = vec![Estimate { at_ns: clocks[0].reads(0), ..Estimate::EXACT }];
    let rounds = tree::rounds(model.nodes);
    for round in 0..rounds {
        let last = model.nodes.min(2u32.saturating_pow(round + 1));
        let compared: Vec<Estimate> = (1 << round..last)
            .into_par_iter()
            .filter_map(|rank| {
                let parent = tree::parent(rank)?;
                let mut rng = model.random(rank, 1);
                let link = model.link(rank, parent, &mut rng, &way_ns);
                let mut history = History::new(model.wander_ppm);
                for walk in 0..model.walks {
                    let start_ns = model.start_ns(walk, round);
                    history.add(&model.trips(
                        link,
                        start_ns,
                        &mut rng,
                        clocks[rank as usize],
                        clocks[parent as usize],
                    ));
                }
                // steady clocks do not contradict themselves
                let fit = history.fit().ok()?;
                Some(fit.estimate.then(&known[parent as usize]))
            })
            .collect();
        known.extend(compared);
    }
    let row = |ranks: &mut dyn Iterator<Item = u32>, rounds| row(model, &clocks, &known, ranks, rounds);
    let sizes = (1..rounds).map(|k| 1 << k).chain([model.nodes]);
    let deepest = (1..model.nodes).map(tree::depth).max().unwrap_or(0);
    Ok(Simulation {
        schema: Simulation::SCHEMA.into(),
        model: model.clone(),
        by_nodes: sizes.map(|n| row(&mut (1..n), tree::rounds(n))).collect(),
        by_depth: (1..=deepest)
            .map(|d| row(&mut (1..model.nodes).filter(|&r| tree::depth(r) == d), rounds))
            .collect(),
    })
}

/// Residuals and bounds of `ranks` at the end of so many rounds.
fn row(
    model: &Model,
    clocks: &[True],
    known: &[Estimate],
    ranks: &mut dyn Iterator<Item = u32>,
    rounds: u32,
) -> Row {
    let end_ns = model.start_ns(model.walks - 1, rounds);
    let reference = clocks[0].reads(end_ns);
    let (mut residuals, mut bounds, mut outside, mut depth) = (Vec::new(), Vec::new(), 0, 0);
    for rank in ranks {
        let here = clocks[rank as usize].reads(end_ns);
        let e = &known[rank as usize];
        let (residual, bound) = (e.reference_at(here).abs_diff(reference), e.bound_at(here));
        outside += u32::from(residual > bound);
        depth = depth.max(tree::depth(rank));
        residuals.push(residual);
        bounds.push(bound);
    }
    residuals.sort_unstable();
    bounds.sort_unstable();
    let at = |sorted: &[u64], share: f64| {
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
    };
    let squares: f64 = residuals.iter().map(|&r| (r as f64).powi(2)).sum();
    Row {
        nodes: residuals.len() as u32 + 1,
        rounds,
        depth,
        residual_p50_ns: at(&residuals, 0.5),
        residual_p99_ns: at(&residuals, 0.99),
        residual_max_ns: at(&residuals, 1.0),
        residual_rms_ns: (squares / residuals.len().max(1) as f64).sqrt(),
        bound_p50_ns: at(&bounds, 0.5),
        bound_max_ns: at(&bounds, 1.0),
        outside,
    }
}

impl Model {
    /// Most round trips of one round.
    const MOST_TRIPS: u64 = 100_000;

    fn check(&self) -> Result<(), ModelError> {
        let bad = |what, found: &dyn ToString, must| Err(ModelError { what, found: found.to_string(), must });
        let trips = self.round_ns / self.interval_ns.max(1);
        match () {
            () if !(2..=1 << 20).contains(&self.nodes) => bad("nodes", &self.nodes, "from 2 to 1048576"),
            () if self.offset_ns > 86_400_000_000_000 => bad("offset", &self.offset_ns, "a day (ns) at most"),
            () if !(0.0..=500.0).contains(&self.drift_ppm) => {
                bad("drift", &self.drift_ppm, "from 0 to 500 ppm")
            }
            () if !(0.0..=1e9).contains(&self.jitter_ns) => bad("jitter", &self.jitter_ns, "from 0 to 1 s"),
            () if !(0.0..=1.0).contains(&self.tail) => bad("tail", &self.tail, "a share"),
            () if !(0.0..=10.0).contains(&self.asymmetry) => {
                bad("asymmetry", &self.asymmetry, "from 0 to 1000 %")
            }
            () if self.round_ns > 3_600_000_000_000 => bad("round", &self.round_ns, "an hour (ns) at most"),
            () if !(1..=Self::MOST_TRIPS).contains(&trips) => {
                bad("questions in a round", &trips, "from 1 to 100000: change the round or the interval")
            }
            () if !(1..=1000).contains(&self.walks) => bad("walks", &self.walks, "from 1 to 1000"),
            () if self.every_ns > 3_600_000_000_000 || self.too_often() => {
                bad("time between walks (ns)", &self.every_ns, "longer than a walk, and an hour at most")
            }
            () if !(0.0..=100.0).contains(&self.wander_ppm) => {
                bad("wander", &self.wander_ppm, "from 0 to 100 ppm")
            }
            () => Ok(()),
        }
    }

    /// Random numbers of a node, or of its way to its parent.
    fn random(&self, rank: u32, what: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(rank) << 1 | what);
        rng
    }

    fn clock(&self, rank: u32) -> True {
        let mut rng = self.random(rank, 0);
        let offset_ns = ((rng.random::<f64>() * 2.0 - 1.0) * self.offset_ns as f64).round() as i64;
        // Box and Muller
        let (u, v) = (rng.random::<f64>().max(1e-300), rng.random::<f64>());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        // a drift that is at most half the wander away from its mean never changes by more
        let height = self.wander_ppm / 2.0 * 1e-6 * WAVE_NS / std::f64::consts::TAU;
        let drift = (normal * self.drift_ppm).clamp(-500.0, 500.0) * 1e-6;
        True { offset_ns, drift, wave: (height / 2.0, rng.random()) }
    }

    /// The instant at which a round of a walk begins.
    fn start_ns(&self, walk: u32, round: u32) -> i64 {
        (u64::from(walk) * self.every_ns + u64::from(round) * self.round_ns) as i64
    }

    fn too_often(&self) -> bool {
        self.walks > 1 && self.every_ns < u64::from(tree::rounds(self.nodes)).saturating_mul(self.round_ns)
    }

    /// The quickest ways between `rank` and `parent`, there and back.
    fn link(
        &self,
        rank: u32,
        parent: u32,
        rng: &mut ChaCha8Rng,
        way_ns: &impl Fn(u32, u32) -> u64,
    ) -> [f64; 2] {
        let longer = |rng: &mut ChaCha8Rng| 1.0 + self.asymmetry * rng.random::<f64>();
        [way_ns(rank, parent) as f64 * longer(rng), way_ns(parent, rank) as f64 * longer(rng)]
    }

    /// The round trips from `here` to `other` in a round that begins at `start_ns`.
    fn trips(
        &self,
        link: [f64; 2],
        start_ns: i64,
        rng: &mut ChaCha8Rng,
        here: True,
        other: True,
    ) -> Vec<Sample> {
        (0..self.round_ns / self.interval_ns)
            .filter_map(|i| {
                let sent = start_ns + (i * self.interval_ns) as i64;
                let received = sent + (link[0] + self.held_up(rng)).round() as i64;
                let replied = received + (ANSWER_NS * rng.random::<f64>()).round() as i64;
                let returned = replied + (link[1] + self.held_up(rng)).round() as i64;
                let probe = Probe {
                    sent_ns: here.reads(sent),
                    received_ns: other.reads(received),
                    replied_ns: other.reads(replied),
                    returned_ns: here.reads(returned),
                };
                probe.sample()
            })
            .collect()
    }

    fn held_up(&self, rng: &mut ChaCha8Rng) -> f64 {
        let usual = -self.jitter_ns * rng.random::<f64>().max(1e-300).ln();
        let (long, how) = (rng.random::<f64>() < self.tail, rng.random::<f64>().max(1e-6));
        usual + if long { 10.0 * self.jitter_ns * how.powf(-1.0 / 1.5) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Model {
        Model { nodes: 1000, walks: 3, ..Model::default() }
    }

    #[test]
    fn no_node_is_outside_its_bound_however_unlike_the_two_ways_are() {
        for asymmetry in [0.0, 0.1, 3.0] {
            for seed in 1..4 {
                let model = Model { asymmetry, seed, ..small() };
                let s = simulate(&model, |_, _| 15_000).expect("possible");
                assert!(s.by_nodes.iter().chain(&s.by_depth).all(|r| r.outside == 0), "{s:?}");
            }
        }
    }

    #[test]
    fn bounds_grow_with_depth_and_residuals_stay_far_below() {
        let s = simulate(&small(), |_, _| 15_000).expect("possible");
        let (near, far) = (&s.by_depth[0], &s.by_depth[s.by_depth.len() - 1]);
        assert!(near.bound_p50_ns * 2 < far.bound_p50_ns, "{s:?}");
        assert!(s.by_nodes.iter().all(|r| r.residual_p50_ns * 3 < r.bound_p50_ns), "{s:?}");
        let last = s.by_nodes.last().expect("rows");
        assert_eq!((last.nodes, last.rounds, last.depth), (1000, 10, 9));
        // a tenth of the smallest regular window by default
        assert!(last.residual_max_ns < 500_000, "{last:?}");
    }

    #[test]
    fn more_walks_tighten_the_bound() {
        let bound = |walks| {
            let s = simulate(&Model { walks, ..small() }, |_, _| 15_000).expect("possible");
            s.by_nodes.last().map(|r| r.bound_max_ns)
        };
        assert!(bound(6) < bound(2) && bound(2) < bound(1));
    }

    #[test]
    fn a_seed_says_it_all() {
        let run = |seed| {
            simulate(&Model { nodes: 100, seed, ..small() }, |a, b| 1000 + u64::from(a ^ b)).expect("ok")
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7).by_nodes, run(8).by_nodes);
    }

    #[test]
    fn impossible_models_are_refused() {
        for (model, part) in [
            (Model { nodes: 1, ..small() }, "nodes = 1"),
            (Model { interval_ns: 1, ..small() }, "questions in a round"),
            (Model { interval_ns: 0, round_ns: 0, ..small() }, "questions in a round = 0"),
            (Model { tail: f64::NAN, ..small() }, "tail"),
            (Model { drift_ppm: 501.0, ..small() }, "500 ppm"),
            (Model { walks: 0, ..small() }, "walks = 0"),
            (Model { every_ns: 4_000_000_000, ..small() }, "longer than a walk"),
        ] {
            let error = simulate(&model, |_, _| 1).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
