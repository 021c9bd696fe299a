// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of the whole engine that users rely on.

use crate::machine::{HardwareCollective, Machine};
use crate::node::Node;
use crate::program::{Algorithm, Operation, Program, Step};
use crate::scheduler::Preempt;
use crate::simulate::{Simulation, simulate};
use crate::source::{Burst, Dist, Done, Model, Noise, Source, Stream};
use crate::{BaseTime, LogGops, SimError};

pub(super) fn quiet(program: Program, nodes: u32) -> Simulation {
    Simulation {
        program,
        machine: Machine::loggopsim(),
        node: Node::quiet(),
        nodes,
        begin_ns: None,
        repetitions: 1,
        seed: 1,
    }
}

fn once(step: Step) -> Program {
    Program::new("test", 1, vec![step])
}

fn total_ns(s: &Simulation) -> u64 {
    simulate(s).expect("sound").totals_ns[0]
}

pub(super) fn with_hardware() -> Machine {
    let hardware = HardwareCollective {
        time: BaseTime::Log2 { fixed_ns: 1000.0, level_ns: 50.0 },
        phases: 2,
        cpu_ns: 100,
    };
    Machine {
        hardware_barrier: Some(hardware.clone()),
        hardware_reduce: Some(hardware),
        ..Machine::loggopsim()
    }
}

/// Every way to do a collective in software.
pub(crate) const SOFTWARE: [(Operation, Algorithm); 14] = {
    use {Algorithm as A, Operation as O};
    [
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
    ]
};

pub(super) fn all_collectives() -> Vec<Step> {
    SOFTWARE.map(|(operation, algorithm)| Step::by(operation, algorithm, 700)).to_vec()
}

#[test]
fn the_dissemination_barrier_takes_as_long_as_in_loggopsim() {
    let barrier = || once(Step::by(Operation::Barrier, Algorithm::Dissemination, 8));
    for (ranks, ns) in
        [(1 << 10, 55_420), (1 << 12, 66_504), (1 << 14, 77_588), (1 << 16, 88_672), (1 << 18, 99_756)]
    {
        assert_eq!(total_ns(&quiet(barrier(), ranks)), ns, "{ranks} ranks");
    }
    assert_eq!(total_ns(&quiet(barrier(), 1 << 20)), 110_840);
}

#[test]
fn the_allreduce_takes_as_long_as_in_loggopsim() {
    let ranks = 1 << 16;
    let step = Step::by(Operation::Allreduce, Algorithm::Rabenseifner, ranks);
    let mut s = quiet(once(step), ranks as u32);
    s.machine.loggops.eager_bytes = 4_000_000;
    assert_eq!(total_ns(&s), 962_228);
}

#[test]
fn collectives_of_few_ranks_take_the_time_worked_out_by_hand() {
    use {Algorithm as A, Operation as O};
    // 5500 a round, and 6 a byte after the first
    for (operation, algorithm, bytes, ranks, ns) in [
        (O::Barrier, A::RecursiveDoubling, 1, 4, 2 * 5500),
        // folded in, sent and received, given out
        (O::Barrier, A::RecursiveDoubling, 1, 3, 5500 + 3000 + 5500),
        (O::Barrier, A::Binomial, 1, 4, 4 * 5500),
        (O::Bcast, A::Binomial, 1, 8, 3 * 5500),
        (O::Allreduce, A::Ring, 30, 3, 4 * (5500 + 9 * 6)),
        (O::Allgather, A::Ring, 11, 5, 4 * (5500 + 60)),
        (O::Allgather, A::RecursiveDoubling, 11, 4, 2 * 5500 + (10 + 21) * 6),
        (O::Allgather, A::Bruck, 11, 5, 3 * 5500 + (10 + 21 + 10) * 6),
        (O::Alltoall, A::Bruck, 10, 5, 3 * 5500 + (19 + 19 + 9) * 6),
        (O::Alltoall, A::Pairwise, 11, 5, 4 * (5500 + 60)),
        // three sends, and by the end of the third the first message is there; three receives
        (O::Alltoall, A::Linear, 1, 4, 6 * 1500),
        (O::Alltoall, A::Linear, 1, 2, 5500),
    ] {
        let s = quiet(once(Step::by(operation, algorithm, bytes)), ranks);
        assert_eq!(total_ns(&s), ns, "{operation:?} by {algorithm:?}, {ranks} ranks");
    }
}

#[test]
fn collectives_work_on_any_number_of_ranks() {
    for step in all_collectives() {
        let times: Vec<u64> =
            [1, 2, 3, 5, 6, 7, 8, 12, 13].map(|n| total_ns(&quiet(once(step.clone()), n))).to_vec();
        assert_eq!(times[0], 0, "{step:?}");
        assert!(times[1..].iter().all(|&t| t >= 5500), "{step:?}: {times:?}");
    }
}

#[test]
fn combining_is_work_after_the_receives_that_combine() {
    let combine = |algorithm| {
        let with = Step::Collective {
            operation: Operation::Allreduce,
            algorithm: Some(algorithm),
            bytes: 64,
            combine_ns: 8000,
            ranks: None,
        };
        let without = Step::by(Operation::Allreduce, algorithm, 64);
        total_ns(&quiet(once(with), 8)) - total_ns(&quiet(once(without), 8))
    };
    assert_eq!(combine(Algorithm::RecursiveDoubling), 3 * 8000);
    assert_eq!(combine(Algorithm::Binomial), 3 * 8000);
    assert_eq!(combine(Algorithm::Rabenseifner), 4000 + 2000 + 1000);
    assert_eq!(combine(Algorithm::Ring), 7 * 1000);
}

#[test]
fn hardware_is_taken_where_all_ranks_take_part() {
    let steps = |ranks, algorithm| Step::Collective {
        operation: Operation::Barrier,
        algorithm,
        bytes: 1,
        combine_ns: 0,
        ranks,
    };
    let s = |step| Simulation { machine: with_hardware(), ..quiet(once(step), 16) };
    assert_eq!(total_ns(&s(steps(None, None))), 1200);
    assert_eq!(total_ns(&s(steps(Some(16), None))), 1200);
    assert_eq!(total_ns(&s(steps(Some(8), None))), 3 * 5500);
    assert_eq!(total_ns(&s(steps(None, Some(Algorithm::Dissemination)))), 4 * 5500);
    for (machine, ranks) in [(with_hardware(), Some(8)), (Machine::loggopsim(), None)] {
        let s = Simulation { machine, ..quiet(once(steps(ranks, Some(Algorithm::Hardware))), 16) };
        let error = simulate(&s).expect_err("no hardware").to_string();
        assert!(error.contains("by hardware"), "{error}");
    }
}

#[test]
fn a_halo_is_all_sends_then_all_receives() {
    let halo = |dims, nodes| total_ns(&quiet(once(Step::Halo { bytes: 1, dims }), nodes));
    // six sends; the messages have arrived by then; six receives
    assert_eq!(halo(3, 64), 12 * 1500);
    // one dimension: two sends, and 2500 until the second message is there, which is received first
    assert_eq!(halo(1, 8), 2 * 1500 + 2500 + 2 * 1500);
    assert_eq!(halo(2, 7), halo(1, 7), "a dimension of one has no neighbours");
    assert_eq!(halo(3, 1), 0);
}

#[test]
fn a_message_around_the_ring_takes_a_hop_a_rank() {
    for bytes in [1, 100_000] {
        let s = quiet(once(Step::RingTrip { bytes }), 10);
        assert_eq!(total_ns(&s), 10 * (5500 + (bytes - 1) * 6), "{bytes} bytes");
    }
}

#[test]
fn a_busy_interface_holds_messages_back() {
    // the root of a broadcast sends 10,000 bytes to two others: the second waits for the interface
    let gap = 1000 + 9999 * 6;
    let s = quiet(once(Step::by(Operation::Bcast, Algorithm::Binomial, 10_000)), 3);
    assert_eq!(total_ns(&s), gap + 5500 + 9999 * 6);
}

#[test]
fn a_long_send_waits_for_its_receive() {
    // 0 and 1 exchange after 1 is late (bcast tree): 1 receives from 0 at the end of its own work
    let long = Step::by(Operation::Bcast, Algorithm::Binomial, 100_000);
    let (eager, rendezvous) = {
        let mut s = quiet(once(long.clone()), 2);
        let rendezvous = total_ns(&s);
        s.machine.loggops.eager_bytes = 1 << 20;
        (total_ns(&s), rendezvous)
    };
    assert_eq!(eager, rendezvous, "the receiver is the last one either way");
    // a second broadcast: the root may begin it early only where it did not have to wait
    let mut s = quiet(Program::new("two", 2, vec![long]), 2);
    let rendezvous = total_ns(&s);
    s.machine.loggops.eager_bytes = 1 << 20;
    assert!(rendezvous >= total_ns(&s));
}

#[test]
fn a_transpose_is_an_alltoall_of_each_line_at_once() {
    // 6 ranks are a grid of 2 × 3: a flat network does not see which of them a line has
    for (along, line) in [(0, 2), (1, 3)] {
        for bytes in [100, 100_000] {
            let transpose = quiet(once(Step::Transpose { bytes, dims: 2, along }), 6);
            let pairs = quiet(once(Step::by(Operation::Alltoall, Algorithm::Pairwise, bytes)), line);
            assert_eq!(total_ns(&transpose), total_ns(&pairs), "{along} {bytes}");
        }
    }
    let alone = once(Step::Transpose { bytes: 8, dims: 3, along: 0 });
    assert_eq!(total_ns(&quiet(alone, 7)), 0, "7 ranks are a grid of 1 × 1 × 7");
    for (dims, along) in [(0, 0), (4, 0), (2, 2)] {
        let wrong = once(Step::Transpose { bytes: 8, dims, along });
        let error = simulate(&quiet(wrong, 4)).expect_err("refused").to_string();
        assert!(error.contains("1 to 3 dimensions"), "{error}");
    }
}

#[test]
fn weak_scaling_keeps_the_time_of_a_step_and_strong_scaling_divides_it() {
    let mean = |program: Program, nodes| simulate(&quiet(program, nodes)).expect("sound").mean_ns;
    let flash = |nodes| mean(Program::flash(Step::compute(1_000_000), 64, 2), nodes);
    assert!((flash(512) / flash(8) - 1.0).abs() < 0.01);
    let miranda = |nodes| mean(Program::miranda(nodes, 256, 1000, 2), nodes);
    assert!((miranda(8) / miranda(64) / 8.0 - 1.0).abs() < 0.05);
    // cells are divided, whatever their number: none is lost to more than a rank's share
    assert!((miranda(7) / miranda(8) * 7.0 / 8.0 - 1.0).abs() < 0.05);
}

#[test]
fn programs_that_make_no_sense_are_refused() {
    let refused = |s: Simulation| simulate(&s).expect_err("refused").to_string();
    let ring = once(Step::by(Operation::Alltoall, Algorithm::Ring, 1));
    assert!(refused(quiet(ring, 4)).contains("no way to do one"));
    let sub = Step::Collective {
        operation: Operation::Bcast,
        algorithm: None,
        bytes: 1,
        combine_ns: 0,
        ranks: Some(5),
    };
    assert!(refused(quiet(once(sub), 4)).contains("5 ranks, and the machine has 4"));
    assert!(refused(quiet(once(Step::compute(u64::MAX)), 4)).contains("longer"));
    assert!(refused(quiet(Program::bsp(1 << 40, 1 << 26), 4)).contains("longer"));
    let slow = LogGops { latency_ns: u64::MAX, ..LogGops::default() };
    let mut s = quiet(Program::bsp(1, 1), 4);
    s.machine.loggops = slow;
    assert!(refused(s).contains("latency_ns"));
    let mut s = quiet(Program::bsp(1, 1), 4);
    s.machine.topology = crate::network::Topology::FatTree { radix: 1, hop_ns: 1 };
    assert!(refused(s).contains("radix is 1"));
    let mut s = Simulation { machine: with_hardware(), ..quiet(Program::bsp(1, 1), 4) };
    s.machine.hardware_barrier.as_mut().expect("there").cpu_ns = 1 << 20;
    assert!(refused(s).contains("hardware_barrier"));
    assert_eq!(simulate(&quiet(Program::bsp(1, 1), 0)), Err(SimError::Nodes));
    let mut s = quiet(Program::bsp(1, 1), 4);
    s.machine.ranks_per_node = 0;
    assert!(refused(s).contains("ranks_per_node"));
    let mut s = quiet(Program::bsp(1, 1), 4);
    s.node = Node::new(vec![Source::new("bad", Model::poisson(-1.0, Dist::Fixed(1)))], Preempt);
    assert!(refused(s).contains("mean"));
    let mut s = quiet(Program::bsp(1, 1), 4);
    s.repetitions = 0;
    assert_eq!(simulate(&s), Err(SimError::Repetitions));
    let mut s = quiet(Program::bsp(1, 1), 64);
    s.machine.topology = crate::network::Topology::Torus { dims: [2, 2, 2], hop_ns: 1 };
    assert!(refused(s).contains("no room for 64"));
}

/// Takes all of the time, and does not say so.
#[derive(Debug)]
struct Hog;

impl Noise for Hog {
    fn first(&self, _: &Stream) -> Option<Burst> {
        Some(Burst { index: 0, arrival_ns: 0, length_ns: 100 })
    }
    fn next(&self, _: &Stream, last: Done) -> Option<Burst> {
        Some(Burst { index: last.index + 1, arrival_ns: last.done_ns, length_ns: 100 })
    }
    fn cycle_ns(&self) -> f64 {
        100.0
    }
    fn load(&self) -> f64 {
        0.0
    }
}

#[test]
fn a_rank_without_time_is_an_error_that_names_it() {
    let of = |source| Simulation {
        node: Node::new(vec![source], Preempt),
        begin_ns: Some(0),
        ..quiet(Program::bsp(1000, 5), 3)
    };
    assert_eq!(simulate(&of(Source::new("hog", Hog))), Err(SimError::Starved { rank: 0 }));
    let honest = Source::new("hog", Model::periodic(100, 100));
    assert_eq!(simulate(&of(honest)), Err(SimError::Load { load: 1.0 }));
}
