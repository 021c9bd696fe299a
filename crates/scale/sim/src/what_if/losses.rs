// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time that the slowest of many ranks loses in an iteration, computed from the detours of one node.
//!
//! Each rank works at an instant of the trace of its own. An iteration that begins at an instant of the trace loses the
//! detours that come before its work is done. So the distribution of the time that one rank loses is known without
//! simulation, and with it the mean of the slowest of so many ranks. Ranks that wait for others are not followed, so this
//! is a model of the simulation, not its equal; but it tells in milliseconds what another trace of the same node would
//! change.

use crate::noise::CpuNoise;

/// Steps of lost time within a factor of e: times within half a per cent of each other are one.
const STEPS: f64 = 200.0;

/// Time that a rank loses in an iteration, by the block of the trace in which the iteration begins.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    /// Work of an iteration, nanoseconds.
    pub(super) work_ns: f64,
    /// Lost times, rising, nanoseconds.
    lost_ns: Vec<f64>,
    /// For each block: places in `lost_ns`, and the time of the trace in which iterations begin that lose so much.
    blocks: Vec<Vec<(u32, f64)>>,
}

/// Times as they are collected: for each block and step, time of the trace, and for each step time × lost time.
struct Collected {
    blocks: Vec<Vec<f64>>,
    products: Vec<f64>,
}

impl Losses {
    /// Losses of iterations of `work_ns` on these CPUs, with so many blocks of their spans. `None` if an iteration takes
    /// longer than a block, or if nothing was measured.
    pub(super) fn new<'a>(
        cpus: impl IntoIterator<Item = &'a CpuNoise>,
        work_ns: f64,
        blocks: usize,
    ) -> Option<Self> {
        let mut collected = Collected { blocks: vec![Vec::new(); blocks], products: Vec::new() };
        let mut measured = false;
        for cpu in cpus {
            let free_ns = (cpu.span_ns() - cpu.stolen_ns()) as f64;
            if work_ns * blocks as f64 > free_ns {
                return None;
            }
            collected.add_cpu(cpu, work_ns);
            measured = true;
        }
        measured.then(|| collected.losses(work_ns))
    }

    /// Losses without any noise.
    pub(super) fn none(work_ns: f64, blocks: usize) -> Self {
        Self { work_ns, lost_ns: vec![0.0], blocks: vec![vec![(0, work_ns)]; blocks] }
    }

    /// Iterations of one CPU after the other that the trace has room for, about.
    pub(super) fn iterations(&self) -> f64 {
        self.blocks.iter().flatten().map(|(_, ns)| ns / self.work_ns).sum()
    }

    /// Blocks in the order of their longest loss, the longest first.
    pub(super) fn blocks_by_longest(&self) -> Vec<usize> {
        let longest = |block: &usize| self.blocks[*block].iter().map(|(place, _)| *place).max();
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        order.sort_by_key(|block| std::cmp::Reverse(longest(block)));
        order
    }

    /// Mean time that the slowest of `ranks` loses if each block counts by its weight and there is one more detour that
    /// the trace does not have (`unseen_ns` long; `None`: no such detour).
    pub(super) fn of_slowest(&self, ranks: f64, weights: &[f64], unseen_ns: Option<f64>) -> f64 {
        let mut time = vec![0.0; self.lost_ns.len()];
        for (block, weight) in self.blocks.iter().zip(weights) {
            for &(place, ns) in block {
                time[place as usize] += ns * weight;
            }
        }
        let unseen = unseen_ns.map(|ns| (ns, self.work_ns));
        let all: f64 = time.iter().sum::<f64>() + unseen.map_or(0.0, |(_, time)| time);
        if all <= 0.0 {
            return 0.0;
        }
        let seen = self.lost_ns.iter().copied().zip(time).rev();
        // from the longest down: the share of ranks that lose as much, and the probability that all ranks lose less
        let (mut mean, mut share, mut less) = (0.0, 0.0, 1.0);
        for (lost_ns, time) in unseen.into_iter().chain(seen) {
            share += time / all;
            let less_now = if share < 1.0 { (ranks * (-share).ln_1p()).exp() } else { 0.0 };
            mean += lost_ns * (less - less_now);
            less = less_now;
            if less < 1e-9 {
                break;
            }
        }
        mean
    }
}

impl Collected {
    fn add(&mut self, block: usize, lost_ns: u64, ns: f64) {
        let step = if lost_ns == 0 { 0 } else { 1 + ((lost_ns as f64).ln() * STEPS) as usize };
        let all = &mut self.blocks[block];
        if all.len() <= step {
            all.resize(step + 1, 0.0);
        }
        if self.products.len() <= step {
            self.products.resize(step + 1, 0.0);
        }
        all[step] += ns;
        self.products[step] += lost_ns as f64 * ns;
    }

    /// Adds the stretches of a CPU's trace. Work that begins at instant `u` of the free time loses the detours from `u` to
    /// `u + work_ns`; the span is read as a circle.
    fn add_cpu(&mut self, cpu: &CpuNoise, work_ns: f64) {
        let detours = free_starts(cpu);
        let ends = block_ends(cpu, self.blocks.len());
        let free_ns = ends.last().copied().unwrap_or(0.0);
        let n = detours.len();
        // detour number k, laps counted on
        let start = |k: usize| match detours.get(k % n.max(1)) {
            Some(d) => d.0 + (k / n) as f64 * free_ns,
            None => f64::INFINITY,
        };
        let length = |k: usize| detours.get(k % n.max(1)).map_or(0, |d| d.1);
        let (mut first, mut next, mut lost_ns) = (0, 0, 0);
        while start(next) < work_ns {
            lost_ns += length(next);
            next += 1;
        }
        let mut from = 0.0;
        for (block, &end) in ends.iter().enumerate() {
            while from < end {
                let leaves = if first < next { start(first) } else { f64::INFINITY };
                let comes = start(next) - work_ns;
                let until = leaves.min(comes).clamp(from, end);
                if until > from {
                    self.add(block, lost_ns, until - from);
                    from = until;
                }
                if until == end {
                    break;
                }
                if leaves <= comes {
                    lost_ns -= length(first);
                    first += 1;
                } else {
                    lost_ns += length(next);
                    next += 1;
                }
            }
        }
    }

    fn losses(self, work_ns: f64) -> Losses {
        let mut places = vec![0u32; self.products.len()];
        let mut lost_ns = Vec::new();
        for (step, product) in self.products.iter().enumerate() {
            let time: f64 = self.blocks.iter().filter_map(|b| b.get(step)).sum();
            if time > 0.0 {
                places[step] = lost_ns.len() as u32;
                lost_ns.push(product / time);
            }
        }
        let block = |block: &Vec<f64>| {
            let times = places.iter().zip(block).filter(|(_, ns)| **ns > 0.0);
            times.map(|(place, ns)| (*place, *ns)).collect()
        };
        Losses { work_ns, blocks: self.blocks.iter().map(block).collect(), lost_ns }
    }
}

/// The detours of a CPU: the free time before each, and its length.
pub(super) fn free_starts(cpu: &CpuNoise) -> Vec<(f64, u64)> {
    let mut stolen_ns = 0;
    let free = |d: &crate::noise::Detour| {
        let free_ns = d.start_ns - stolen_ns;
        stolen_ns += d.duration_ns;
        (free_ns as f64, d.duration_ns)
    };
    cpu.detours().iter().map(free).collect()
}

/// The free time of a CPU before the end of each of so many equal blocks of its span.
fn block_ends(cpu: &CpuNoise, blocks: usize) -> Vec<f64> {
    let mut detours = cpu.detours().iter().peekable();
    let mut stolen_ns = 0;
    let end = |block: usize| {
        let end_ns = (u128::from(cpu.span_ns()) * (block as u128 + 1) / blocks as u128) as u64;
        while let Some(d) = detours.next_if(|d| d.start_ns + d.duration_ns <= end_ns) {
            stolen_ns += d.duration_ns;
        }
        let under_way_ns = detours.peek().map_or(0, |d| end_ns.saturating_sub(d.start_ns));
        (end_ns - stolen_ns - under_way_ns) as f64
    };
    (0..blocks).map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Detour;

    fn cpu(span_ns: u64, detours: &[(u64, u64)]) -> CpuNoise {
        let detours = detours.iter().map(|&(start_ns, duration_ns)| Detour { start_ns, duration_ns });
        CpuNoise::new(span_ns, detours).expect("some time")
    }

    fn mean(losses: &Losses, ranks: f64) -> f64 {
        losses.of_slowest(ranks, &[1.0; 4], None)
    }

    #[test]
    fn one_rank_loses_the_stolen_time_and_many_the_longest_detours_together() {
        // 30 of 1000 ns are stolen: 970 free; of each 10 ns of work, 30/970 of it
        let losses = Losses::new([&cpu(1000, &[(100, 10), (112, 10), (995, 5), (0, 5)])], 10.0, 4)
            .expect("short work");
        assert!((mean(&losses, 1.0) - 300.0 / 970.0).abs() < 0.01, "{}", mean(&losses, 1.0));
        assert!((mean(&losses, 1e6) - 20.0).abs() < 0.2, "two detours 2 ns apart: {}", mean(&losses, 1e6));
        let quiet = Losses::new([&cpu(1000, &[])], 10.0, 4).expect("short work");
        assert_eq!(mean(&quiet, 1e6), 0.0);
    }

    #[test]
    fn blocks_have_the_detours_of_their_time() {
        let losses = Losses::new([&cpu(1000, &[(600, 100)])], 10.0, 4).expect("short work");
        let only = |block: usize| {
            let weights: Vec<f64> = (0..4).map(|b| f64::from(u8::from(b == block))).collect();
            losses.of_slowest(1e6, &weights, None)
        };
        assert_eq!([0, 1, 3].map(only), [0.0; 3]);
        assert!((only(2) - 100.0).abs() < 1.0, "{}", only(2));
    }

    #[test]
    fn work_longer_than_a_block_has_no_losses() {
        assert!(Losses::new([&cpu(1000, &[])], 251.0, 4).is_none());
        assert!(Losses::new([], 1.0, 4).is_none());
    }
}
