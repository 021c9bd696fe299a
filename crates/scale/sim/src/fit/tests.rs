// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::layout::Core;
use crate::noise::Detour;
use crate::rng::Key;
use crate::source::{Done, Source};
use crate::{CpuNoise, SimError};

/// `n` draws.
fn draws(dist: &Dist, n: u64) -> Vec<u64> {
    (0..n).map(|i| dist.draw(Key::new(11).part(i), 0)).collect()
}

/// The noise of a model alone on `cpus` CPUs, `n` bursts each.
fn observed(model: &Model, cpus: u32, n: usize) -> Result<NodeNoise, SimError> {
    let source = Source::new("m", model.clone());
    let mut all = Vec::new();
    for core in 0..cpus {
        let stream = source.stream(source.keys(Key::new(3), 0), Core { node: 0, core }, cpus).expect("here");
        let (mut detours, mut free_ns) = (Vec::new(), 0);
        let mut burst = source.first(&stream, 0).expect("one");
        for _ in 0..n {
            let start_ns = burst.arrival_ns.max(free_ns);
            detours.push(Detour { start_ns, duration_ns: burst.length_ns });
            free_ns = start_ns + burst.length_ns;
            let last = Done { index: burst.index, arrival_ns: burst.arrival_ns, done_ns: free_ns };
            burst = source.next(&stream, last).expect("more");
        }
        all.push(detours);
    }
    let span_ns = all.iter().flatten().map(|d| d.start_ns + d.duration_ns).max().expect("some") + 1;
    NodeNoise::new(all.into_iter().map(|d| CpuNoise::new(span_ns, d)).collect::<Result<_, _>>()?)
}

fn near(found: f64, is: f64, percent: f64) -> bool {
    (found / is - 1.0).abs() < percent / 100.0
}

#[test]
fn draws_of_each_family_are_fitted_back_with_their_parameters() {
    let families = [
        (Family::Fixed, Dist::Fixed(1500)),
        (Family::Uniform, Dist::Uniform { from_ns: 2000, to_ns: 20_000 }),
        (Family::Uniform, Dist::Uniform { from_ns: 0, to_ns: 20_000 }),
        (Family::Exponential, Dist::Exponential { mean_ns: 50_000.0 }),
        (Family::LogNormal, Dist::LogNormal { median_ns: 3000.0, sigma: 0.7 }),
        (Family::LogNormal, Dist::LogNormal { median_ns: 1e6, sigma: 0.05 }),
        (Family::Pareto, Dist::Pareto { least_ns: 1000.0, shape: 1.4, most_ns: 1e7 }),
        (Family::Pareto, Dist::Pareto { least_ns: 1000.0, shape: 0.8, most_ns: 1e5 }),
    ];
    for (family, dist) in families {
        let fit = fit_dist(&draws(&dist, 20_000)).expect("enough");
        assert_eq!(fit.best().map(|c| c.family), Some(family), "{fit:?}");
        assert_eq!(fit.verdict, Verdict::Good, "{fit:?}");
        assert!(near(fit.dist.mean_ns(), dist.mean_ns(), 5.0), "{dist:?}: {:?}", fit.dist);
        match (&fit.dist, &dist) {
            (Dist::LogNormal { median_ns: a, sigma: s }, Dist::LogNormal { median_ns: b, sigma: t }) => {
                assert!(near(*a, *b, 3.0) && near(*s, *t, 3.0), "{:?}", fit.dist);
            }
            (Dist::Pareto { shape: a, .. }, Dist::Pareto { shape: b, .. }) => assert!(near(*a, *b, 3.0)),
            (Dist::Uniform { from_ns: a, to_ns: b }, Dist::Uniform { from_ns: c, to_ns: d }) => {
                assert!(a.abs_diff(*c) < 20 && b.abs_diff(*d) < 20);
            }
            _ => {}
        }
        if let Some(p) = fit.best().and_then(|c| c.goodness.p_value) {
            assert!(p > 0.01, "a right model is not refused: {fit:?}");
        }
    }
}

#[test]
fn a_poor_fit_is_rated_poor_and_keeps_the_times_quantiles() {
    // two kinds of detours: none of the families
    let mut times = draws(&Dist::Uniform { from_ns: 1000, to_ns: 1100 }, 5000);
    times.extend(draws(&Dist::Uniform { from_ns: 90_000, to_ns: 95_000 }, 5000));
    let fit = fit_dist(&times).expect("enough");
    assert_eq!(fit.verdict, Verdict::Poor);
    assert!(matches!(&fit.dist, Dist::Quantiles(q) if q.len() == 1025));
    let best = fit.best().expect("one").goodness;
    assert!(best.ks_distance > 0.1 && best.p_value < Some(1e-6), "{best:?}");
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    assert!(near(fit.dist.mean_ns(), mean, 1.0), "{} {mean}", fit.dist.mean_ns());
}

#[test]
fn a_fit_finds_the_model_that_made_the_noise() {
    let short = Dist::LogNormal { median_ns: 2000.0, sigma: 0.5 };
    let renewal = Dist::LogNormal { median_ns: 1e6, sigma: 1.0 };
    let cases = [
        (Model::periodic(1_000_000, 16_000), Family::Fixed, Family::Fixed),
        (Model::poisson(1e6, short.clone()), Family::Exponential, Family::LogNormal),
        (Model { arrivals: Arrivals::Every(renewal), length: short }, Family::LogNormal, Family::LogNormal),
        (Model::leibniz(10_000_000, 500_000_000), Family::Fixed, Family::Uniform),
        (Model::leibniz(100_000, 100_000), Family::Fixed, Family::Uniform),
        (
            Model {
                arrivals: Arrivals::AfterSleep(Dist::LogNormal { median_ns: 2e5, sigma: 0.3 }),
                length: Dist::Exponential { mean_ns: 3e5 },
            },
            Family::LogNormal,
            Family::Exponential,
        ),
    ];
    for (model, gaps, lengths) in cases {
        let fit = fit(&observed(&model, 4, 5000).expect("sound")).expect("enough");
        let asleep = |m: &Model| matches!(m.arrivals, Arrivals::AfterSleep(_));
        assert_eq!(asleep(&fit.model), asleep(&model), "{model:?}: {fit:?}");
        assert_eq!(fit.gaps.best().map(|c| c.family), Some(gaps), "{model:?}");
        assert_eq!(fit.lengths.best().map(|c| c.family), Some(lengths), "{model:?}");
        assert_eq!(fit.verdict(), Verdict::Good, "{model:?}: {fit:?}");
        assert!(near(fit.model_load, model.load(), 5.0), "{model:?}: {}", fit.model_load);
        assert!(near(fit.measured_load, model.load(), 5.0), "{model:?}: {}", fit.measured_load);
    }
}

#[test]
fn missed_ticks_leave_a_timer_periodic_and_its_load() {
    let ticks = (0..10_000u64).filter(|i| i % 40 != 7);
    let detours = ticks.map(|i| Detour { start_ns: i * 1_000_000, duration_ns: 2000 });
    let noise = NodeNoise::new(vec![CpuNoise::new(10_000_000_000, detours).expect("valid")]).expect("one");
    let fit = fit(&noise).expect("enough");
    assert_eq!(fit.gaps.best().map(|c| c.family), Some(Family::Fixed));
    assert!(near(fit.model_load, fit.measured_load, 0.1));
}

#[test]
fn too_few_detours_are_an_error() {
    let noise = NodeNoise::new(vec![CpuNoise::periodic(1000, 10).expect("valid")]).expect("one");
    let error = fit(&noise).expect_err("one detour");
    assert!(error.to_string().starts_with("1 detours are too few"), "{error}");
    assert_eq!(fit_dist(&[0; 50]), Err(FitError::Zeros(50)));
}

#[test]
fn p_values_are_those_of_the_tables() {
    // critical values of the one-sample test: 5 % and 1 % at n = 100 are 0.134 and 0.161
    assert!((goodness::ks_p_value(0.134, 100) - 0.05).abs() < 0.003);
    assert!((goodness::ks_p_value(0.161, 100) - 0.01).abs() < 0.001);
    assert!(goodness::ks_p_value(0.001, 100) > 0.9999 && goodness::ks_p_value(0.9, 100) < 1e-12);
    // A² of a uniform sample at the middles of n equal parts is small, of one in a corner large
    let middles: Vec<u64> = (0..100).map(|i| 500 + 1000 * i).collect();
    let uniform = |x: f64| x / 100_000.0;
    assert!(goodness::anderson_darling(&middles, uniform) < 0.2);
    let corner: Vec<u64> = (0..100).map(|i| 500 + 10 * i).collect();
    assert!(goodness::anderson_darling(&corner, uniform) > 100.0);
}

proptest! {
    #[test]
    fn whatever_the_times_the_distribution_is_sound_and_in_their_range(
        few in prop::collection::vec(0u64..5, 20..60), wide in prop::collection::vec(0u64..1 << 59, 20..60),
        scale in 0u32..50, offset in 0u64..1 << 40,
    ) {
        for times in [few.clone(), few.iter().map(|t| (t << scale) + offset).collect(), wide] {
            let Ok(fit) = fit_dist(&times) else {
                prop_assert!(times.iter().all(|&t| t == 0));
                continue;
            };
            prop_assert_eq!(fit.dist.check(), Ok(()));
            let (least, most) = (times.iter().min().copied(), times.iter().max().copied());
            if let Dist::Quantiles(q) = &fit.dist {
                prop_assert_eq!((q.first().copied(), q.last().copied()), (least, most));
            }
            for c in &fit.candidates {
                prop_assert!((0.0..=1.0).contains(&c.goodness.ks_distance), "{:?}", c);
                prop_assert!(c.goodness.p_value.is_none_or(|p| (0.0..=1.0).contains(&p)), "{:?}", c);
            }
        }
    }
}

/// A CPU with `count` detours of these lengths in turn, in a second.
fn cpu(count: u64, lengths_ns: &[u64]) -> CpuNoise {
    let every_ns = 1_000_000_000 / count;
    let detour =
        |i: u64| Detour { start_ns: i * every_ns, duration_ns: lengths_ns[i as usize % lengths_ns.len()] };
    CpuNoise::new(1_000_000_000, (0..count).map(detour)).expect("a CPU")
}

#[test]
fn a_few_long_detours_that_are_most_of_the_time_are_no_fixed_length() {
    let mut lengths = vec![10_000; 99];
    lengths.push(900_000);
    let fit = fit(&NodeNoise::new(vec![cpu(1000, &lengths)]).expect("a node")).expect("enough");
    assert_eq!(fit.verdict(), Verdict::Poor, "{:?}", fit.lengths.best());
    assert!(matches!(fit.model.length, Dist::Quantiles(_)), "{:?}", fit.model);
    assert!(near(fit.lengths.dist.mean_met_ns(), 473_000.0, 20.0), "{}", fit.lengths.dist.mean_met_ns());
}

#[test]
fn a_model_of_cpus_that_differ_is_poor() {
    let of = |cpus: Vec<CpuNoise>| fit(&NodeNoise::new(cpus).expect("a node")).expect("enough");
    let alike = of(vec![cpu(250, &[2000]), cpu(250, &[2100]), cpu(200, &[1900])]);
    assert!(!alike.has_unlike_cpus);
    // a tick that stopped on all CPUs but one
    let ticks = of(vec![cpu(1000, &[2000]), cpu(1, &[2000]), cpu(1, &[2000])]);
    assert!(ticks.has_unlike_cpus && ticks.verdict() == Verdict::Poor);
    assert!(of(vec![cpu(250, &[2000]), cpu(250, &[20_000])]).has_unlike_cpus);
}
