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

fn noises() -> [(&'static str, Vec<Source>); 3] {
    let source = |model: Model| Source::new("noise", model);
    [
        ("a daemon", vec![source(Model::leibniz(1_000_000, 50_000_000))]),
        ("ticks", vec![source(Model::periodic(1_000_000, 16_000))]),
        ("at random", vec![source(Model::poisson(20_000_000.0, Dist::Fixed(200_000)))]),
    ]
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
                let sure = found.ci95_ns.zip(truth.ci95_ns).expect("repetitions");
                (found.mean_ns - truth.mean_ns).abs() <= sure.0.hypot(sure.1)
            };
            let covered = (0..seeds).filter(|&s| covers(s)).count() as u64;
            println!("{name} on {nodes} nodes: {covered} of {seeds}");
            assert!(covered * 10 >= seeds * 9, "{name} on {nodes} nodes: {covered} of {seeds} cover");
        }
    }
}
