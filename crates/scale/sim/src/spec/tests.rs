// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios as users write them, right and wrong.

use std::sync::Arc;

use super::*;
use crate::noise::Detour;
use crate::source::{Class, MeasuredSource};
use crate::{CpuNoise, NodeNoise};

const FULL: &str = r#"
nodes = [64, 128]
seed = 7
repetitions = 2
begin = "2s"
schedulers = ["preempt", { coordinated = { period = "10ms", duty_cycle = "90%" } }]

[machine]
name = "mine"
ranks_per_node = 2
[machine.loggops]
latency_ns = 1000
overhead_ns = 300
gap_ns = 100
gap_per_byte_ps = 80
overhead_per_byte_ps = 0
eager_bytes = 4096

[program]
name = "two phases"
iterations = 10
[[program.step]]
kind = "compute"
ns = 1000
[[program.step]]
kind = "collective"
operation = "allreduce"
bytes = 8

[[noise]]
name = "tick"
periodic = { every = "1ms", length = "2us" }
class = "local"
phase = "aligned"

[[noise]]
model = { arrivals = { every = { exponential = { mean_ns = 1e6 } } }, length = { fixed = 3000 } }
placement = { core = 1 }
"#;

#[test]
fn a_whole_scenario_is_read_and_written_back() {
    let scenario = Scenario::parse(FULL).expect("right");
    let again = Scenario::parse(&scenario.to_toml().expect("TOML")).expect("right");
    assert_eq!(scenario, again);
    let points = scenario.points().expect("points");
    assert_eq!(points.len(), 4);
    let s = points[3].simulation(&Traces::new()).expect("makes sense");
    assert_eq!((s.nodes, s.machine.ranks_per_node, s.begin_ns), (128, 2, Some(2_000_000_000)));
    assert_eq!((s.node.scheduler.name(), s.node.sources.len()), ("coordinated", 2));
    assert_eq!(s.node.sources[0].class, Class::Local);
    assert!(crate::simulate::simulate(&s).expect("runs").mean_ns > 0.0);
    for written in [Scenario::default(), Scenario::parse("").expect("all defaults")] {
        assert_eq!(Scenario::parse(&written.to_toml().expect("TOML")).expect("right"), written);
    }
}

#[test]
fn an_error_in_a_scenario_names_its_line() {
    for (text, line, part) in [
        ("nodes = [1]\nnods = 3", 2, "nods"),
        ("nodes = []", 1, "node counts"),
        ("seed = 1\nnodes = [4, 0]", 2, "node counts"),
        ("nodes = [4294967295]", 1, "more than can be simulated"),
        ("nodes = [-4]", 1, "-4"),
        ("repetitions = 0", 1, "choose 1"),
        ("\n\nschedulers = [\"fair\", \"unfair\"]", 3, "there are: none, preempt"),
        ("schedulers = [{ fair = { slice = \"1ms\" } }]", 1, "slice"),
        ("schedulers = [\n{ coordinated = { period = \"1 parsec\" } }]", 2, "no time"),
        ("schedulers = [{ coordinated = { duty_cycle = \"100%\" } }]", 1, "no regular window"),
        ("schedulers = [{ none = {} }]", 1, "no parameters"),
        ("[program]\nname = \"allredcue\"", 2, "no program `allredcue`"),
        ("[program]\nname = \"barrier\"\niterations = 5\nbytes = 8", 4, "has no such parameter"),
        ("[program]\nname = \"x\"\n[[program.step]]\nkind = \"halo\"\nbytes = 1\ndims = 4", 1, "dimensions"),
        ("[program]\nname = \"bsp\"\nwork = \"-1ms\"", 3, "no time"),
        ("[program]\nname = \"bsp\"\niterations = 0", 1, "no iterations"),
        ("[[noise]]\nname = \"a\"", 2, "noise of what"),
        ("[[noise]]\nperiodic = { every = \"1ms\", length = \"2ms\" }", 2, "200 %"),
        ("[[noise]]\ntrace = \"x\"\nleibniz = { mean = \"1ms\", sleep = \"9ms\" }", 3, "`trace` too"),
        ("[[noise]]\ntrace = \"x\"\nplacement = \"any_core\"", 3, "which CPU"),
        ("[sweep]\n\"program.byts\" = [1]", 2, "byts"),
        ("[sweep]\n\"nothing.here\" = [1]", 2, "no `nothing`"),
        ("[sweep]\nseed = []", 2, "one value"),
        ("[sweep]\nseed = [1]\n\"program.bytes\" = [8]\n\"program.work\" = [\"1 parsec\"]", 4, "no time"),
        ("a = [", 1, ""),
    ] {
        match Scenario::parse(text) {
            Err(SpecError::Line { line: found, fault, .. }) => {
                assert!(fault.contains(part), "{text}: {fault}");
                assert!(found == line || (line == 1 && found <= 3), "{text}: line {found}: {fault}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let missing = Scenario::read(Path::new("/nonexistent/x.toml")).expect_err("missing");
    assert!(!missing.is_wrong_use() && missing.to_string().contains("/nonexistent/x.toml"));
}

#[test]
fn anything_can_be_swept_and_a_value_concerns_only_its_scheduler() {
    let text = r#"
        nodes = [8, 16]
        schedulers = ["none", "coordinated"]
        noise = [{ name = "d", leibniz = { mean = "1ms", sleep = "9ms" } }]
        [sweep]
        "program.bytes" = [8, 64]
        "schedulers.coordinated.period" = ["10ms", "100ms", "1s"]
    "#;
    let points = Scenario::parse(text).expect("right").points().expect("points");
    // none: 2 nodes × 2 sizes; coordinated: 2 × 2 × 3
    assert_eq!(points.len(), 4 + 12);
    let none = points.iter().find(|p| p.scheduler.name() == "none").expect("there");
    assert_eq!(none.set.len(), 1);
    let last = points.last().expect("some");
    let SchedulerSpec::Coordinated(windows) = &last.scheduler else { panic!("{last:?}") };
    assert_eq!((last.nodes, windows.period_ns, last.scenario.program.bytes), (16, 1_000_000_000, Some(64)));

    let by_name =
        text.replace("\"program.bytes\" = [8, 64]", "\"noise.d.leibniz.mean\" = [\"2ms\", \"3ms\"]");
    let points = Scenario::parse(&by_name).expect("right").points().expect("points");
    let mean = |p: &Point| p.scenario.noise[0].leibniz.as_ref().map(|l| l.mean_ns);
    assert_eq!(points.iter().filter(|p| mean(p) == Some(3_000_000)).count(), points.len() / 2);
}

#[test]
fn an_error_in_a_step_names_the_line_of_that_step_or_of_its_key() {
    // lines 4 to 6 are right, the step in question begins in line 7
    let with = |step: &str| {
        let steps = "[[program.step]]\nkind = \"compute\"\nns = 1\n[[program.step]]\n";
        format!("nodes = [8]\n[program]\nname = \"x\"\n{steps}{step}")
    };
    let inner = "kind = \"repeat\"\ntimes = 2\n[[program.step.step]]\nkind = \"ring-trip\"\nbytes = 1\n";
    for (step, line, part) in [
        ("kind = \"halo\"\nbytes = 1\ndims = 4", 7, "program.step.1: the program `x` has a halo in 4"),
        ("kind = \"halo\"\nbytes = 1\ndims = \"3\"", 10, "`program.step.1.dims` is the text \"3\""),
        ("kind = \"halo\"\nbytes = 1\ndims = 3\nsides = 2", 11, "unknown field `sides`"),
        ("kind = \"halo\"\nbytes = 1", 7, "`dims` is missing in `program.step.1`"),
        ("kind = \"hallo\"\nbytes = 1", 8, "`program.step.1.kind` has no `hallo`"),
        ("kind = \"collective\"\noperation = \"barier\"", 9, "`program.step.1.operation` has no `barier`"),
        ("kind = \"collective\"\noperation = \"barrier\"\nranks = 9", 7, "9 ranks, and the machine has 8"),
        (
            "kind = \"collective\"\noperation = \"allreduce\"\nalgorithm = \"pairwise\"",
            7,
            "program.step.1: the program `x` asks for an allreduce by pairwise",
        ),
        (
            &format!("{inner}[[program.step.step]]\nkind = \"compute\"\nns = []"),
            15,
            "`program.step.1.step.1.ns`",
        ),
        (
            &format!("{inner}[[program.step.step]]\nkind = \"compute\""),
            13,
            "missing in `program.step.1.step.1`",
        ),
        (
            &format!("{inner}[[program.step.step]]\nkind = \"halo\"\nbytes = 1\ndims = 0"),
            13,
            "program.step.1.step.1: the program `x` has a halo in 0",
        ),
        (&inner.replace("times = 2", "times = -2"), 9, "`program.step.1.times` is -2"),
    ] {
        match Scenario::parse(&with(step)) {
            Err(SpecError::Line { line: found, fault, .. }) => {
                assert!(fault.contains(part), "{step}: {fault}");
                assert_eq!(found, line, "{step}: {fault}");
            }
            other => panic!("{step}: {other:?}"),
        }
    }
    let algorithm = "[program]\nname = \"allreduce\"\nbytes = 8\nalgorithm = \"linear\"";
    let e = Scenario::parse(algorithm).expect_err("no allreduce is linear").to_string();
    assert!(e.starts_with("line 4: program.algorithm: the program `allreduce` asks for"), "{e}");
}

fn noise(starts: &[u64]) -> NodeNoise {
    let detours = starts.iter().map(|&start_ns| Detour { start_ns, duration_ns: 1_000 });
    NodeNoise::new(vec![CpuNoise::new(1_000_000, detours).expect("some time")]).expect("a CPU")
}

#[test]
fn a_trace_replays_by_class_and_sources_can_be_left_out() {
    let sources = vec![
        MeasuredSource::named("irq:eth0", noise(&[0])),
        MeasuredSource::named("thread:a", noise(&[100_000, 300_000])),
        MeasuredSource::named("thread:b", noise(&[200_000])),
    ];
    let measured = Measured { sources };
    let traces: Traces = [("t.parquet".to_owned(), std::sync::Arc::new(measured.clone()))].into();
    let text = "nodes = [4]\nnoise = [{ trace = \"t.parquet\", leave_out = [\"thread:b\"] }]";
    let scenario = Scenario::parse(text).expect("right");
    assert_eq!(scenario.trace_files().expect("points"), ["t.parquet"]);
    let point = &scenario.points().expect("points")[0];
    let classes =
        |s: &crate::simulate::Simulation| s.node.sources.iter().map(|s| s.class).collect::<Vec<_>>();
    let simulation = point.simulation(&traces).expect("makes sense");
    assert_eq!(classes(&simulation), [Class::Irq, Class::Task]);
    let load: f64 = simulation.node.sources.iter().map(|s| s.noise.load()).sum();
    assert!((load - 0.003).abs() < 1e-9, "{load}");
    assert!(matches!(point.simulation(&Traces::new()), Err(SpecError::Trace(_))));
    let unknown = Scenario::parse(&text.replace("thread:b", "thread:c")).expect("as text");
    let e = unknown.points().expect("points")[0].simulation(&traces).expect_err("unknown").to_string();
    assert!(e.contains("thread:c") && e.contains("irq:eth0, thread:a, thread:b"), "{e}");
    assert_ne!(measured.digest(), measured.without(&["irq:eth0".into()]).digest());
}

#[test]
fn a_stated_class_overrules_the_name_and_the_simulation_follows_it() {
    // windows hold threads back: what is a thread to the measurement waits for a regular window
    let outcome = |class| {
        let mut source = MeasuredSource::named("irq:eth0", noise(&[200_000, 700_000]));
        assert_eq!((source.class, source.overrules_name()), (Class::Irq, false));
        source.class = class;
        let measured = Measured { sources: vec![source] };
        let traces: Traces = [("t".to_owned(), Arc::new(measured.clone()))].into();
        let text = "nodes = [8]\nrepetitions = 3\nschedulers = [\"coordinated\"]\n\
            program = { name = \"barrier\", iterations = 2000 }\nnoise = [{ trace = \"t\" }]";
        let point = Scenario::parse(text).expect("right").points().expect("points").swap_remove(0);
        let simulation = point.simulation(&traces).expect("makes sense");
        let classes: Vec<_> = simulation.node.sources.iter().map(|s| s.class).collect();
        let outcome = crate::simulate::simulate(&simulation).expect("runs");
        (classes, outcome.mean_ns, measured.digest())
    };
    let (irq, task, local) = (outcome(Class::Irq), outcome(Class::Task), outcome(Class::Local));
    assert_eq!(
        (&irq.0[..], &task.0[..], &local.0[..]),
        (&[Class::Irq][..], &[Class::Task][..], &[Class::Local][..])
    );
    assert!(task.1 < irq.1, "{task:?} {irq:?}");
    assert_eq!(local.1, irq.1, "windows hold neither back");
    assert!(irq.2 != task.2 && irq.2 != local.2 && task.2 != local.2, "a digest tells them apart");
}

#[test]
fn nodes_of_fewer_ranks_than_the_trace_has_cpus_draw_from_all_cpus() {
    let busy = (0..100).map(|i| Detour { start_ns: i * 1_000_000, duration_ns: 100_000 });
    let cpus = [CpuNoise::new(100_000_000, []), CpuNoise::new(100_000_000, busy)];
    let noise = NodeNoise::new(cpus.into_iter().collect::<Result<_, _>>().expect("time")).expect("CPUs");
    let measured = Measured { sources: vec![MeasuredSource::named("thread:t", noise)] };
    let traces: Traces = [("t".to_owned(), Arc::new(measured))].into();
    let text = "nodes = [64]\nranks_per_node = 1\nrepetitions = 3\nnoise = [{ trace = \"t\" }]\n\
        program = { name = \"barrier\", iterations = 2000 }";
    let point = Scenario::parse(text).expect("right").points().expect("points").swap_remove(0);
    let outcome = crate::simulate::simulate(&point.simulation(&traces).expect("makes sense")).expect("runs");
    assert!(outcome.slowdown > 1.5, "half of the nodes have the busy CPU: {}", outcome.slowdown);
}

#[test]
fn of_several_traces_each_node_replays_one() {
    let of = |length_ns: u64| {
        let detours = (0..100).map(|i| Detour { start_ns: i * 1_000_000, duration_ns: length_ns });
        let noise = NodeNoise::new(vec![CpuNoise::new(100_000_000, detours).expect("time")]).expect("a CPU");
        Arc::new(Measured { sources: vec![MeasuredSource::named("thread:t", noise)] })
    };
    let traces: Traces = [("a".to_owned(), of(1000)), ("b".to_owned(), of(100_000))].into();
    let text = "nodes = [64]\nnoise = [{ traces = [\"a\", \"b\"] }]";
    let scenario = Scenario::parse(text).expect("right");
    assert_eq!(scenario.trace_files().expect("points"), ["a", "b"]);
    let node = scenario.points().expect("points")[0].simulation(&traces).expect("traces").node;
    let load: f64 = node.loads(1)[0];
    assert!((load - 0.0505).abs() < 1e-6, "the mean of both, not their sum: {load}");
    let both = "noise = [{ trace = \"a\", traces = [\"b\"] }]";
    assert!(Scenario::parse(both).expect_err("one origin").to_string().contains("one origin"));
}
