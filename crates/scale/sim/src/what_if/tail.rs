// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest losses to a source, and how much longer those may be that the trace does not have.

use super::losses::free_starts;
use crate::NodeNoise;

/// Losses that are too few to know a tail index.
const FEW: usize = 5;

/// The upper tail of the time that iterations lose to one source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tail {
    /// The longest loss in the trace, nanoseconds.
    longest_ns: f64,
    /// As `excess`, of the lengths of single detours: losses of several detours vary although all lengths are equal.
    length_excess: f64,
    /// Mean logarithm of the longest losses over the next shorter one: 1 over the tail index (Hill, "A simple general
    /// approach to inference about the tail of a distribution", Annals of Statistics 3, 1975).
    excess: f64,
    /// Losses that `excess` was computed from.
    count: usize,
}

impl Tail {
    /// The tail of iterations of `work_ns`. `None` if the source was not seen.
    pub(super) fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeNoise>, work_ns: f64) -> Option<Self> {
        let (mut losses, mut lengths) = (Vec::new(), Vec::new());
        for cpu in nodes.into_iter().flat_map(NodeNoise::cpus) {
            let detours = free_starts(cpu);
            let (mut end, mut lost_ns) = (0, 0);
            // work that begins just before each detour
            for &(start, length) in &detours {
                while let Some(d) = detours.get(end).filter(|d| d.0 < start + work_ns) {
                    lost_ns += d.1;
                    end += 1;
                }
                losses.push(lost_ns);
                lengths.push(length);
                lost_ns = lost_ns.saturating_sub(length);
            }
        }
        let longest_ns = losses.iter().copied().max()? as f64;
        let count = ((losses.len() as f64).sqrt().ceil() as usize).min(losses.len() - 1);
        let (excess, length_excess) = (mean_excess(losses, count), mean_excess(lengths, count));
        Some(Self { longest_ns, excess, length_excess, count })
    }

    /// The longest loss that is not in the trace, `steps` mean excesses beyond the longest one in it; of `reach` times as
    /// many iterations as the trace has.
    pub(super) fn unseen_ns(&self, steps: f64, reach: f64) -> f64 {
        self.longest_ns * (self.excess * (steps + reach.max(1.0).ln())).exp()
    }

    /// Returns `true` if the tail index is below 2, or above 2 by less than half of its standard error: the variance may be
    /// infinite, and then no trace is long enough to bound the mean of the slowest of many ranks.
    pub(super) fn is_heavy(&self) -> bool {
        let error = 1.0 / (self.count.max(1) as f64).sqrt();
        self.count >= FEW && self.length_excess * (1.0 + error / 2.0) > 0.5
    }

    /// Returns `true` if the tail index is below 2 by more than its standard error.
    pub(super) fn is_certainly_heavy(&self) -> bool {
        self.is_heavy() && self.length_excess * (1.0 - 1.0 / (self.count as f64).sqrt()) > 0.5
    }
}

/// Mean logarithm of the `count` longest values over the next shorter one.
fn mean_excess(mut values: Vec<u64>, count: usize) -> f64 {
    values.sort_unstable_by(|a, b| b.cmp(a));
    let ln = |ns: u64| (ns.max(1) as f64).ln();
    let excess: f64 = values[..count].iter().map(|&ns| ln(ns) - ln(values[count])).sum();
    excess / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuNoise;
    use crate::noise::Detour;
    use crate::rng::Key;

    fn node(detours: impl Iterator<Item = (u64, u64)>) -> NodeNoise {
        let detours = detours.map(|(start_ns, duration_ns)| Detour { start_ns, duration_ns });
        NodeNoise::new(vec![CpuNoise::new(20_000_000_000, detours).expect("some time")]).expect("a CPU")
    }

    #[test]
    fn detours_of_one_length_have_no_heavy_tail_however_many_an_iteration_meets() {
        for seed in 0..20 {
            let key = Key::new(seed);
            let mut start = 0.0;
            let gap = |n: u64| -15e6 * key.uniform(n).ln();
            let starts = (0..1200).map_while(|n| {
                start += 200_000.0 + gap(n);
                (start < 19.9e9).then_some((start as u64, 200_000))
            });
            let tail = Tail::of([&node(starts)], 1e6).expect("detours");
            assert!(!tail.is_heavy(), "{tail:?}");
        }
    }

    #[test]
    fn a_tail_index_of_1_6_is_nearly_always_heavy_and_exponential_lengths_never_are() {
        let heavy = |length: fn(f64) -> f64| {
            let is_heavy = |seed: &u64| {
                let key = Key::new(*seed);
                let detours = (0..400).map(|n| (n * 50_000_000, length(key.uniform(n)) as u64));
                Tail::of([&node(detours)], 1e6).is_some_and(|tail| tail.is_heavy())
            };
            (0..100).filter(is_heavy).count()
        };
        let (pareto, exponential) =
            (heavy(|u| (2e4 * u.powf(-1.0 / 1.6)).min(4e7)), heavy(|u| -2e5 * u.ln()));
        assert!(pareto >= 85 && exponential <= 5, "{pareto}, {exponential}");
    }
}
