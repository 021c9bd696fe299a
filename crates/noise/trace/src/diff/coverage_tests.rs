// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the intervals of a comparison cover known differences.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::trace::synthetic::{meta, poisson_starts};
use crate::trace::{Detour, TraceMeta};

/// Noise of a node, with its parts more or less.
#[derive(Clone, Copy)]
struct Noise {
    /// Detours at random, a second and CPU: 200 ns to 200 µs.
    random_per_s: f64,
    /// Length of the tick at 250 Hz, on average.
    tick_ns: f64,
    /// A daemon that takes one CPU for 1 to 3 ms each 1.7 s.
    daemon: bool,
    /// Bursts a second of 15 detours on all CPUs, 30 µs on average, within 100 ms.
    bursts_per_s: f64,
    /// Rare detours of 1 to 5 ms in the whole trace, on all CPUs together: in no interval is what neither trace saw.
    rare: f64,
}

const LOUD: Noise =
    Noise { random_per_s: 100.0, tick_ns: 6_000.0, daemon: true, bursts_per_s: 3.0, rare: 6.0 };
const CALM: Noise =
    Noise { random_per_s: 70.0, tick_ns: 5_000.0, daemon: true, bursts_per_s: 2.0, rare: 2.0 };
/// Little but rare detours.
const BARE: Noise = Noise { random_per_s: 1.0, tick_ns: 0.0, daemon: false, bursts_per_s: 0.0, rare: 4.0 };

const SOURCES: [&str; 5] =
    ["thread:random", "irq:local_timer", "thread:daemon", "thread:burst", "hypervisor"];
const BURST: usize = 15;

impl Noise {
    fn trace(&self, seed: u64, cpus: usize, observed_s: f64) -> Trace {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let meta: TraceMeta = meta(cpus, observed_s);
        let mut detours = Vec::new();
        let mut add = |cpu: usize, start: f64, length: f64, source: u16| {
            // the part of a detour that was observed
            let length = length.min(observed_s * 1e9 - start) as u64;
            if start < observed_s * 1e9 && length >= meta.threshold_ns {
                let start_ns = meta.start_ns + start as i64;
                detours.push(Detour { node: 0, cpu: cpu as u16, start_ns, duration_ns: length, source });
            }
        };
        for cpu in 0..cpus {
            for start in poisson_starts(&mut random, self.random_per_s, observed_s) {
                add(cpu, start as f64, 200.0 * 1000f64.powf(random.random::<f64>()), 0);
            }
            let mut tick = random.random::<f64>() * 4e6;
            while self.tick_ns > 0.0 && tick < observed_s * 1e9 {
                add(cpu, tick, self.tick_ns * (0.75 + 0.5 * random.random::<f64>()), 1);
                tick += 4e6;
            }
        }
        let mut wakes = random.random::<f64>() * 1.7e9;
        while self.daemon && wakes < observed_s * 1e9 {
            add(random.random_range(0..cpus), wakes, 1e6 * (1.0 + 2.0 * random.random::<f64>()), 2);
            wakes += 1.7e9;
        }
        for start in poisson_starts(&mut random, self.bursts_per_s, observed_s) {
            for cpu in 0..cpus {
                for _ in 0..BURST {
                    add(
                        cpu,
                        start as f64 + 1e8 * random.random::<f64>(),
                        100.0 + exponential(&mut random, 3e4),
                        3,
                    );
                }
            }
        }
        for start in poisson_starts(&mut random, self.rare / observed_s, observed_s) {
            let length = 1e6 * (1.0 + 4.0 * random.random::<f64>());
            (0..cpus).for_each(|cpu| add(cpu, start as f64, length, 4));
        }
        let sources = SOURCES.iter().map(|s| Source::from(*s)).collect();
        Trace::from_parts(meta, sources, detours).expect("sources are there")
    }

    /// Figures of endless observation on `cpus` CPUs, by [`Diff`]'s own names.
    fn truth(&self, cpus: usize, observed_s: f64) -> BTreeMap<Figure, f64> {
        let daemon_per_s = if self.daemon { 1.0 / 1.7 / cpus as f64 } else { 0.0 };
        let tick_per_s = if self.tick_ns > 0.0 { 250.0 } else { 0.0 };
        let parts = [
            (self.random_per_s, 200.0 * 999.0 / 1000f64.ln()),
            (tick_per_s, self.tick_ns),
            (daemon_per_s, 2e6),
            (self.bursts_per_s * BURST as f64, 30_100.0),
            (self.rare / observed_s, 3e6),
        ];
        let mut truth: BTreeMap<Figure, f64> = SOURCES
            .iter()
            .zip(parts)
            .map(|(name, (per_s, ns))| (Figure::Source(Source::from(*name)), per_s * ns / 1e9))
            .collect();
        truth.insert(Figure::StolenShare, truth.values().sum());
        truth.insert(Figure::DetoursPerS, parts.iter().map(|p| p.0).sum());
        let mut long: Vec<u64> = (0..(4000.0 / cpus as f64 / observed_s) as u64)
            .flat_map(|i| self.trace((1 << 40) + i, cpus, observed_s).detours)
            .map(|d| d.duration_ns)
            .collect();
        long.sort_unstable();
        for (figure, share) in [(Figure::P50Ns, 0.5), (Figure::P99Ns, 0.99)] {
            truth.insert(figure, long[(long.len() as f64 * share) as usize] as f64);
        }
        truth
    }
}

fn exponential(random: &mut impl Rng, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

/// Seeds asked, `usual` unless `COLONY_SEEDS` says another number.
fn seeds(usual: u64) -> u64 {
    std::env::var("COLONY_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// By figure: the number of seeds whose interval covers the true difference, and the number of seeds that have one.
fn covered(noise: [Noise; 2], cpus: usize, observed_s: [f64; 2], seeds: u64) -> BTreeMap<Figure, [u64; 2]> {
    let truth = [0, 1].map(|i| noise[i].truth(cpus, observed_s[i]));
    let mut covered: BTreeMap<Figure, [u64; 2]> = BTreeMap::new();
    for seed in 0..seeds {
        let traces = [0, 1].map(|i| noise[i].trace(2 * seed + i as u64, cpus, observed_s[i]));
        let diff = Diff::of(&traces[0], &traces[1]).expect("timed");
        for (figure, before) in &truth[0] {
            let difference = truth[1][figure] - before;
            let interval = diff.get(figure).and_then(|c| c.interval);
            // a figure without an interval claims nothing
            let holds = interval.is_none_or(|(low, high)| (low..=high).contains(&difference));
            let [held, given] = covered.entry(figure.clone()).or_default();
            *held += u64::from(holds);
            *given += u64::from(interval.is_some());
        }
    }
    covered
}

#[test]
fn intervals_cover_the_true_difference_whatever_the_noise_and_the_length() {
    let seeds = seeds(40);
    // 40 seeds of an interval that covers in 90 % of cases may be two standard deviations below
    let chance = if seeds < 200 { 2.0 * (0.9 * 0.1 * seeds as f64).sqrt() } else { 0.0 };
    let mut short = Vec::new();
    for (name, noise) in
        [("the same", [LOUD, LOUD]), ("less", [LOUD, CALM]), ("rare", [BARE, BARE]), ("gone", [CALM, BARE])]
    {
        for (cpus, observed_s) in
            [(1, [2.0, 2.0]), (8, [2.0, 2.0]), (1, [10.0, 10.0]), (4, [10.0, 30.0]), (1, [60.0, 60.0])]
        {
            for (figure, [n, given]) in covered(noise, cpus, observed_s, seeds) {
                let line = format!(
                    "{name}, {cpus} CPUs, {observed_s:?} s, {figure:?}: {n} of {seeds}, {given} given"
                );
                println!("{line}");
                let many = !name.contains("rare") && !name.contains("gone") && observed_s[0] >= 10.0;
                assert!(!many || matches!(figure, Figure::Source(_)) || given == seeds, "{line}");
                if (n as f64) < 0.9 * seeds as f64 - chance {
                    short.push(line);
                }
            }
        }
    }
    assert!(short.is_empty(), "intervals that do not cover:\n{}", short.join("\n"));
}
