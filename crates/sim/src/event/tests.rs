use proptest::prelude::*;

use super::*;
use crate::machine::Machine;
use crate::network::Topology;
use crate::program::{Algorithm, Operation as Collective, Program, Step};
use crate::scheduler::{Fair, Preempt};
use crate::simulate::{Simulation, simulate};
use crate::source::{Model, Source};
use crate::{LogGops, goal};

fn text(goal: &str) -> Schedule {
    goal::read_text(goal.as_bytes(), "test").expect("a schedule")
}

/// `ranks` ranks, each with the statements that `rank` gives.
fn each(ranks: u32, rank: impl Fn(u32) -> String) -> Schedule {
    let all: String = (0..ranks).map(|r| format!("rank {r} {{\n{}\n}}\n", rank(r))).collect();
    text(&format!("num_ranks {ranks}\n{all}"))
}

fn quiet(schedule: &Schedule, machine: &Machine, progress: Progress) -> Result<Outcome, EventError> {
    let network = machine.network(schedule.ranks()).expect("a network");
    run(schedule, &network, &Node::quiet(), progress, Key::new(1), 0)
}

fn step() -> impl Strategy<Value = Step> {
    use {Algorithm as A, Collective as O};
    let ways = [
        (O::Barrier, A::Dissemination),
        (O::Barrier, A::RecursiveDoubling),
        (O::Barrier, A::Binomial),
        (O::Allreduce, A::RecursiveDoubling),
        (O::Allreduce, A::Rabenseifner),
        (O::Allreduce, A::Ring),
        (O::Allreduce, A::Binomial),
        (O::Bcast, A::Binomial),
        (O::Allgather, A::Ring),
        (O::Allgather, A::RecursiveDoubling),
        (O::Allgather, A::Bruck),
        (O::Alltoall, A::Bruck),
        (O::Alltoall, A::Pairwise),
        (O::Alltoall, A::Linear),
    ];
    let bytes = || prop_oneof![0u64..64, 0u64..20_000];
    let collective = (prop::sample::select(ways.to_vec()), bytes(), 0u64..3000, prop::option::of(1u32..6))
        .prop_map(|((operation, algorithm), bytes, combine_ns, ranks)| Step::Collective {
            operation,
            algorithm: Some(algorithm),
            bytes,
            combine_ns: if operation == O::Allreduce { combine_ns } else { 0 },
            ranks,
        });
    prop_oneof![
        1 => (0u64..50_000, prop_oneof![Just(0.0), Just(0.3)])
            .prop_map(|(ns, imbalance)| Step::Compute { ns, imbalance }),
        4 => collective,
        1 => (bytes(), 1u32..4).prop_map(|(bytes, dims)| Step::Halo { bytes, dims }),
        1 => bytes().prop_map(|bytes| Step::RingTrip { bytes }),
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    let loggops = (0u64..5000, 0u64..3000, 0u64..6000, 0u64..8000, 0u64..4000, 0u64..10_000).prop_map(
        |(latency_ns, overhead_ns, gap_ns, gap_per_byte_ps, overhead_per_byte_ps, eager_bytes)| LogGops {
            latency_ns,
            overhead_ns,
            gap_ns,
            gap_per_byte_ps,
            overhead_per_byte_ps,
            eager_bytes,
        },
    );
    let topology = prop_oneof![
        Just(Topology::Flat),
        Just(Topology::Torus { dims: [0; 3], hop_ns: 70 }),
        Just(Topology::FatTree { radix: 2, hop_ns: 90 })
    ];
    (loggops, topology, 1u32..3, prop::option::of(0u64..2000)).prop_map(
        |(loggops, topology, ranks_per_node, inside_ns)| Machine {
            loggops,
            topology,
            ranks_per_node,
            inside_ns,
            ..Machine::loggopsim()
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let daemon = || Source::new("daemon", Model::leibniz(3000, 40_000));
    let tick = || Source::new("tick", Model::periodic(20_000, 900)).class(crate::source::Class::Local);
    prop_oneof![
        Just(Node::quiet()),
        Just(Node::new(vec![daemon()], Preempt)),
        Just(Node::new(vec![daemon(), tick()], Fair { noise_slice_ns: 1000, job_slice_ns: 700 })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_program_takes_as_long_as_the_level_engine_says(
        body in prop::collection::vec(step(), 1..4),
        iterations in 1u64..4,
        machine in machine(),
        nodes in 3u32..20,
        node in node(),
        seed in any::<u64>(),
    ) {
        let program = Program::new("test", iterations, body);
        let simulation = Simulation {
            program: program.clone(),
            machine: machine.clone(),
            node: node.clone(),
            nodes: nodes.max(6),
            begin_ns: Some(100_000),
            repetitions: 1,
            seed,
        };
        let nodes = simulation.nodes;
        let level = simulate(&simulation).expect("a program");
        let seed = Key::new(seed).part(0);
        let schedule = goal::lower(&program, &machine, nodes, seed).expect("a schedule");
        let network = machine.network(nodes).expect("a network");
        let event = run(&schedule, &network, &node, Progress::ProgramOrder, seed, 100_000).expect("a run");
        prop_assert_eq!(event.total_ns(), level.totals_ns[0]);
    }
}
