// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::trace::synthetic::{meta, poisson_starts};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A mixture of trains and noise.
struct Mix {
    rng: ChaCha8Rng,
    seconds: f64,
    detours: Vec<(i64, u64)>,
}

impl Mix {
    fn new(seed: u64, seconds: f64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), seconds, detours: Vec::new() }
    }

    /// Ticks of `ns` each with uniform jitter of ± `jitter` periods; each is there with probability `there`.
    fn train(mut self, hz: f64, phase: f64, jitter: f64, there: f64, ns: u64) -> Self {
        let period = 1e9 / hz;
        for k in 0..(self.seconds * hz) as i64 {
            let off = jitter * (2.0 * self.rng.random::<f64>() - 1.0);
            if self.rng.random::<f64>() < there {
                self.detours.push((
                    ((k as f64 + phase + off) * period) as i64,
                    ns + self.rng.random_range(0..ns / 10),
                ));
            }
        }
        self
    }

    /// A task that sleeps: distances vary by ± `jitter` and add up.
    fn sleeper(mut self, hz: f64, jitter: f64, ns: u64) -> Self {
        let mut t = 0.0;
        while t < self.seconds {
            self.detours.push(((t * 1e9) as i64, ns));
            t += (1.0 + jitter * (2.0 * self.rng.random::<f64>() - 1.0)) / hz;
        }
        self
    }

    fn poisson(mut self, rate: f64, ns: u64) -> Self {
        let starts = poisson_starts(&mut self.rng, rate, self.seconds);
        self.detours.extend(starts.into_iter().map(|t| (t, ns)));
        self
    }

    fn find(mut self) -> Vec<Period> {
        self.detours.sort_unstable();
        let (starts, lengths): (Vec<i64>, Vec<u64>) = self.detours.into_iter().unzip();
        find(&starts, &lengths)
    }
}

fn rates(found: &[Period]) -> Vec<f64> {
    let mut hz: Vec<f64> = found.iter().map(|p| (p.hz * 100.0).round() / 100.0).collect();
    hz.sort_unstable_by(f64::total_cmp);
    hz
}

#[test]
fn two_timers_are_found_in_noise() {
    for seed in 0..10 {
        let mix =
            Mix::new(seed, 10.0).train(1000.0, 0.2, 0.002, 1.0, 1400).train(250.0, 0.6, 0.002, 1.0, 9000);
        let found = mix.poisson(200.0, 3000).find();
        assert_eq!(rates(&found), [250.0, 1000.0], "seed {seed}: {found:#?}");
        let tick = &found[0];
        assert!(tick.locked && tick.occupancy > 0.98 && tick.count >= 9_800, "{tick:?}");
        assert!((1400..1540).contains(&tick.median_ns), "{tick:?}");
        assert_eq!(tick.to_string(), "1000 Hz, 1.5 µs each, phase-locked");
    }
}

#[test]
fn random_detours_have_no_period() {
    for seed in 0..60 {
        let found = Mix::new(seed, 10.0).poisson([20.0, 200.0, 2000.0][seed as usize % 3], 3000).find();
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}

#[test]
fn bursts_are_no_period() {
    let mut mix = Mix::new(1, 20.0).poisson(5.0, 3000);
    let starts: Vec<i64> = mix.detours.iter().map(|d| d.0).collect();
    for t in starts {
        mix.detours.extend((1..30).map(|i| (t + i * 4_000, 1000)));
    }
    let found = mix.find();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_tick_that_stops_when_idle_is_found() {
    for (seed, there) in [(1, 0.6), (2, 0.3), (3, 0.14)] {
        let found = Mix::new(seed, 10.0).train(1000.0, 0.0, 0.001, there, 1400).poisson(50.0, 3000).find();
        assert_eq!(rates(&found), [1000.0], "{there}: {found:#?}");
        assert!((found[0].occupancy - there).abs() < 0.05, "{there}: {found:#?}");
        assert!(found[0].to_string().ends_with("% of its ticks seen"), "{}", found[0]);
    }
}

#[test]
fn a_drifting_clock_does_not_hide_a_timer() {
    for ppm in [-50.0, 50.0, 180.0] {
        let hz = 1000.0 * (1.0 + ppm * 1e-6);
        let found = Mix::new(4, 30.0).train(hz, 0.5, 0.003, 0.9, 1400).poisson(300.0, 3000).find();
        assert_eq!(found.len(), 1, "{ppm} ppm: {found:#?}");
        assert!((found[0].hz / hz - 1.0).abs() < 1e-7, "{ppm} ppm: {found:#?}");
        assert!(found[0].to_string().starts_with("1000 Hz"), "{}", found[0]);
    }
}

#[test]
fn two_phases_of_one_rate_are_two_periods() {
    for (seed, apart) in [(1, 0.3), (2, 0.25), (3, 0.41)] {
        let found = Mix::new(seed, 10.0)
            .train(100.0, 0.1, 0.002, 1.0, 2000)
            .train(100.0, 0.1 + apart, 0.002, 1.0, 2000)
            .find();
        assert_eq!(rates(&found), [100.0, 100.0], "{apart}: {found:#?}");
        let between = (found[0].phase_ns - found[1].phase_ns).abs() / found[0].period_ns;
        assert!((between.min(1.0 - between) - apart).abs() < 0.01, "{found:#?}");
    }
}

#[test]
fn unusual_rates_are_found_without_their_harmonics() {
    for hz in [3.7, 17.3, 77.77, 433.1, 3333.0] {
        let found = Mix::new(9, 20.0).train(hz, 0.4, 0.01, 1.0, 5000).poisson(hz / 2.0, 3000).find();
        assert_eq!(found.len(), 1, "{hz}: {found:#?}");
        assert!((found[0].hz / hz - 1.0).abs() < 1e-4, "{hz}: {found:#?}");
    }
}

#[test]
fn jitter_is_allowed_and_reported() {
    let found = Mix::new(5, 20.0).train(100.0, 0.0, 0.05, 1.0, 2000).find();
    assert_eq!(rates(&found), [100.0], "{found:#?}");
    // uniform jitter of ± 500 µs: the robust spread of a uniform distribution is 1.4826 of its half half
    assert!((found[0].jitter_ns / (1.4826 * 250_000.0) - 1.0).abs() < 0.15, "{found:#?}");
    assert!(found[0].strength > 0.9, "{found:#?}");
}

#[test]
fn detours_longer_than_a_period_do_not_have_it() {
    // a scheduler begins long turns on a tick of 250 Hz, and not on every one
    let found = Mix::new(5, 20.0).train(250.0, 0.0, 0.002, 0.15, 8_000_000).find();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_timer_with_jitter_in_noise_leaves_no_echo() {
    let found = Mix::new(5421, 20.0).train(2448.94, 0.3, 0.028, 0.39, 1500).poisson(4000.0, 3000).find();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!((found[0].hz / 2448.94 - 1.0).abs() < 1e-4, "{found:#?}");
}

#[test]
fn a_sleeping_task_is_periodic_but_not_locked() {
    let found = Mix::new(6, 60.0).sleeper(10.0, 0.05, 200_000).find();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(!found[0].locked && (found[0].hz - 10.0).abs() < 0.2, "{found:#?}");
    assert!(found[0].to_string().contains("not phase-locked"));
}

#[test]
fn a_rare_timer_is_found_among_few_others() {
    let found = Mix::new(7, 20.0).train(1.0, 0.3, 1e-5, 1.0, 50_000).poisson(3.0, 3000).find();
    assert_eq!(rates(&found), [1.0], "{found:#?}");
}

#[test]
fn few_or_odd_detours_are_no_trouble() {
    assert!(find(&[], &[]).is_empty());
    assert!(find(&[5], &[1]).is_empty());
    assert!(find(&[7; 100], &[1; 100]).is_empty(), "all at one instant");
    assert!(find(&[i64::MIN, -1, 0, 1, i64::MAX], &[u64::MAX; 5]).is_empty());
    let _ = find(&(0..100).map(|i| i64::MIN + (i << 56)).collect::<Vec<_>>(), &[u64::MAX; 100]);
}

#[test]
fn a_million_detours_are_searched() {
    let found = Mix::new(8, 500.0)
        .train(1000.0, 0.2, 0.002, 1.0, 1400)
        .train(250.0, 0.6, 0.002, 1.0, 9000)
        .poisson(800.0, 3000)
        .find();
    assert_eq!(rates(&found), [250.0, 1000.0], "{found:#?}");
}

#[test]
fn a_trace_is_searched_by_cpu_source_and_length() {
    let tick = Mix::new(1, 10.0).train(1000.0, 0.0, 0.002, 1.0, 1400);
    // too rare to stand out among all unexplained detours, plain among those as long
    let rare = Mix::new(2, 10.0).train(2.0, 0.3, 0.01, 1.0, 400_000);
    let noise = Mix::new(3, 10.0).poisson(900.0, 500);
    let sources = vec![Source::Irq("local_timer".into()), Source::Unexplained];
    let rows = |mix: Mix, cpu, source| {
        mix.detours.into_iter().map(move |(t, duration_ns)| Detour {
            node: 0,
            cpu,
            start_ns: t + (1 << 60),
            duration_ns,
            source,
        })
    };
    let all: Vec<Detour> = rows(tick, 0, 0).chain(rows(rare, 1, 1)).chain(rows(noise, 1, 1)).collect();
    let trace = Trace::from_parts(meta(2, 10.0), sources, all).expect("sources are there");
    let mut text: Vec<String> = of_trace(&trace).iter().map(Finding::to_string).collect();
    text.sort();
    assert_eq!(
        text,
        [
            "CPU 0, irq:local_timer: 1000 Hz, 1.5 µs each, phase-locked",
            "CPU 1, unexplained: 2 Hz, 418 µs each, phase-locked"
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_instants_panic(
        first: i64,
        steps in prop::collection::vec(prop_oneof![0i64..3, Just(1_000_000), 0i64..1 << 40, 0i64..1 << 62], 0..200),
    ) {
        let starts: Vec<i64> =
            steps.iter().scan(first, |t, step| { *t = t.saturating_add(*step); Some(*t) }).collect();
        for p in find(&starts, &vec![5; starts.len()]) {
            prop_assert!(p.period_ns.is_finite() && p.hz > 0.0 && p.count <= starts.len());
            prop_assert!((0.0..=1.0).contains(&p.occupancy) && (0.0..=1.0 + 1e-9).contains(&p.strength));
        }
    }
}
