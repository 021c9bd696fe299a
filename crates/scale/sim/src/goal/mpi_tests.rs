// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of liballprof, written by hand, as schedules.

use super::{GoalError, Schedule, read};
use crate::event::{Progress, Rules, run};
use crate::machine::Machine;
use crate::node::Node;
use crate::program::{Operation, Program};
use crate::rng::Key;

/// A folder with a trace for each rank: MPI_Init ends at 1000 µs, and MPI_Finalize begins at 2000 µs unless the calls say so.
fn folder(ranks: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    for (rank, calls) in ranks.iter().enumerate() {
        let text = format!(
            "# htor's PMPI Tracer 0.9 Output File\n\nMPI_Init:-:1:2:1000\nMPI_Comm_rank:1000:5,{rank},2:7:1001\n{calls}\n"
        );
        std::fs::write(dir.path().join(format!("pmpi-trace-rank-{rank}.txt")), text).expect("written");
    }
    dir
}

fn schedule(ranks: &[&str]) -> Schedule {
    read(folder(ranks).path()).expect("a schedule")
}

fn error(ranks: &[&str]) -> String {
    let error: GoalError = read(folder(ranks).path()).expect_err("no schedule");
    assert!(error.is_wrong_use(), "{error}");
    error.to_string()
}

fn ends(schedule: &Schedule, rules: impl Into<Rules>) -> Vec<u64> {
    let network = Machine::loggopsim().network(schedule.ranks()).expect("a network");
    run(schedule, &network, &Node::quiet(), rules, Key::new(1), 0).expect("it ends").ends_ns
}

#[test]
fn a_message_takes_what_the_network_says_and_time_between_calls_is_computed() {
    let schedule = schedule(&[
        "MPI_Send:1100:93:1:1,8,8:1:7:5,0,2:1105\nMPI_Finalize:1105:1106",
        "MPI_Recv:1000:93:1:1,8,8:0:7:5,1,2:99:1120\nMPI_Finalize:1150.5:1160",
    ]);
    // the same by hand
    let goal = "num_ranks 2\nrank 0 {\na: calc 100000\nb: send 8b to 1 tag 7\nb requires a\n}\n\
                rank 1 {\na: recv 8b from 0 tag 7\nb: calc 30500\nb requires a\n}\n";
    let by_hand = super::read_text(goal.as_bytes(), "by hand").expect("sound");
    assert_eq!(schedule, by_hand);
    for rules in [Rules::LOGGOPSIM, Progress::ProgramOrder.into()] {
        assert_eq!(ends(&schedule, rules), ends(&by_hand, rules));
    }
    let mut text = Vec::new();
    super::write_text(&schedule, &mut text).expect("memory");
    assert_eq!(super::read_text(text.as_slice(), "again").expect("sound"), schedule);
}

#[test]
fn a_request_is_done_when_it_is_waited_for() {
    let other = "MPI_Recv:1000:93:1:1,8,8:0:7:5,1,2:99:1120\nMPI_Send:1120:93:1:1,8,8:0:8:5,1,2:1121\nMPI_Finalize:1121:1122";
    for (wait, size) in [("MPI_Waitall:1300:2:4096:0:1301", 8), ("MPI_Waitall:1300:2:4096:0:1301", 4)] {
        let second = 4096 + size;
        let calls = format!(
            "MPI_Irecv:1000:93:1:1,8,8:1:8:5,0,2:4096:1000\nMPI_Isend:1000:93:1:1,8,8:1:7:5,0,2:{second}:1000\n{wait}\n\
             MPI_Wait:1301:4096:0:1301\nMPI_Finalize:1301:1302"
        );
        let schedule = schedule(&[&calls, other]);
        // the exchange is over long before 300 µs of work are
        let ended = ends(&schedule, Rules::LOGGOPSIM)[0];
        assert!((300_000..310_000).contains(&ended), "{ended}");
        let waits = schedule.requirements(0).filter(|r| !r.start_only && r.on < 2).count();
        assert_eq!(waits, 2);
    }
}

#[test]
fn collectives_are_those_of_the_simulator() {
    for (call, operation, bytes) in [
        ("MPI_Barrier:1000:5,R,4:1001", Operation::Barrier, 0),
        ("MPI_Allreduce:1000:1:2:1:1,8,8:3:5,R,4:1001", Operation::Allreduce, 8),
        ("MPI_Bcast:1000:1:100:1,1,1:0:5,R,4:1001", Operation::Bcast, 100),
        ("MPI_Alltoall:1000:1:3:1,4,4:2:3:1,4,4:5,R,4:1001", Operation::Alltoall, 12),
        ("MPI_Allgather:1000:1:3:1,4,4:2:3:1,4,4:5,R,4:1001", Operation::Allgather, 12),
    ] {
        let calls =
            |rank: u32| format!("{}\nMPI_Finalize:1001:1002", call.replace(",R,", &format!(",{rank},")));
        let all: Vec<String> = (0..4).map(calls).collect();
        let made = schedule(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let lowered =
            super::lower(&Program::collective(operation, bytes, 1), &Machine::loggopsim(), 4, Key::new(1))
                .expect("sound");
        assert_eq!(ends(&made, Progress::ProgramOrder), ends(&lowered, Progress::ProgramOrder), "{call}");
        assert_eq!(made.messages(), lowered.messages());
    }
}

#[test]
fn a_tree_has_its_root_where_the_call_says() {
    for (call, is_root_last) in [
        ("MPI_Reduce:1000:1:2:1:1,8,8:3:2:5,R,5:1001", true),
        ("MPI_Bcast:1000:1:1:1,8,8:2:5,R,5:1001", false),
    ] {
        let calls =
            |rank: u32| format!("{}\nMPI_Finalize:1001:1002", call.replace(",R,", &format!(",{rank},")));
        let all: Vec<String> = (0..5).map(calls).collect();
        let made = schedule(&all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(made.messages(), 4);
        let ends = ends(&made, Progress::ProgramOrder);
        let root = ends[2];
        match is_root_last {
            true => assert!(ends.iter().all(|end| *end <= root), "{ends:?}"),
            false => assert!(ends.iter().enumerate().all(|(rank, end)| rank == 2 || *end > 0), "{ends:?}"),
        }
        assert_eq!(made.of_rank(2).filter(|o| o.kind == super::Kind::Recv).count() > 0, is_root_last);
    }
}

#[test]
fn an_exchange_sends_and_receives_at_once() {
    let calls = |rank: u32| {
        let other = 1 - rank;
        format!(
            "MPI_Sendrecv:1000:9:1:1,8,8:{other}:3:9:1:1,8,8:{other}:3:5,{rank},2:0:1001\nMPI_Sendrecv:1001:9:1:1,8,8:-2:3:9:1:1,8,8:-2:3:5,{rank},2:0:1001\nMPI_Finalize:1001:1002"
        )
    };
    let made = schedule(&[&calls(0), &calls(1)]);
    assert_eq!((made.messages(), made.operations()), (2, 4));
    assert!(ends(&made, Progress::ProgramOrder).iter().all(|end| *end > 0));
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let end = "MPI_Finalize:2000:2001";
    for (first, says) in [
        (
            "MPI_Scan:1001:1:2:1:1,8,8:3:5,0,2:1002\nMPI_Finalize:2000:2001",
            "pmpi-trace-rank-0.txt:5: `MPI_Scan` is a call",
        ),
        (
            "MPI_Barrier:1001:6,0,7:1002\nMPI_Finalize:2000:2001",
            ":5: MPI_Barrier uses a communicator in which this is rank 0 of 7",
        ),
        (
            "MPI_Barrier:900:5,0,2:1002\nMPI_Finalize:2000:2001",
            ":5: MPI_Barrier begins before the call above has ended",
        ),
        (
            "MPI_Send:1001:9:1:x:1:7:5,0,2:1002\nMPI_Finalize:2000:2001",
            ":5: arguments 2 and 3 of MPI_Send must be a count and a type",
        ),
        (
            "MPI_Send:1001:9:1:1,8,8:1:7:5,0,2:1002\nMPI_Finalize:2000:2001",
            ":5: 1 messages go from rank 0 to rank 1 with tag 7, and 0",
        ),
        ("MPI_Send:1001:9:1:1,8,8:5:7:5,0,2:1002\nMPI_Finalize:2000:2001", ":5: there is no rank 5"),
        (
            "MPI_Waitall:1001:9999999:5:6:1002\nMPI_Finalize:2000:2001",
            ":5: MPI_Waitall waits for 9999999 requests",
        ),
        ("hello\n", ":5: expected `MPI_Name:begin:arguments:end`, found `hello`"),
        ("", "the trace ends before MPI_Finalize"),
    ] {
        let error = error(&[first, end]);
        assert!(error.contains(says), "{first}: {error}");
    }
    let empty = tempfile::tempdir().expect("temp dir");
    assert!(read(empty.path()).expect_err("empty").to_string().contains("no files of liballprof"));
    let two = folder(&[end, end]);
    std::fs::remove_file(two.path().join("pmpi-trace-rank-0.txt")).expect("there");
    assert!(read(two.path()).expect_err("one").to_string().contains("the file of rank 0 is missing"));
}
