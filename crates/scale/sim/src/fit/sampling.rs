// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a source's figures in a trace may be from the source: a block bootstrap.

use serde::{Deserialize, Serialize};

use crate::NodeNoise;
use crate::rng::Key;

/// Blocks of the trace: noise that is alike for longer than a block makes intervals too narrow.
const BLOCKS: usize = 16;
/// Resamples, and those beyond each end of a 95 % interval.
const RESAMPLES: usize = 400;
const BEYOND: usize = RESAMPLES / 40;
/// Factor that corrects intervals for the small number of blocks: Student's t with 15 degrees of freedom over the normal
/// 1.96, times sqrt(16/15).
const FEW_BLOCKS: f64 = 1.123;
/// Detours whose lengths tell how lengths vary.
const FEW: f64 = 10.0;
/// Seed of the resamples.
const SEED: u64 = 1;

/// 95 % intervals of a source's figures, each its lower and its upper end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Share of the CPUs' time that it takes.
    pub stolen_share: [f64; 2],
    /// Mean time from one detour of a CPU to the next, nanoseconds.
    pub gap_ns: [f64; 2],
    /// Mean length of a detour, nanoseconds; `None` if the source was seen too few times to know how lengths vary.
    pub length_ns: Option<[f64; 2]>,
}

/// The detours of a source in one block of the trace.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    detours: f64,
    stolen_ns: f64,
}

impl Sampling {
    /// The intervals of a source on its CPUs, by the weighted blocks of its trace (Rubin, "The Bayesian bootstrap", Annals
    /// of Statistics 9, 1981); for the end of more noise, with the block that has most of it once more. `None` if the
    /// source was not seen.
    #[must_use]
    pub fn of(noise: &NodeNoise) -> Option<Self> {
        let blocks = blocks(noise);
        let cpu_ns = noise.cpus().len() as f64 * noise.span_ns() as f64;
        let detours: f64 = blocks.iter().map(|b| b.detours).sum();
        if detours == 0.0 {
            return None;
        }
        let most = |of: fn(&Block) -> f64| {
            (0..BLOCKS).max_by(|&a, &b| of(&blocks[a]).total_cmp(&of(&blocks[b]))).unwrap_or(0)
        };
        let of = |block: usize, figure: &dyn Fn(f64, f64, f64) -> f64| -> Vec<f64> {
            let mut values: Vec<f64> =
                (0..RESAMPLES as u64).map(|n| resampled(&blocks, n, block, figure)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let share = |_: f64, stolen: f64, time: f64| stolen / time * BLOCKS as f64 / cpu_ns;
        let rate = |detours: f64, _: f64, time: f64| detours / time * BLOCKS as f64 / cpu_ns;
        let length = |detours: f64, stolen: f64, _: f64| stolen / detours;
        let stolen: f64 = blocks.iter().map(|b| b.stolen_ns).sum();
        let ends = |most: usize, figure: &dyn Fn(f64, f64, f64) -> f64| {
            let found = figure(detours, stolen, BLOCKS as f64);
            let (low, high) = (of(BLOCKS, figure)[BEYOND], of(most, figure)[RESAMPLES - 1 - BEYOND]);
            [
                found * (low / found).min(1.0).powf(FEW_BLOCKS),
                found * (high / found).max(1.0).powf(FEW_BLOCKS),
            ]
        };
        let [least, rate_most] = ends(most(|b| b.detours), &rate);
        Some(Self {
            stolen_share: ends(most(|b| b.stolen_ns), &share),
            gap_ns: [1.0 / rate_most, 1.0 / least],
            length_ns: (detours >= FEW).then(|| ends(most(|b| b.stolen_ns / b.detours.max(1.0)), &length)),
        })
    }
}

fn blocks(noise: &NodeNoise) -> [Block; BLOCKS] {
    let mut blocks = [Block::default(); BLOCKS];
    for d in noise.cpus().iter().flat_map(|cpu| cpu.detours()) {
        let block = u128::from(d.start_ns) * BLOCKS as u128 / u128::from(noise.span_ns().max(1));
        if let Some(block) = blocks.get_mut(block as usize) {
            block.detours += 1.0;
            block.stolen_ns += d.duration_ns as f64;
        }
    }
    blocks
}

/// A figure of detours, stolen time and blocks in resample `n`, with one block once more if there is such a block.
fn resampled(blocks: &[Block; BLOCKS], n: u64, more: usize, figure: &dyn Fn(f64, f64, f64) -> f64) -> f64 {
    let key = Key::new(SEED).part(n);
    let weight = |block: usize| -libm::log(key.uniform(block as u64));
    let (mut detours, mut stolen, mut time) = (0.0, 0.0, 0.0);
    for (b, block) in blocks.iter().enumerate() {
        let weight = weight(b) + if b == more { weight(BLOCKS) } else { 0.0 };
        detours += weight * block.detours;
        stolen += weight * block.stolen_ns;
        time += weight;
    }
    figure(detours, stolen, time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuNoise;
    use crate::noise::Detour;

    fn noise(seed: u64, mean_gap: f64, span_ns: u64) -> NodeNoise {
        let (key, mut at, mut n) = (Key::new(seed), 0.0, 0);
        let mut detours = Vec::new();
        loop {
            at -= mean_gap * key.uniform(n).ln();
            if at >= span_ns as f64 {
                break;
            }
            detours.push(Detour { start_ns: at as u64, duration_ns: 1 + (2e5 * key.uniform(n + 1)) as u64 });
            n += 2;
        }
        NodeNoise::new(vec![CpuNoise::new(span_ns, detours).expect("some time")]).expect("a CPU")
    }

    #[test]
    fn intervals_cover_rate_length_and_share_of_a_poisson_source() {
        for (gap, expected) in [(1e9, 20), (5e9, 4), (1e8, 200)] {
            let (mut covered, mut all) = ([0; 3], 0);
            for seed in 0..200 {
                let Some(s) = Sampling::of(&noise(seed, gap, 20_000_000_000)) else { continue };
                let holds = |[low, high]: [f64; 2], truth: f64| low <= truth && truth <= high;
                all += 1;
                covered[0] += u32::from(holds(s.gap_ns, gap));
                covered[1] += u32::from(s.length_ns.is_none_or(|length| holds(length, 1e5)));
                covered[2] += u32::from(holds(s.stolen_share, 1e5 / gap));
            }
            println!("{expected} detours: {covered:?} of {all}");
            assert!(covered.iter().all(|c| c * 100 >= all * 90), "{expected}: {covered:?} of {all}");
        }
    }

    #[test]
    fn a_source_that_was_not_seen_has_no_intervals() {
        assert_eq!(Sampling::of(&NodeNoise::quiet()), None);
    }
}
