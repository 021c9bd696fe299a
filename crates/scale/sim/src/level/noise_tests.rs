// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties under noise that users rely on, and limits that are known in closed form.

use colony_time::{DutyCycle, Windows};
use proptest::prelude::*;

use super::job::Job;
use super::plan::Plan;
use super::run::{Limits, run};
use super::tests::{all_collectives, quiet, with_hardware};
use crate::Layout;
use crate::cpus::Cpus;
use crate::network::Topology;
use crate::node::Node;
use crate::program::{Algorithm, Operation, Program, Step};
use crate::rng::Key;
use crate::scheduler::{ClockError, Coordinated, Fair, Preempt};
use crate::simulate::{Outcome, Run, Simulation, run_until, simulate, simulate_with_runs};
use crate::source::{Arrivals, Class, Dist, Model, Phase, Source};

/// All kinds of steps under noise.
fn noisy(nodes: u32, repetitions: u32) -> Simulation {
    let mut body = all_collectives();
    body.extend([
        Step::Compute { ns: 20_000, imbalance: 0.2 },
        Step::Halo { bytes: 500, dims: 3 },
        Step::RingTrip { bytes: 8 },
        Step::Transpose { bytes: 300, dims: 2, along: 1 },
        Step::Repeat { times: 3, body: vec![Step::compute(1000), Step::collective(Operation::Barrier, 0)] },
    ]);
    let sources = vec![
        Source::new("daemon", Model::poisson(2e6, Dist::Exponential { mean_ns: 30_000.0 })),
        Source::new("tick", Model::periodic(1_000_000, 3000)),
    ];
    Simulation {
        node: Node::new(sources, Preempt),
        repetitions,
        ..quiet(Program::new("all", 2, body), nodes)
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let on = |threads, s: &Simulation| -> Outcome {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
        pool.install(|| simulate(s)).expect("sound")
    };
    let several = noisy(61, 4);
    assert_eq!(on(1, &several), on(3, &several));
    let program = Program::new(
        "large",
        2,
        vec![Step::Compute { ns: 1000, imbalance: 0.1 }, Step::collective(Operation::Barrier, 0)],
    );
    let large = Simulation { program, ..noisy(150_000, 1) };
    assert_eq!(on(1, &large), on(3, &large));
}

fn with(node: Node, s: Simulation) -> Simulation {
    Simulation { node, ..s }
}

fn run_of(s: &Simulation, skip: bool) -> Run {
    run_at_most(s, skip, u64::MAX)
}

fn run_at_most(s: &Simulation, skip: bool, most: u64) -> Run {
    let plan = Plan::new(&s.program, &s.machine, s.nodes).expect("sound");
    run_plan(s, &plan, Limits { iterations: plan.iterations, most, span_ns: u64::MAX, skip })
}

fn run_plan(s: &Simulation, plan: &Plan, limits: Limits) -> Run {
    let (layout, network) =
        (s.machine.layout(s.nodes).expect("sound"), s.machine.network(s.nodes).expect("sound"));
    let mut job = Job::new(plan, &network, &s.node, layout, (Key::new(s.seed), 0), false);
    run(&mut job, limits, 0, "test").expect("sound")
}

/// Steps that are cheap enough for many iterations.
fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..50_000).prop_map(Step::compute),
        Just(Step::collective(Operation::Barrier, 8)),
        Just(Step::by(Operation::Barrier, Algorithm::Dissemination, 8)),
        Just(Step::by(Operation::Allreduce, Algorithm::Binomial, 5000)),
        Just(Step::by(Operation::Bcast, Algorithm::Binomial, 100_000)),
        Just(Step::by(Operation::Alltoall, Algorithm::Linear, 3000)),
        Just(Step::Halo { bytes: 70_000, dims: 2 }),
        Just(Step::RingTrip { bytes: 64 }),
        Just(Step::Transpose { bytes: 2000, dims: 2, along: 0 }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn skipping_changes_nothing(
        body in prop::collection::vec(any_step(), 1..4),
        nodes in 1u32..24,
        seed in 0u64..100,
        every_ns in prop_oneof![Just(3_000_000u64), Just(40_000_000)],
        scheduler in 0..3,
        imbalance in prop_oneof![Just(0.0), Just(0.1)],
    ) {
        let source = Source::new("daemon", Model::poisson(every_ns as f64, Dist::Exponential { mean_ns: 50_000.0 }));
        let tick = Source::new("tick", Model::periodic(10_000_000, 2000)).class(Class::Local);
        let sources = vec![source, tick];
        let windows = Windows::new(4_000_000, DutyCycle::Ppm(800_000), 0).expect("both windows have time");
        let clock = ClockError { offset_sigma_ns: 5000.0, ..ClockError::default() };
        let node = match scheduler {
            0 => Node::new(sources, Fair { noise_slice_ns: 10_000, job_slice_ns: 10_000 }),
            1 => Node::new(sources, Preempt),
            _ => Node::new(sources, Coordinated { clock, ..Coordinated::exact(windows) }),
        };
        let mut body = body;
        body.push(Step::Compute { ns: 100, imbalance });
        let s = Simulation { machine: with_hardware(), seed, ..with(node, quiet(Program::new("any", 300, body), nodes)) };
        prop_assert_eq!(run_of(&s, true), run_of(&s, false));
    }

    #[test]
    fn fused_rounds_give_the_times_of_separate_rounds(
        step in prop::sample::select(all_collectives()),
        nodes in prop_oneof![1u32..40, 120u32..140, 250u32..400, Just(512)],
        torus in any::<bool>(),
        seed in 0u64..100,
    ) {
        let source = Source::new("daemon", Model::poisson(1e6, Dist::Exponential { mean_ns: 50_000.0 }));
        let body = vec![step, Step::Compute { ns: 5000, imbalance: 0.3 }];
        let mut s = Simulation {
            seed, ..with(Node::new(vec![source], Preempt), quiet(Program::new("any", 2, body), nodes))
        };
        if torus {
            s.machine.topology = Topology::Torus { dims: [0; 3], hop_ns: 70 };
        }
        let mut plan = Plan::new(&s.program, &s.machine, s.nodes).expect("sound");
        let of = |plan: &Plan| run_plan(&s, plan, Limits { iterations: 2, most: 2, span_ns: u64::MAX, skip: false });
        let as_planned = of(&plan);
        plan.interfaces = true;
        prop_assert_eq!(as_planned, of(&plan));
    }

    #[test]
    fn one_node_loses_the_time_that_its_cpu_loses(work_ns in 1u64..3_000_000, iterations in 1u64..50, seed in 0u64..1000) {
        let node = Node::new(vec![Source::new("daemon", Model::leibniz(100_000, 700_000))], Preempt);
        let program = Program::bsp(work_ns, iterations);
        let s = Simulation { seed, ..with(node.clone(), quiet(program, 1)) };
        let layout = Layout::one_a_node(1).expect("one");
        let mut cpu = Cpus::new(&node, layout, 0..1, Key::new(seed), 0);
        let alone = (0..iterations).fold(0, |t, _| cpu.done(0, t, work_ns));
        prop_assert_eq!(run_of(&s, true).total_ns, alone);
    }

    #[test]
    fn aligned_noise_costs_many_nodes_as_much_as_one(
        work_ns in 1u64..3_000_000, nodes in 2u32..40, seed in 0u64..1000,
    ) {
        let source = Source::new("daemon", Model::poisson(1e6, Dist::Exponential { mean_ns: 2e5 }))
            .phase(Phase::Aligned);
        let on = |nodes| {
            // a barrier whose time is all in the CPU: of one node and of many the same
            let mut machine = with_hardware();
            machine.hardware_barrier.as_mut().expect("there").time = crate::BaseTime::Log2 { fixed_ns: 300.0, level_ns: 0.0 };
            let node = Node::new(vec![source.clone()], Preempt);
            run_of(&Simulation { machine, seed, ..with(node, quiet(Program::bsp(work_ns, 20), nodes)) }, true)
        };
        prop_assert_eq!(on(1), on(nodes));
    }

    #[test]
    fn without_noise_every_iteration_is_quiet(body in prop::collection::vec(any_step(), 1..3), nodes in 1u32..20) {
        let o = simulate(&quiet(Program::new("any", 200, body), nodes)).expect("sound");
        prop_assert_eq!(o.slowdown, 1.0);
        prop_assert!((o.mean_ns * 200.0 - o.totals_ns[0] as f64).abs() < 1e-3);
    }
}

#[test]
fn the_longest_of_many_exponential_detours_grows_with_the_harmonic_numbers() {
    // a detour of mean 1 ms early in each second: one in each iteration of 1 s
    let mean_ns = 1e6;
    let source = || {
        Source::new(
            "daemon",
            Model {
                arrivals: Arrivals::Every(Dist::Fixed(1_000_000_000)),
                length: Dist::Exponential { mean_ns },
            },
        )
        .phase(Phase::Together { spread_ns: 0 })
    };
    for nodes in [1u32, 16, 256, 4096] {
        let node = Node::new(vec![source()], Preempt);
        let mut machine = with_hardware();
        machine.hardware_barrier.as_mut().expect("there").cpu_ns = 0;
        let program = Program::bsp(400_000_000, 1);
        let s =
            Simulation { machine, repetitions: 400, begin_ns: Some(0), ..with(node, quiet(program, nodes)) };
        let o = simulate(&s).expect("sound");
        let harmonic: f64 = (1..=nodes).map(|k| 1.0 / f64::from(k)).sum();
        let found = (o.mean_ns - o.quiet_ns) / mean_ns;
        // the deviation of the maximum is below π/√6 means; of the mean of 400, below 0.065
        assert!((found - harmonic).abs() < 4.0 * 0.065, "{nodes}: {found} {harmonic}");
        let half = o.ci95_ns.expect("400 repetitions") / mean_ns;
        assert!((0.05..0.16).contains(&half), "{half}");
    }
}

#[test]
fn iterations_between_detours_are_not_gone_through_one_by_one() {
    for (operation, hardware) in
        [(Operation::Barrier, false), (Operation::Allreduce, false), (Operation::Allreduce, true)]
    {
        let program = Program::collective(operation, 8, 100_000);
        let mut still = quiet(program, 32);
        if hardware {
            still.machine = with_hardware();
        }
        assert_eq!(run_at_most(&still, true, 8), run_of(&still, false));
        // a detour each second on each of 32 nodes
        let tick = Source::new("tick", Model::periodic(1_000_000_000, 10_000));
        let noisy = with(Node::new(vec![tick], Preempt), still);
        let run = run_of(&noisy, false);
        let detours = 32 * (run.total_ns / 1_000_000_000 + 1);
        assert!(run_at_most(&noisy, true, detours * 30) == run, "{operation:?} {hardware}");
    }
}

#[test]
fn noise_hurts_more_on_more_nodes_and_not_at_all_in_step() {
    let slowdown = |nodes, phase| {
        let source = Source::new("daemon", Model::periodic(10_000_000, 500_000)).phase(phase);
        let s = Simulation {
            machine: with_hardware(),
            ..with(Node::new(vec![source], Preempt), quiet(Program::bsp(1_000_000, 300), nodes))
        };
        simulate(&s).expect("sound").slowdown
    };
    let random = [1, 8, 64, 512].map(|n| slowdown(n, Phase::Random));
    assert!(random.is_sorted() && random[3] > 1.4, "{random:?}");
    assert!(slowdown(512, Phase::Aligned) < 1.06);
}

/// Long stretches without noise are skipped within a part, and noise lies across the ends of parts.
#[test]
fn a_run_in_parts_is_the_run_in_one_up_to_the_part_that_is_enough() {
    let program = Program::collective(Operation::Allreduce, 8, 5_000);
    let rare = vec![Source::new("daemon", Model::poisson(3e6, Dist::Exponential { mean_ns: 30_000.0 }))];
    for simulation in [Simulation { node: Node::new(rare, Preempt), ..quiet(program, 16) }, noisy(8, 1)] {
        let whole = simulate_with_runs(&simulation).expect("sound").1.remove(0);
        for part in [1, 7, 499, 10_000] {
            let part = std::num::NonZeroU64::new(part).expect("not 0");
            assert_eq!(run_until(&simulation, part, |_| false).expect("sound"), whole);
            let most = 3 * part.get();
            let begun = run_until(&simulation, part, |run| run.count() >= most).expect("sound");
            assert_eq!(begun.count(), most.min(whole.count()));
            let total: u64 = begun.iterations.iter().map(|(ns, count)| ns * count).sum();
            assert_eq!(total, begun.total_ns);
        }
    }
}
