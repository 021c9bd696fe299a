//! What users of a projection rely on, and the model against a walk along the timelines of real nodes.

use colony_sim::noise::Detour;
use colony_sim::{
    BaseTime, Coordinated, CpuNoise, MaxDelay, Model, NodeNoise, Program, Scenario, Scheduler, SimError,
};
use colony_time::{DutyCycle, Windows};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn node(cpu: CpuNoise) -> NodeNoise {
    NodeNoise::new(vec![cpu]).expect("one CPU")
}

fn windows(period_ns: u64, duty_ppm: u32) -> Windows {
    Windows::new(period_ns, DutyCycle::Ppm(duty_ppm), 0).expect("both windows have time")
}

fn coordinated(period_ns: u64, duty_ppm: u32) -> Scheduler {
    Scheduler::Coordinated(Coordinated {
        windows: windows(period_ns, duty_ppm),
        residual: None,
        edge_lateness_ns: vec![],
    })
}

fn allreduce(noise: NodeNoise, scheduler: Scheduler, nodes: &[u64]) -> Scenario {
    Scenario {
        program: Program::Collective { base: BaseTime::blue_gene_allreduce(), stages: 2 },
        noise,
        scheduler,
        nodes: nodes.to_vec(),
        ops: 4000,
        seed: 42,
    }
}

fn means(scenario: &Scenario) -> Vec<f64> {
    MaxDelay.project(scenario).expect("a sound scenario").points.iter().map(|p| p.mean_ns).collect()
}

/// Mean operation time of `nodes` timelines walked operation by operation: nothing of the model but its
/// first sentence.
fn walked(cpu: &CpuNoise, stage_ns: f64, nodes: usize, ops: usize, seed: u64) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let span = cpu.span_ns() as f64;
    let offsets: Vec<f64> = (0..nodes).map(|_| rng.random::<f64>() * span).collect();
    let mut now = 0.0;
    for _ in 0..ops {
        now = offsets.iter().map(|o| done(cpu, now + o, stage_ns) - o).fold(0.0, f64::max);
    }
    now / ops as f64
}

/// When work of `left` begun at `at` is done on a CPU with this noise.
fn done(cpu: &CpuNoise, at: f64, mut left: f64) -> f64 {
    let span = cpu.span_ns() as f64;
    let mut lap = (at / span).floor() * span;
    let mut t = at - lap;
    let mut i = cpu.detours().partition_point(|d| ((d.start_ns + d.duration_ns) as f64) <= t);
    loop {
        let Some(d) = cpu.detours().get(i) else {
            if t + left <= span {
                return lap + t + left;
            }
            left -= span - t;
            (lap, t, i) = (lap + span, 0.0, 0);
            continue;
        };
        let free = (d.start_ns as f64 - t).max(0.0);
        if left <= free {
            return lap + t + left;
        }
        left -= free;
        t = (d.start_ns + d.duration_ns) as f64;
        i += 1;
    }
}

#[test]
fn without_noise_an_operation_takes_its_base_time() {
    for scheduler in [Scheduler::Unmodified, coordinated(100_000_000, 950_000)] {
        let p =
            MaxDelay.project(&allreduce(NodeNoise::quiet(), scheduler, &[1, 512, 16_384])).expect("sound");
        for point in p.points {
            assert!((point.mean_ns - point.base_ns).abs() < 1e-6 && (point.slowdown - 1.0).abs() < 1e-9);
            assert!((point.max_ns - point.base_ns).abs() < 1e-6);
        }
    }
}

#[test]
fn a_single_node_loses_its_stolen_share() {
    let cpu = CpuNoise::leibniz(5_000_000, 50_000_000, 4_000_000, 60_000_000_000, 5).expect("valid");
    let share = cpu.stolen_ns() as f64 / cpu.span_ns() as f64;
    let mut s = allreduce(node(cpu), Scheduler::Unmodified, &[1]);
    s.ops = 400_000;
    let slowdown = MaxDelay.project(&s).expect("sound").points[0].slowdown;
    assert!((slowdown * (1.0 - share) - 1.0).abs() < 0.01, "{slowdown} at a share of {share}");
}

#[test]
fn the_model_agrees_with_a_walk_along_the_timelines() {
    let irregular = CpuNoise::leibniz(300_000, 8_000_000, 3_000_000, 3_000_000_000, 9).expect("valid");
    let ticks = CpuNoise::new(
        1_000_000_000,
        (0..1000u64).map(|k| Detour {
            start_ns: k * 1_000_000,
            duration_ns: 3_000 + 40_000 * u64::from(k % 50 == 0),
        }),
    )
    .expect("valid");
    for (name, cpu, stage_ns) in
        [("irregular", &irregular, 10_000.0), ("ticks", &ticks, 10_000.0), ("ticks, work", &ticks, 1e6)]
    {
        for nodes in [1usize, 2, 8, 64] {
            let mut s = allreduce(node(cpu.clone()), Scheduler::Unmodified, &[nodes as u64]);
            s.ops = 100_000;
            s.program =
                Program::Collective { base: BaseTime::Log2 { fixed_ns: stage_ns, level_ns: 0.0 }, stages: 1 };
            let model = means(&s)[0];
            let ops = 400_000 / nodes;
            let walk = (0..4).map(|k| walked(cpu, stage_ns, nodes, ops, k)).sum::<f64>() / 4.0;
            eprintln!("{name}, {nodes} nodes: model {model:.0} ns, walk {walk:.0} ns");
            let (m, w) = (model - stage_ns, walk - stage_ns);
            assert!(
                (m - w).abs() < 0.25 * w + 0.01 * stage_ns,
                "{name}, {nodes} nodes: {model} against {walk}"
            );
        }
    }
}

#[test]
fn coordination_is_never_worse_for_the_same_noise() {
    for (mean_ns, share) in [(10_000_000, 0.02), (133_000_000, 0.21)] {
        let cpu = CpuNoise::leibniz(mean_ns, 500_000_000, 4_000_000, 100_000_000_000, 1).expect("valid");
        let nodes = [2, 1024, 16_384, 1 << 20];
        let without = means(&allreduce(node(cpu.clone()), Scheduler::Unmodified, &nodes));
        let with = means(&allreduce(node(cpu), coordinated(1_000_000_000, 750_000), &nodes));
        eprintln!("{share}: {without:.0?} with coordination {with:.0?}");
        for (a, b) in without.iter().zip(&with) {
            assert!(b <= a, "{share}: {b} > {a}");
        }
        assert!(without[2] > 50.0 * with[2], "the point of it all, at 16,384 nodes");
    }
}

#[test]
fn late_edges_and_residual_noise_cost() {
    let noise = node(CpuNoise::periodic(10_000_000, 100_000).expect("valid"));
    let plain = coordinated(100_000_000, 900_000);
    let Scheduler::Coordinated(mut c) = plain.clone() else { unreachable!() };
    c.residual = Some(node(CpuNoise::periodic(1_000_000, 2_000).expect("valid")));
    c.edge_lateness_ns = vec![5_000, 20_000, 400_000];
    let nodes = [1024];
    let [clean] = means(&allreduce(noise.clone(), plain, &nodes))[..] else { panic!("one point") };
    let [real] = means(&allreduce(noise, Scheduler::Coordinated(c), &nodes))[..] else { panic!("one point") };
    assert!(real > clean, "{real} {clean}");
}

#[test]
fn noise_that_does_not_fit_its_windows_is_warned_of() {
    let noise = node(CpuNoise::periodic(10_000_000, 2_000_000).expect("valid"));
    let p = MaxDelay.project(&allreduce(noise, coordinated(100_000_000, 900_000), &[16])).expect("sound");
    assert!(p.warnings.iter().any(|w| w.contains("does not fit")), "{:?}", p.warnings);
}

#[test]
fn a_million_nodes_cost_as_much_to_project_as_a_thousand() {
    let cpu = CpuNoise::leibniz(10_000_000, 500_000_000, 4_000_000, 20_000_000_000, 1).expect("valid");
    let p =
        MaxDelay.project(&allreduce(node(cpu), Scheduler::Unmodified, &[1 << 20, u64::MAX])).expect("sound");
    assert!(p.points.iter().all(|p| p.mean_ns.is_finite() && p.p50_ns <= p.p99_ns && p.p99_ns <= p.max_ns));
}

#[test]
fn the_same_seed_gives_the_same_projection() {
    let cpu = CpuNoise::leibniz(1_000_000, 50_000_000, 4_000_000, 2_000_000_000, 1).expect("valid");
    let s = allreduce(node(cpu), coordinated(100_000_000, 900_000), &[64]);
    assert_eq!(MaxDelay.project(&s), MaxDelay.project(&s));
}

#[test]
fn impossible_scenarios_are_refused() {
    let good = allreduce(NodeNoise::quiet(), Scheduler::Unmodified, &[1]);
    let refused = |s: Scenario| MaxDelay.project(&s).expect_err("refused");
    assert_eq!(refused(Scenario { nodes: vec![], ..good.clone() }), SimError::Nodes);
    assert_eq!(refused(Scenario { nodes: vec![4, 0], ..good.clone() }), SimError::Nodes);
    assert_eq!(refused(Scenario { ops: 0, ..good.clone() }), SimError::Ops(0));
    let base = BaseTime::Log2 { fixed_ns: f64::NAN, level_ns: 0.0 };
    let nan = Program::Collective { base, stages: 1 };
    assert!(matches!(refused(Scenario { program: nan, ..good.clone() }), SimError::Program { .. }));
    let none = Program::Collective { base: BaseTime::blue_gene_barrier(), stages: 0 };
    assert!(matches!(refused(Scenario { program: none, ..good }), SimError::Program { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_nodes_are_not_faster(
        mean_us in 10u64..20_000, pause_ms in 1u64..500, seed: u64, n in 1u64..10_000, times in 2u64..100,
    ) {
        let cpu = CpuNoise::leibniz(mean_us * 1000, pause_ms * 1_000_000, 4_000_000, 10_000_000_000, seed);
        prop_assume!(cpu.is_ok());
        let mut s = allreduce(node(cpu.expect("assumed")), Scheduler::Unmodified, &[n, n * times]);
        s.seed = seed;
        let m = means(&s);
        // in expectation; a finite draw may scatter by some per cent
        prop_assert!(m[1] >= 0.97 * m[0], "{m:?}");
        prop_assert!(m[0] >= s.program.base_ns(n) - 1e-6);
    }

    #[test]
    fn coordination_pays_for_any_daemon_that_fits(
        mean_us in 10u64..10_000, pause_ms in 100u64..500, seed: u64, n in 2u64..100_000,
    ) {
        let cpu = CpuNoise::leibniz(mean_us * 1000, pause_ms * 1_000_000, 4_000_000, 20_000_000_000, seed);
        let noise = node(cpu.expect("short calculations leave time"));
        let without = means(&allreduce(noise.clone(), Scheduler::Unmodified, &[n]))[0];
        let with = means(&allreduce(noise, coordinated(200_000_000, 800_000), &[n]))[0];
        prop_assert!(with <= 1.05 * without, "{with} > {without}");
    }
}

#[test]
fn noise_in_phase_costs_what_it_costs_one_node() {
    let cpu = CpuNoise::periodic(1_000_000_000, 1_000_000).expect("valid");
    let mut s = allreduce(node(cpu), Scheduler::Aligned, &[1024, 16_384]);
    s.program = Program::Bsp { work_ns: 1_000_000, barrier: BaseTime::blue_gene_barrier() };
    let aligned = means(&s);
    s.scheduler = Scheduler::Unmodified;
    let random = means(&s);
    assert!(aligned.iter().all(|m| (1_001_000.0..1_004_000.0).contains(m)), "{aligned:?}");
    assert!(random[1] > 1.9 * aligned[1], "{random:?}");
}
