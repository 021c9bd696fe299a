// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the figures of a trace may be from those of the node: a block bootstrap of the trace.
//!
//! Another trace of the same node would have the same kinds of detours, but not as many of each. A resample has the blocks
//! of the trace, each with a random weight (exponential with mean 1: Rubin, "The Bayesian bootstrap", Annals of Statistics
//! 9, 1981), so a source that was seen in k blocks comes as often as a gamma variable with shape k. That is the lower end
//! of the exact interval of a Poisson rate (Garwood, Biometrika 28, 1936); for the upper end, of shape k + 1, the block
//! that raises the figure most is once more in each resample. Long detours that the trace happens not to have are counted
//! by one unseen detour, as much longer than the longest one as the [`Tail`] says.
//!
//! On many nodes, the slowest rank meets the few longest detours of the trace, and what else a source adds to these is
//! chance. A resample always has the longest detour, so it does not show that chance. The interval of a source's cost
//! therefore also has the costs in traces without the longest detours of the others: without the block of the longest, of
//! the two longest, and so on. No interval of a cost is narrower than [`RESOLUTION`] of what all noise costs.
//!
//! All figures of a question have the same weights, so the interval of a difference is that of the difference. Resamples
//! are computed by [`Losses`], not simulated: they only say by how much a figure would change.

use super::losses::Losses;
use super::tail::Tail;
use crate::node::Node;
use crate::rng::Key;
use crate::spec::Measured;
use crate::stats::variance;

/// Blocks of a trace. Noise that is alike for longer than a block makes intervals too narrow.
const BLOCKS: usize = 16;
/// Resamples.
const RESAMPLES: u64 = 200;
/// Resamples beyond each end of a 95 % interval.
const BEYOND: usize = RESAMPLES as usize / 40;
/// Factor that corrects intervals for the small number of blocks: Student's t with 15 degrees of freedom over the normal
/// 1.96, times sqrt(16/15), because the mean of the blocks themselves is subtracted.
const FEW_BLOCKS: f64 = 1.123;
/// Blocks with the longest detours that are left out, one more each time, to see how far a cost depends on them.
const LEFT_OUT: usize = BLOCKS / 2;
/// Costs of sources below this share of the cost of all noise cannot be told: detours of others hide them or not by chance.
const RESOLUTION: f64 = 0.01;
/// Part of the seed for the weights.
const WEIGHTS: u64 = 1 << 42;

/// Distance from a figure to the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sides {
    pub(super) below_ns: f64,
    /// `None` if the trace does not bound the figure: its longest detours decide, and the lengths of detours have
    /// infinite variance.
    pub(super) above_ns: Option<f64>,
}

impl Sides {
    pub(super) const NONE: Self = Self { below_ns: 0.0, above_ns: Some(0.0) };

    /// The sides of a time that is this one for `share` of the time, and another one for the rest.
    pub(super) fn mixed(self, share: f64, other: Self) -> Self {
        let mix = |a: f64, b: f64| a * share + b * (1.0 - share);
        let above_ns = self.above_ns.zip(other.above_ns).map(|(a, b)| mix(a, b));
        Self { below_ns: mix(self.below_ns, other.below_ns), above_ns }
    }
}

/// The bootstrap of one question on one node count.
pub(super) struct Bootstrap {
    work_ns: f64,
    resamples: Vec<Resample>,
    tails: Vec<(String, Tail)>,
    /// Ranks whose slowest an iteration waits for.
    ranks: f64,
    /// Simulated lost time over that of the [`Losses`].
    scale: f64,
    /// Standard deviation of the simulated lost time between traces, as far as the [`Losses`] do not show it; a share of
    /// the lost time.
    excess: f64,
}

struct Resample {
    weights: [f64; BLOCKS],
    /// Weight of the block that is once more in it.
    once_more: f64,
    /// Mean excesses of the unseen detour.
    steps: f64,
}

/// What the noise of a case takes.
pub(super) struct Taken {
    losses: Losses,
    tails: Vec<Tail>,
}

/// Weights of traces that are as long, without the blocks of the longest detours.
fn without_longest(losses: &Losses) -> impl Iterator<Item = [f64; BLOCKS]> {
    let order = losses.blocks_by_longest();
    (1..=LEFT_OUT).map(move |left_out| {
        let mut weights = [BLOCKS as f64 / (BLOCKS - left_out) as f64; BLOCKS];
        order[..left_out].iter().for_each(|&block| weights[block] = 0.0);
        weights
    })
}

/// Numbers of the blocks that another trace is put together from, in their order.
pub(super) type Order = [usize; BLOCKS];

/// Weights of the trace itself.
const TRACE: [f64; BLOCKS] = [1.0; BLOCKS];

impl Bootstrap {
    /// The bootstrap of a trace under iterations of `work_ns` on `ranks` ranks.
    pub(super) fn new(measured: &[Measured], work_ns: f64, ranks: u32, seed: u64) -> Self {
        let key = Key::new(seed).part(WEIGHTS);
        let exponential = |n: u64, index: usize| -libm::log(key.part(n).uniform(index as u64));
        let resample = |n: u64| Resample {
            weights: std::array::from_fn(|block| exponential(n, block)),
            once_more: exponential(n, BLOCKS),
            steps: exponential(n, BLOCKS + 1),
        };
        let work_ns = work_ns.max(1.0);
        let mut names: Vec<&str> =
            measured.iter().flat_map(|m| &m.sources).map(|s| s.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let tail = |name: &&str| {
            let of_source = measured.iter().flat_map(|m| &m.sources).filter(|s| s.name == *name);
            Some(((*name).to_owned(), Tail::of(of_source.map(|s| &s.noise), work_ns)?))
        };
        Self {
            work_ns,
            resamples: (0..RESAMPLES).map(resample).collect(),
            tails: names.iter().filter_map(tail).collect(),
            ranks: f64::from(ranks),
            scale: 1.0,
            excess: 0.0,
        }
    }

    /// What the noise of `node` takes; `None` if the trace is too short for blocks longer than an iteration.
    pub(super) fn taken(&self, node: &Node, is_left: impl Fn(&str) -> bool) -> Option<Taken> {
        let traces: Vec<_> = node.sources.iter().filter_map(|s| s.noise.trace()).collect();
        let losses = match &traces[..] {
            [] => Losses::none(self.work_ns, BLOCKS),
            traces => Losses::new(traces.iter().flat_map(|t| t.cpus()), self.work_ns, BLOCKS)?,
        };
        let tails = self.tails.iter().filter(|(name, _)| is_left(name)).map(|(_, tail)| *tail).collect();
        Some(Taken { losses, tails })
    }

    /// Finds out how many ranks an iteration waits for, given the time that a simulated one loses to `everything`.
    pub(super) fn calibrate(&mut self, everything: &Taken, lost_ns: f64) {
        let lost = |ranks: f64| everything.losses.of_slowest(ranks, &TRACE, None);
        let (mut few, mut many) = (1.0, self.ranks.max(1.0));
        while many / few > 1.01 {
            let ranks: f64 = f64::sqrt(few * many);
            if lost(ranks) < lost_ns { few = ranks } else { many = ranks }
        }
        self.ranks = many;
        let model_ns = lost(many);
        self.scale = if model_ns > 0.0 && lost_ns > 0.0 { lost_ns / model_ns } else { 1.0 };
    }

    /// Time that the trace itself takes, nanoseconds an iteration.
    pub(super) fn lost_ns(&self, taken: &Taken) -> f64 {
        self.scale * self.lost(taken, &TRACE, None)
    }

    /// Time that each resample takes more than the trace, nanoseconds an iteration.
    pub(super) fn deviations_ns(&self, taken: &Taken) -> Vec<f64> {
        let trace = self.lost_ns(taken);
        let more: Vec<f64> =
            self.resamples.iter().map(|r| self.scale * self.lost(taken, &r.weights, None) - trace).collect();
        let (modelled, excess) = (variance(&more), (self.excess * trace).powi(2));
        let wider = if modelled > 0.0 { ((modelled + excess) / modelled).sqrt() } else { 1.0 };
        more.into_iter().map(|ns| wider * ns).collect()
    }

    /// Time that a trace of these blocks takes more than the trace, nanoseconds an iteration.
    pub(super) fn deviation_ns(&self, taken: &Taken, blocks: &Order) -> f64 {
        let mut weights = [0.0; BLOCKS];
        for &block in blocks {
            weights[block] += 1.0;
        }
        self.scale * (self.lost(taken, &weights, None) - self.lost(taken, &TRACE, None))
    }

    /// States the standard deviation of the simulated lost time between traces that is not in the resamples, as a share.
    pub(super) fn set_excess(&mut self, excess: f64) {
        self.excess = excess;
    }

    /// The interval of the time that `more` takes and `less` does not.
    pub(super) fn sides(&self, more: &Taken, less: Option<&Taken>) -> Sides {
        let figure = |weights: &[f64; BLOCKS], steps: Option<f64>| {
            self.lost(more, weights, steps) - less.map_or(0.0, |less| self.lost(less, weights, steps))
        };
        let once_more = |weights: &[f64; BLOCKS], block: usize, weight: f64| {
            let mut weights = *weights;
            weights[block] += weight;
            weights
        };
        let trace = figure(&TRACE, None);
        let values: Vec<f64> =
            (0..BLOCKS).map(|block| figure(&once_more(&TRACE, block, 1.0), None)).collect();
        let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let lowest = (0..BLOCKS).min_by(by_value).unwrap_or(0);
        let highest = (0..BLOCKS).max_by(by_value).unwrap_or(0);
        let sorted = |block: usize, with_unseen: bool| {
            let of = |r: &Resample| {
                figure(&once_more(&r.weights, block, r.once_more), with_unseen.then_some(r.steps))
            };
            let mut all: Vec<f64> = self.resamples.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let low = sorted(lowest, false)[BEYOND].min(trace);
        let above = sorted(highest, true)[RESAMPLES as usize - 1 - BEYOND] - trace;
        let is_heavy = self.longest_unseen(more, 1.0).is_some_and(|(_, tail)| tail.is_heavy());
        let excess = 1.96 * FEW_BLOCKS * self.excess;
        let below = if low > 0.0 {
            // what was seen costs something, so a lower end above 0 is widened by a factor
            trace * (1.0 - (low / trace).powf(FEW_BLOCKS) * (-excess).exp())
        } else {
            (FEW_BLOCKS * (trace - low)).hypot(excess * trace)
        };
        let above_ns = (!is_heavy || above <= trace.abs())
            .then(|| self.scale * (FEW_BLOCKS * above.max(0.0)).hypot(excess * trace));
        Sides { below_ns: self.scale * below, above_ns }
    }

    /// The interval of the cost of a source: as [`Self::sides`], and as wide as the cost varies with the longest detours of
    /// the others.
    pub(super) fn cost_sides(&self, more: &Taken, less: &Taken) -> Sides {
        let cost = |weights: &[f64; BLOCKS]| self.lost(more, weights, None) - self.lost(less, weights, None);
        let trace = cost(&TRACE);
        let (mut low, mut high) = (trace, trace);
        for without in without_longest(&less.losses).map(|weights| cost(&weights)) {
            (low, high) = (low.min(without), high.max(without));
        }
        let resolution_ns = RESOLUTION * self.lost_ns(more);
        let sides = self.sides(more, Some(less));
        Sides {
            below_ns: sides.below_ns.max(self.scale * (trace - low)) + resolution_ns,
            above_ns: sides.above_ns.map(|ns| ns.max(self.scale * (high - trace)) + resolution_ns),
        }
    }

    fn lost(&self, of: &Taken, weights: &[f64; BLOCKS], steps: Option<f64>) -> f64 {
        let unseen = steps.and_then(|steps| self.longest_unseen(of, steps)).map(|(ns, _)| ns);
        of.losses.of_slowest(self.ranks, weights, unseen)
    }

    /// The longest loss to one source that the trace does not have, and that source's tail.
    fn longest_unseen(&self, of: &Taken, steps: f64) -> Option<(f64, Tail)> {
        let reach = self.ranks / of.losses.iterations().max(1.0);
        let unseen = |tail: &Tail| (tail.unseen_ns(steps, reach), *tail);
        of.tails.iter().map(unseen).max_by(|a, b| a.0.total_cmp(&b.0))
    }
}
