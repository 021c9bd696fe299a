// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::level::tests::SOFTWARE;
use crate::machine::Machine;
use crate::network::Topology;
use crate::program::{Operation as Collective, Program, Step};
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
    let bytes = || prop_oneof![0u64..64, 0u64..20_000];
    let collective =
        (prop::sample::select(SOFTWARE.to_vec()), bytes(), 0u64..3000, prop::option::of(1u32..6)).prop_map(
            |((operation, algorithm), bytes, combine_ns, ranks)| Step::Collective {
                operation,
                algorithm: Some(algorithm),
                bytes,
                combine_ns: if operation == Collective::Allreduce { combine_ns } else { 0 },
                ranks,
            },
        );
    prop_oneof![
        1 => (0u64..50_000, prop_oneof![Just(0.0), Just(0.3)])
            .prop_map(|(ns, imbalance)| Step::Compute { ns, imbalance }),
        4 => collective,
        1 => (bytes(), 1u32..4).prop_map(|(bytes, dims)| Step::Halo { bytes, dims }),
        1 => (bytes(), 0u32..2, 0u32..2)
            .prop_map(|(bytes, more, along)| Step::Transpose { bytes, dims: 2 + more, along: more + along }),
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
    fn both_engines_give_a_program_the_same_time(
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

fn lgs(schedule: &Schedule) -> u64 {
    quiet(schedule, &Machine::loggopsim(), Progress::Asynchronous).expect("a run").total_ns()
}

/// Rounds of a send and a receive, each send after the receive before, as LogGOPSim's generator writes them.
fn rounds(ranks: u32, n: usize, round: impl Fn(u32, usize) -> (u64, u32, u32)) -> Schedule {
    use crate::goal::{Builder, Operation};
    let mut b = Builder::new(ranks);
    for rank in 0..ranks {
        for k in 0..n {
            let (size, to, from) = round(rank, k);
            let message = |kind, peer| Operation { kind, size, peer, tag: 0, cpu: 0, nic: 0 };
            let sent = b.add(message(Kind::Send, to)).expect("a send");
            b.add(message(Kind::Recv, from)).expect("a receive");
            if k > 0 {
                b.require(sent, sent - 1, false).expect("a requirement");
            }
        }
        b.next_rank().expect("a rank");
    }
    b.finish().expect("a schedule")
}

fn dissemination(ranks: u32, bytes: u64) -> Schedule {
    let n = ranks.next_power_of_two().ilog2() as usize;
    rounds(ranks, n, |r, k| (bytes, (r + (1 << k)) % ranks, (r + ranks - (1 << k)) % ranks))
}

#[test]
fn collectives_take_the_time_that_loggopsim_computes() {
    let barriers = [(10, 55_420), (12, 66_504), (14, 77_588), (16, 88_672)];
    for (log, ns) in barriers {
        assert_eq!(lgs(&dissemination(1 << log, 8)), ns);
    }
    for (bytes, ns) in [(8, 33_252), (5000, 212_964), (100_000, 3_632_964)] {
        assert_eq!((lgs(&dissemination(64, bytes)), lgs(&dissemination(33, bytes))), (ns, ns));
    }
    // a linear alltoall, each send followed by a receive, none waiting for another
    let all = |n: u32, bytes: u64| {
        each(n, |r| {
            (1..n)
                .map(|k| {
                    let (to, from) = ((r + k) % n, (r + n - k) % n);
                    format!("send {bytes}b to {to}\nrecv {bytes}b from {from}\n")
                })
                .collect()
        })
    };
    for (n, bytes, ns) in [(8, 8, 21_294), (8, 100_000, 4_238_458), (64, 8, 191_646), (64, 5000, 2_236_122)] {
        assert_eq!(lgs(&all(n, bytes)), ns, "{n} ranks, {bytes} bytes");
    }
    // the root receives from, or sends to, all others
    for (bytes, gather, scatter) in [(8, 101_146, 98_542), (5000, 1_988_122, 1_957_122)] {
        let to_root = |r: u32| match r {
            0 => (1..64).map(|p| format!("recv {bytes}b from {p}\n")).collect(),
            _ => format!("send {bytes}b to 0\n"),
        };
        let from_root = |r: u32| match r {
            0 => (1..64).map(|p| format!("send {bytes}b to {p}\n")).collect(),
            _ => format!("recv {bytes}b from 0\n"),
        };
        assert_eq!((lgs(&each(64, to_root)), lgs(&each(64, from_root))), (gather, scatter));
    }
}

#[test]
fn rabenseifners_allreduce_takes_the_time_that_loggopsim_computes() {
    // halving up to the highest bit, then doubling back
    let schedule = rounds(1 << 16, 32, |r, k| {
        let bit = k.min(31 - k);
        ((1 << 15) >> bit, r ^ (1 << bit), r ^ (1 << bit))
    });
    let mut machine = Machine::loggopsim();
    machine.loggops.eager_bytes = 4_000_000;
    let total = quiet(&schedule, &machine, Progress::Asynchronous).map(|o| o.total_ns());
    assert_eq!(total, Ok(962_228));
}

#[test]
fn noise_on_a_send_delays_its_message() {
    let schedule = text("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n");
    let detour = Source::new("detour", Model::periodic(1_000_000_000, 1000))
        .phase(crate::source::Phase::Together { spread_ns: 0 });
    let network = Machine::loggopsim().network(2).expect("a network");
    let node = Node::new(vec![detour], Preempt);
    for progress in [Progress::ProgramOrder, Progress::Asynchronous] {
        let outcome = run(&schedule, &network, &node, progress, Key::new(1), 0).expect("a run");
        assert_eq!(outcome.ends_ns, [2500, 2500 + 2500 + 42 + 1500]);
    }
}

#[test]
fn a_receive_is_charged_where_the_program_has_it_or_when_its_message_comes() {
    let schedule = text(
        "num_ranks 3\nrank 0 {\nsend 8b to 1\n}\n\
         rank 1 {\nwork: calc 10000\nsent: send 8b to 2\nsent requires work\ngot: recv 8b from 0\ngot requires sent\n}\n\
         rank 2 {\nrecv 8b from 1\n}\n",
    );
    let ends = |progress| quiet(&schedule, &Machine::loggopsim(), progress).expect("a run").ends_ns;
    assert_eq!(ends(Progress::ProgramOrder), [1500, 11_500 + 1542, 11_500 + 2500 + 1542]);
    assert_eq!(ends(Progress::Asynchronous), [1500, 11_542 + 1500, 13_042 + 2500 + 1542]);
}

#[test]
fn a_message_of_nothing_costs_as_one_byte() {
    let of = |bytes: u64| {
        text(&format!(
            "num_ranks 2\nrank 0 {{\nsend {bytes}b to 1\n}}\nrank 1 {{\nrecv {bytes}b from 0\n}}\n"
        ))
    };
    assert_eq!((lgs(&of(0)), lgs(&of(1))), (5500, 5500));
}

#[test]
fn a_requirement_holds_between_cpus() {
    let schedule = text(
        "num_ranks 1\nrank 0 {\na: calc 1000\nb: calc 10 cpu 1\nb requires a\nc: calc 5 cpu 2\nc irequires b\n}\n",
    );
    assert_eq!(lgs(&schedule), 1010);
}

#[test]
fn a_rendezvous_send_ends_when_its_receive_begins() {
    let schedule = text(
        "num_ranks 2\nrank 0 {\na: send 100000b to 1\nb: calc 10\nb requires a\n}\n\
         rank 1 {\na: calc 50000\nb: recv 100000b from 0\nb requires a\n}\n",
    );
    let outcome = quiet(&schedule, &Machine::loggopsim(), Progress::ProgramOrder).expect("a run");
    assert_eq!(outcome.ends_ns, [50_010, 50_000 + 599_994 + 1500]);
}

#[test]
fn a_deadlock_names_the_ranks_that_wait() {
    let schedule = each(40, |r| {
        let (next, last) = ((r + 1) % 40, (r + 39) % 40);
        format!("a: recv 8b from {last} tag 7\nb: send 8b to {next} tag 7\nb requires a")
    });
    let error = quiet(&schedule, &Machine::loggopsim(), Progress::ProgramOrder).expect_err("a deadlock");
    let said = error.to_string();
    assert!(said.starts_with("deadlock: 40 ranks wait for ever: rank 0 in operation 0 for a message from rank 39 with tag 7; rank 1"), "{said}");
    assert!(said.ends_with("; and 30 more"), "{said}");

    let rendezvous = each(2, |r| {
        let peer = 1 - r;
        format!("a: send 70000b to {peer}\nb: recv 70000b from {peer}\nb requires a")
    });
    let error = quiet(&rendezvous, &Machine::loggopsim(), Progress::Asynchronous).expect_err("a deadlock");
    assert!(error.to_string().contains("rank 1 in operation 0 for rank 0 to receive"), "{error}");
}

#[test]
fn a_message_nobody_receives_is_an_error() {
    let schedule = text(
        "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 3\nsend 8b to 1 tag 4\n}\nrank 1 {\nrecv 8b from -1 tag 4\n}\n",
    );
    for progress in [Progress::ProgramOrder, Progress::Asynchronous] {
        let error = quiet(&schedule, &Machine::loggopsim(), progress).expect_err("left over");
        let first = vec![Unreceived { from: 0, to: 1, tag: 3 }];
        assert_eq!(error, EventError::Unreceived { messages: 1, first });
    }
}

#[test]
fn a_receive_from_any_source_takes_the_first_message() {
    // rank 1 is late: the first receive is rank 2's message, and rank 0 goes on after it
    let schedule = text(
        "num_ranks 3\nrank 0 {\na: recv 8b from -1 tag -1\nb: calc 100000\nb requires a\nc: recv 8b from -1 tag -1\n}\n\
         rank 1 {\na: calc 50000\nb: send 8b to 0 tag 1\nb requires a\n}\nrank 2 {\nsend 8b to 0 tag 2\n}\n",
    );
    let outcome = quiet(&schedule, &Machine::loggopsim(), Progress::ProgramOrder).expect("a run");
    assert_eq!(outcome.ends_ns[0], 4000 + 1542 + 100_000 + 1542);
}

#[test]
fn a_schedule_that_cannot_run_is_an_error() {
    let long = text(&format!("num_ranks 1\nrank 0 {{\ncalc {}\n}}\n", u64::MAX / 4));
    let machine = Machine::loggopsim();
    assert_eq!(quiet(&long, &machine, Progress::ProgramOrder), Err(EventError::TooLong));
    let network = machine.network(2).expect("a network");
    let run = |s: &Schedule, node: &Node| run(s, &network, node, Progress::ProgramOrder, Key::new(1), 0);
    assert_eq!(run(&long, &Node::quiet()), Err(EventError::Ranks { schedule: 1, machine: 2 }));
    let work = each(2, |_| "calc 100".into());
    let all = Node::new(vec![Source::new("all", Model::periodic(100, 100))], Preempt);
    assert!(matches!(run(&work, &all), Err(EventError::Starved { .. })));
}

#[test]
fn a_receive_reached_in_a_backlog_is_done_when_its_own_message_is() {
    // CPU 0 of rank 1 takes the small message, then the large one of rank 2 until 607,036. Its program reaches the
    // first receive at 6000 on CPU 1, and with it the second, which lets rank 2 go on.
    let schedule = text(
        "num_ranks 3\nrank 0 {\nsend 8b to 1\n}\n\
         rank 1 {\na: calc 6000 cpu 1\nb: recv 8b from 0\nb requires a\nc: recv 100000b from 2\nc requires b\n}\n\
         rank 2 {\na: send 100000b to 1\nb: calc 70\nb requires a\n}\n",
    );
    let outcome = quiet(&schedule, &Machine::loggopsim(), Progress::Asynchronous).expect("a run");
    assert_eq!(outcome.ends_ns, [1500, 5542 + 599_994 + 1500, 6070]);
}

#[test]
fn a_receive_reached_in_a_backlog_of_one_cpu_is_done_when_its_own_message_is() {
    // S of 200,000: all messages are eager but rank 3's. Rank 1 reaches its receives when a message of 1 byte from
    // itself has come, while others wait for its CPU.
    let loggops = LogGops { gap_ns: 0, gap_per_byte_ps: 0, eager_bytes: 10, ..LogGops::default() };
    let schedule = text(
        "num_ranks 3\nrank 0 {\nsend 8b to 1 tag 1\n}\n\
         rank 1 {\na: calc 6000\nb: calc 90000\nc: recv 8b from 0 tag 1\nc irequires b\nd: recv 11b from 2\nd requires c\n}\n\
         rank 2 {\na: send 11b to 1\nb: calc 70\nb requires a\n}\n",
    );
    let outcome = quiet(&schedule, &Machine { loggops, ..Machine::loggopsim() }, Progress::Asynchronous)
        .expect("a run");
    // both messages come at 4000 and are taken after the computing, from 96,000 and 97,500 on
    assert_eq!(outcome.ends_ns, [1500, 96_000 + 3000, 97_500 + 70]);
}

#[test]
fn an_interface_is_not_held_by_a_send_whose_cpu_is_busy() {
    // CPU 0 computes until 50,000; meanwhile CPU 1 may send
    let schedule = text(
        "num_ranks 2\nrank 0 {\na: calc 50000\nb: send 8b to 1 tag 1\nc: calc 1000 cpu 1\n\
         d: send 8b to 1 tag 2 cpu 1\nd requires c\n}\n\
         rank 1 {\na: recv 8b from 0 tag 1\nb: recv 8b from 0 tag 2 cpu 1\nc: calc 9 cpu 1\nc requires b\n}\n",
    );
    for progress in [Progress::ProgramOrder, Progress::Asynchronous] {
        let outcome = quiet(&schedule, &Machine::loggopsim(), progress).expect("a run");
        assert_eq!(outcome.ends_ns, [51_500, 50_000 + 5542], "{progress:?}");
    }
    let late = text(
        "num_ranks 2\nrank 0 {\na: calc 50000\nb: send 8b to 1 tag 1\nc: calc 1000 cpu 1\n\
         d: send 8b to 1 tag 2 cpu 1\nd requires c\n}\n\
         rank 1 {\na: recv 8b from 0 tag 1\nb: recv 8b from 0 tag 2 cpu 1\nc: calc 70000 cpu 1\nc requires b\n}\n",
    );
    let outcome = quiet(&late, &Machine::loggopsim(), Progress::Asynchronous).expect("a run");
    assert_eq!(outcome.ends_ns[1], 1000 + 5542 + 70_000);
}

/// Rank 0 sends and rank 1 computes before it receives, with receives of `room` more bytes than the messages have.
fn roomy(room: u64, peer: i32) -> Schedule {
    let (small, large) = (24 + room, 70_000 + room);
    text(&format!(
        "num_ranks 2\nrank 0 {{\na: send 24b to 1 tag 7\nb: send 70000b to 1 tag 8\nc: recv {small}b from {peer} tag 9\nc requires b\n}}\n\
         rank 1 {{\na: calc 9000\nb: recv {small}b from 0 tag 7\nb requires a\nc: recv {large}b from 0 tag 8\nc requires b\n\
         d: send 24b to 0 tag 9\nd requires c\n}}\n"
    ))
}

#[test]
fn a_receive_larger_than_its_message_costs_what_the_message_costs() {
    for rules in [Progress::ProgramOrder.into(), Progress::Asynchronous.into(), Rules::LOGGOPSIM] {
        let machine = Machine {
            loggops: LogGops { eager_bytes: 60_000, ..Machine::loggopsim().loggops },
            ..Machine::loggopsim()
        };
        let network = machine.network(2).expect("a network");
        let ends =
            |s: &Schedule| run(s, &network, &Node::quiet(), rules, Key::new(1), 0).expect("a run").ends_ns;
        for peer in [1, -1] {
            let exact = ends(&roomy(0, peer));
            // one makes a receive of an eager message as large as a rendezvous, one is more than can be transferred
            for room in [1, 65_000, u64::MAX - 100_000] {
                assert_eq!(ends(&roomy(room, peer)), exact, "{rules:?}, {room}, {peer}");
            }
        }
    }
}

#[test]
fn a_message_longer_than_its_receive_is_an_error() {
    let schedule = text(
        "num_ranks 3\nrank 0 {\nsend 8b to 2 tag 3\n}\nrank 1 {\na: calc 9\nb: send 16b to 2 tag 3\nb requires a\n}\n\
         rank 2 {\na: recv 8b from -1 tag 3\nb: recv 8b from -1 tag 3\n}\n",
    );
    let wrong = EventError::Sizes { from: 1, to: 2, tag: 3, operation: 1, sent: 16, received: 8 };
    for rules in [Progress::ProgramOrder.into(), Progress::Asynchronous.into(), Rules::LOGGOPSIM] {
        let network = Machine::loggopsim().network(3).expect("a network");
        let found = run(&schedule, &network, &Node::quiet(), rules, Key::new(1), 0);
        assert_eq!(found, Err(wrong.clone()), "{rules:?}");
    }
}

proptest! {
    #[test]
    fn times_do_not_depend_on_how_windows_are_cut(
        body in prop::collection::vec(step(), 1..4),
        node in node(),
        asynchronous in any::<bool>(),
    ) {
        // two more ranks with a rendezvous make windows an instant long
        let machine = Machine { loggops: LogGops { eager_bytes: 1 << 20, ..LogGops::default() }, ..Machine::loggopsim() };
        let seed = Key::new(3);
        let schedule = goal::lower(&Program::new("test", 2, body), &machine, 8, seed).expect("a schedule");
        let (mut more, large) = (goal::Builder::new(10), (1u64 << 20) + 1);
        for rank in 0..10 {
            for o in schedule.of_rank(rank) {
                more.add(o).expect("an operation");
            }
            for r in schedule.requirements(rank) {
                more.require(r.operation, r.on, r.start_only).expect("a requirement");
            }
            if rank >= 8 {
                let kind = if rank == 8 { Kind::Send } else { Kind::Recv };
                more.add(goal::Operation { kind, size: large, peer: 17 - rank, tag: 0, cpu: 0, nic: 0 })
                    .expect("a message");
            }
            more.next_rank().expect("a rank");
        }
        let more = more.finish().expect("a schedule");
        let progress = if asynchronous { Progress::Asynchronous } else { Progress::ProgramOrder };
        let ends = |s: &Schedule| {
            let network = machine.network(s.ranks()).expect("a network");
            run(s, &network, &node, progress, seed, 0).expect("a run").ends_ns[..8].to_vec()
        };
        prop_assert_eq!(ends(&schedule), ends(&more));
    }
}
