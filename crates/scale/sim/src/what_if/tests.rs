// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions whose answers are known.

use super::*;
use crate::noise::Detour;
use crate::rng::Key;
use crate::source::MeasuredSource;
use crate::spec::{ProgramSpec, Windowed};
use crate::stats::tests::seeds;
use crate::{CpuNoise, NodeNoise};

fn periodic(every_ns: u64, length_ns: u64, from_ns: u64) -> NodeNoise {
    let starts = (0..100_000_000 / every_ns).map(|i| from_ns + i * every_ns);
    let detours = starts.map(|start_ns| Detour { start_ns, duration_ns: length_ns });
    NodeNoise::new(vec![CpuNoise::new(100_000_000, detours).expect("some time")]).expect("a CPU")
}

/// Detours at any instant of some seconds.
fn anywhere(seed: u64, count: u64, length_ns: u64) -> NodeNoise {
    let span_ns = 5_000_000_000;
    let start = |i| (Key::new(seed).uniform(i) * span_ns as f64) as u64;
    let detours = (0..count).map(|i| Detour { start_ns: start(i), duration_ns: length_ns });
    NodeNoise::new(vec![CpuNoise::new(span_ns, detours).expect("some time")]).expect("a CPU")
}

/// Noise whose sources have no rhythm in common.
fn irregular() -> WhatIf {
    let sources = vec![
        MeasuredSource::named("irq:local_timer", anywhere(1, 5_000, 10_000)),
        MeasuredSource::named("thread:kworker", anywhere(2, 10, 1_000_000)),
        MeasuredSource::named("hypervisor", anywhere(3, 2, 4_000_000)),
    ];
    WhatIf { measured: Measured { sources }, ..question() }
}

fn cost(source: &SourceCost, n: usize) -> Time {
    source.cost[n].expect("seen")
}

fn question() -> WhatIf {
    let sources = vec![
        MeasuredSource::named("irq:local_timer", periodic(4_000_000, 2_000, 100_000)),
        MeasuredSource::named("thread:kworker", periodic(50_000_000, 300_000, 1_000_000)),
    ];
    WhatIf {
        scenario: Scenario {
            nodes: vec![1, 256],
            repetitions: 3,
            program: ProgramSpec { work_ns: Some(1_000_000), ..ProgramSpec::named("allreduce") },
            ..Scenario::default()
        },
        measured: Measured { sources },
        windows: SchedulerSpec::Coordinated(Windowed {
            period_ns: 100_000_000,
            duty_cycle: colony_time::DutyCycle::Ppm(800_000),
            ..Windowed::default()
        }),
        iterations_given: false,
    }
}

#[test]
fn the_rare_long_detour_costs_most_at_scale_and_remedies_give_it_back() {
    let (steps, mut reported) = (std::sync::atomic::AtomicU64::new(0), Vec::new());
    let question = question();
    let count = |n| {
        steps.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
    };
    let answer = question.answer(count, |a| reported.push(a.scales.len())).expect("makes sense");
    assert_eq!(steps.into_inner(), question.steps());
    assert_eq!(reported[..2], [1, 2], "the smaller first");
    let thread = &answer.sources[0];
    assert_eq!(thread.name, "thread:kworker");
    assert!(cost(thread, 1).ns > 5.0 * cost(thread, 0).ns.max(1.0), "{answer:#?}");
    assert!(cost(thread, 1).ns > 10.0 * answer.sources[1].cost[1].map_or(0.0, |t| t.ns.abs()), "{answer:#?}");
    let [windows, spare] = &answer.remedies[..] else { panic!("{answer:#?}") };
    for remedy in [windows, spare] {
        assert!(remedy.gives_back[1].ns > 0.5 * cost(thread, 1).ns, "{answer:#?}");
    }
    assert!(answer.scales.iter().all(|s| s.noisy.ns > s.quiet_ns));
}

#[test]
fn the_smallest_of_many_sources_are_looked_at_together() {
    let mut question = question();
    question.measured.sources = (0..40u64)
        .map(|i| (format!("thread:{i}"), periodic(50_000_000, 1_000 * (i + 1), 1_000_000 * (i + 1))))
        .map(|(name, noise)| MeasuredSource::named(name, noise))
        .collect();
    let groups = question.groups();
    assert_eq!(
        (groups.len(), groups[0].name.as_str(), groups[SHOWN].name.as_str()),
        (8, "thread:39", "33 others")
    );
    assert_eq!(groups.iter().map(|g| g.sources.len()).sum::<usize>(), 40);
}

#[test]
fn the_cost_of_a_source_is_surer_than_the_times_it_is_the_difference_of() {
    let mut question = irregular();
    question.scenario.nodes = vec![1, 64];
    let answer = question.answer(|_| (), |_| ()).expect("makes sense");
    let tick = answer.sources.iter().find(|s| s.name == "irq:local_timer").expect("there");
    let ci = |t: &Time| t.simulation_ci95_ns.expect("three runs");
    assert!(ci(&cost(tick, 1)) < 0.5 * ci(&answer.scales[1].noisy), "{answer:#?}");
    assert_eq!(answer, question.answer(|_| (), |_| ()).expect("again"), "the same words, the same figures");
}

#[test]
fn the_time_of_short_runs_is_that_of_one_long_run() {
    let mut question = question();
    (question.scenario.nodes, question.scenario.repetitions) = (vec![64], 8);
    let answer = question.answer(|_| (), |_| ()).expect("makes sense");
    let (cases, _) = question.cases().expect("makes sense");
    let mut sampled = question.sampled(64, 0).expect("makes sense");
    sampled.simulation.program.iterations = 5000;
    let long = |node: &Node| {
        let simulation = Simulation { node: node.clone(), ..sampled.simulation.clone() };
        simulate(&Simulation { repetitions: 1, ..simulation }).expect("runs").mean_ns
    };
    let everything = long(&cases[0].node);
    assert!((answer.scales[0].noisy.ns / everything - 1.0).abs() < 0.03, "{everything} {answer:#?}");
    let windows =
        cases.iter().zip(1..).find(|(c, _)| matches!(&c.kind, Kind::Under(SchedulerSpec::Coordinated(_))));
    let windowed = long(&windows.expect("possible").0.node);
    assert!((answer.remedies[0].time[0].ns / windowed - 1.0).abs() < 0.03, "{windowed} {answer:#?}");
}

#[test]
fn nodes_of_fewer_ranks_than_cpus_have_the_noise_of_all_cpus_between_them() {
    let mut question = question();
    let noisy = periodic(50_000_000, 300_000, 1_000_000).cpus()[0].clone();
    let quiet = CpuNoise::quiet(noisy.span_ns()).expect("a span");
    let cpus = vec![quiet.clone(), quiet.clone(), quiet, noisy];
    let noise = NodeNoise::new(cpus).expect("CPUs");
    question.measured.sources = vec![MeasuredSource::named("thread:kworker", noise)];
    question.scenario.nodes = vec![256];
    let answer = question.answer(|_| (), |_| ()).expect("makes sense");
    assert_eq!((answer.cpus, answer.scales[0].ranks), (4, 256));
    assert!(cost(&answer.sources[0], 0).ns > 10_000.0, "{answer:#?}");
    assert!((answer.spare.expect("room").share - 0.006).abs() < 0.001, "{answer:#?}");
}

/// Time with all noise, and what each source costs, on `nodes` nodes.
fn figures(nodes: u32, seed: u64, iterations: Option<u64>) -> Vec<Option<Time>> {
    let mut question = irregular();
    (question.scenario.nodes, question.scenario.seed, question.scenario.repetitions) =
        (vec![nodes], seed, 32);
    question.iterations_given = iterations.is_some();
    question.scenario.program.iterations = iterations.unwrap_or(1);
    let answer = question.answer(|_| (), |_| ()).expect("makes sense");
    let cost = |source: &MeasuredSource| {
        answer.sources.iter().find(|s| s.name == source.name).and_then(|s| s.cost[0])
    };
    [Some(answer.scales[0].noisy)].into_iter().chain(question.measured.sources.iter().map(cost)).collect()
}

#[test]
fn intervals_cover_the_results_of_long_runs_on_few_nodes_and_on_many() {
    let seeds = seeds(20);
    for (nodes, iterations) in [(64, 20_000), (2048, 1000)] {
        let truth = figures(nodes, 1_000_000, Some(iterations));
        let (mut covered, mut all) = (0, 0);
        for seed in 0..seeds {
            for (found, truth) in figures(nodes, seed, None).into_iter().zip(&truth) {
                let (Some(found), Some(truth)) = (found, truth) else { continue };
                let sure = |t: &Time| t.simulation_ci95_ns.expect("several values");
                all += 1;
                covered += u64::from((found.ns - truth.ns).abs() <= sure(&found).hypot(sure(truth)));
            }
        }
        assert!(all >= 3 * seeds, "{nodes} nodes: only {all} were seen");
        assert!(covered * 10 >= all * 9, "{nodes} nodes: {covered} of {all} intervals cover");
    }
}

#[test]
fn a_source_that_no_run_met_is_not_seen_instead_of_zero() {
    let mut question = question();
    let quiet = CpuNoise::quiet(100_000_000).expect("a span");
    let never = NodeNoise::new(vec![quiet]).expect("a CPU");
    question.measured.sources.push(MeasuredSource::named("thread:never", never));
    let answer = question.answer(|_| (), |_| ()).expect("makes sense");
    let never = answer.sources.iter().find(|s| s.name == "thread:never").expect("there");
    assert_eq!(never.cost, [None, None]);
}

#[test]
fn a_part_of_a_period_around_the_regular_window_stands_for_all_of_it() {
    let mut question = irregular();
    question.scenario.nodes = vec![1024];
    let (cases, _) = question.cases().expect("makes sense");
    let windows = cases.iter().find(|c| matches!(&c.kind, Kind::Under(SchedulerSpec::Coordinated(_))));
    let windows = windows.expect("possible");
    let nodes = (&windows.node, &windows.left);
    let sampled = question.sampled(1024, 100_000_000).expect("makes sense");
    let mut plan = sampled.windowed_plan(100_000_000, 80_000_000).expect("makes sense");
    let mean = |plan: &WindowedPlan| {
        let runs: Vec<f64> = (0..100).map(|n| sampled.windowed_run(plan, nodes, n).expect("runs")).collect();
        let (mean, sure) = crate::stats::mean_ci95(&runs);
        (mean, sure.expect("many runs"))
    };
    assert_eq!(plan.around_ns, None, "few ranks: all of it");
    let whole = mean(&plan);
    plan.around_ns = Some(6_000_000);
    let part = mean(&plan);
    assert!((part.0 - whole.0).abs() <= part.1.hypot(whole.1), "{part:?} {whole:?}");
    assert!(part.1 < 0.05 * part.0, "{part:?}");
}
