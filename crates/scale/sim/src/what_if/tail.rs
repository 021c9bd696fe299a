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
    /// Mean logarithm of the longest losses over the next shorter one: 1 over the tail index (Hill, "A simple general
    /// approach to inference about the tail of a distribution", Annals of Statistics 3, 1975).
    excess: f64,
    /// Losses that `excess` was computed from.
    count: usize,
}

impl Tail {
    /// The tail of iterations of `work_ns`. `None` if the source was not seen.
    pub(super) fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeNoise>, work_ns: f64) -> Option<Self> {
        let mut losses = Vec::new();
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
                lost_ns = lost_ns.saturating_sub(length);
            }
        }
        losses.sort_unstable_by(|a, b| b.cmp(a));
        let longest = *losses.first()?;
        let count = ((losses.len() as f64).sqrt().ceil() as usize).min(losses.len() - 1);
        let ln = |ns: u64| (ns.max(1) as f64).ln();
        let excess: f64 = losses[..count].iter().map(|&ns| ln(ns) - ln(losses[count])).sum();
        Some(Self { longest_ns: longest as f64, excess: excess / count.max(1) as f64, count })
    }

    /// The longest loss that is not in the trace, `steps` mean excesses beyond the longest one in it; of `reach` times as
    /// many iterations as the trace has.
    pub(super) fn unseen_ns(&self, steps: f64, reach: f64) -> f64 {
        self.longest_ns * (self.excess * (steps + reach.max(1.0).ln())).exp()
    }

    /// Returns `true` if the tail index is below 2: the variance is infinite, and no trace is long enough to bound the mean
    /// of the slowest of many ranks.
    pub(super) fn is_heavy(&self) -> bool {
        self.count >= FEW && self.excess > 0.5
    }

    /// Returns `true` if the tail index is below 2 by more than its standard error.
    pub(super) fn is_certainly_heavy(&self) -> bool {
        self.is_heavy() && self.excess * (1.0 - 1.0 / (self.count as f64).sqrt()) > 0.5
    }
}
