// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles against the figures they were made from.

use colony_sim::local::{self, Measurable, Measured};
use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Algorithm, Operation, Program, Step};
use colony_sim::simulate::{Simulation, simulate};

fn quiet_ns(machine: &Machine, nodes: u32, step: Step) -> f64 {
    let simulation = Simulation {
        program: Program::new("test", 1, vec![step]),
        machine: machine.clone(),
        node: Node::quiet(),
        nodes,
        begin_ns: Some(0),
        repetitions: 1,
        seed: 1,
    };
    simulate(&simulation).expect("runs").quiet_ns
}

#[test]
fn blue_gene_has_its_published_times() {
    let bgl = Machine::named("bgl").expect("there");
    let barrier = Step::collective(Operation::Barrier, 0);
    let allreduce = Step::collective(Operation::Allreduce, 8);
    let software = Step::by(Operation::Allreduce, Algorithm::RecursiveDoubling, 8);
    for (nodes, step, published_ns) in [
        (512, &barrier, 1000.0),
        (16_384, &barrier, 1300.0),
        (512, &allreduce, 8300.0),
        (16_384, &allreduce, 11_600.0),
        (512, &software, 38_000.0),
        (16_384, &software, 73_000.0),
    ] {
        let ours = quiet_ns(&bgl, nodes, step.clone());
        assert!((ours / published_ns - 1.0).abs() < 1e-3, "{nodes} nodes, {step:?}: {ours} {published_ns}");
    }
}

#[test]
fn a_fitted_machine_takes_the_times_it_was_fitted_to() {
    use Measurable::{Allreduce, Alltoall, Barrier, Ring};
    let by = |operation, algorithm, bytes| Step::by(operation, algorithm, bytes);
    // o = L = 100 ns, 0.25 ns a byte
    let time = |messages: f64, bytes: f64| messages * (300.0 + (bytes - 1.0) * 0.25);
    let points = [
        (Barrier, 5, 0, time(3.0, 1.0), by(Operation::Barrier, Algorithm::Dissemination, 0)),
        (Allreduce, 8, 33, time(3.0, 33.0), by(Operation::Allreduce, Algorithm::RecursiveDoubling, 33)),
        (Alltoall, 4, 4001, time(3.0, 4001.0), by(Operation::Alltoall, Algorithm::Pairwise, 4001)),
        (Ring, 4, 101, time(4.0, 101.0), Step::RingTrip { bytes: 101 }),
    ];
    let measured: Vec<Measured> = points
        .iter()
        .map(|&(operation, ranks, bytes, ns, _)| Measured { operation, ranks, bytes, ns })
        .collect();
    let fit = local::fit(&measured).expect("enough");
    for ((operation, ranks, _, ns, step), (_, model_ns)) in points.into_iter().zip(fit.residuals) {
        let simulated = quiet_ns(&fit.machine, ranks, step);
        assert_eq!((simulated, model_ns), (ns, ns), "{operation:?} on {ranks} ranks");
    }
}
