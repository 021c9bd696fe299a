// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the intervals of simulations cover the results of long simulations.

use crate::machine::Machine;
use crate::node::Node;
use crate::program::{Operation, Program, Step};
use crate::scheduler::Preempt;
use crate::simulate::{Simulation, simulate};
use crate::source::{Dist, Model, Source};
use crate::spec::Scenario;
use crate::stats::tests::seeds;

fn noises() -> [(&'static str, Vec<Source>); 5] {
    let source = |model: Model| Source::new("noise", model);
    [
        ("a daemon", vec![source(Model::leibniz(1_000_000, 50_000_000))]),
        ("ticks", vec![source(Model::periodic(1_000_000, 16_000))]),
        ("at random", vec![source(Model::poisson(20_000_000.0, Dist::Fixed(200_000)))]),
        ("of many lengths", vec![source(Model::poisson(50_000_000.0, pareto(2.5)))]),
        ("of lengths without variance", vec![source(Model::poisson(50_000_000.0, pareto(1.2)))]),
    ]
}

fn pareto(shape: f64) -> Dist {
    Dist::Pareto { least_ns: 20_000.0, shape, most_ns: 2e9 }
}

#[test]
fn intervals_of_the_usual_repetitions_cover() {
    let (usual, seeds) = (Scenario::default(), seeds(60));
    for (name, sources) in noises() {
        for nodes in [16, 256] {
            let mut simulation = Simulation {
                program: Program::new(
                    "job",
                    200,
                    vec![Step::compute(1_000_000), Step::collective(Operation::Allreduce, 8)],
                ),
                machine: Machine::loggopsim(),
                node: Node::new(sources.clone(), Preempt),
                nodes,
                begin_ns: None,
                repetitions: 100,
                seed: 1_000_000,
            };
            let truth = simulate(&simulation).expect("runs");
            simulation.repetitions = usual.repetitions;
            let covers = |seed: u64| {
                let found = simulate(&Simulation { seed, ..simulation.clone() }).expect("runs");
                let Some((found_half, half)) = found.ci95_ns.zip(truth.ci95_ns) else {
                    let said = found.warnings.iter().any(|w| w.starts_with("no 95 % interval"));
                    assert!(said && name.contains("without variance"), "{name}: {:?}", found.warnings);
                    return true;
                };
                (found.mean_ns - truth.mean_ns).abs() <= found_half.hypot(half)
            };
            let covered = (0..seeds).filter(|&s| covers(s)).count() as u64;
            println!("{name} on {nodes} nodes: {covered} of {seeds}");
            assert!(covered * 10 >= seeds * 9, "{name} on {nodes} nodes: {covered} of {seeds} cover");
        }
    }
}
