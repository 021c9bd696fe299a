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

/// The ends of all ranks of a trace in which each rank has the one call, whose `R` stands for the number of the rank.
fn ends_of_call(calls: &[&str]) -> Vec<u64> {
    let all: Vec<String> = (0..)
        .zip(calls)
        .map(|(rank, call)| format!("{}\nMPI_Finalize:1001:1002", call.replace(",R,", &format!(",{rank},"))))
        .collect();
    ends(&schedule(&all.iter().map(String::as_str).collect::<Vec<_>>()), Progress::ProgramOrder)
}

// LogGOPSim's machine: o = 1500, L = 2500, G = 6: a message of 8 bytes is received 5542 ns after it is sent, one of 16 bytes 5590, one
// of 108 bytes 6142.

/// A message of 8 bytes that waits for the receiver's CPU takes o + 7 · G there.
const LATE: u64 = 1542;

#[test]
fn gather_and_scatter_are_binomial_trees() {
    // the root has a message of one rank and one of two, the later of which begins when its sender has that of the rank below
    assert_eq!(
        ends_of_call(&["MPI_Gather:1000:1:1:1,8,8:2:1:1,8,8:0:5,R,4:1001"; 4]),
        [5542 + 5590, 1500, 5542 + 1500, 1500]
    );
    // with another root, ranks count from the root; only the root's second count and type matter there
    let [other, root] = ["1:1,8,8:2:9:1,9,9", "0:1,8,8:2:1:1,8,8"]
        .map(|parts| format!("MPI_Gather:1000:1:{parts}:1:5,R,4:1001"));
    assert_eq!(ends_of_call(&[&other, &root, &other, &other]), [1500, 5542 + 5590, 1500, 5542 + 1500]);
    // 16 bytes to the far rank, then 8 to the near one
    assert_eq!(
        ends_of_call(&["MPI_Scatter:1000:1:1:1,8,8:2:1:1,8,8:0:5,R,4:1001"; 4]),
        [3000, 1500 + 5542, 5590 + 1500, 5590 + 5542]
    );
}

#[test]
fn collectives_with_counts_send_the_bytes_of_each_rank() {
    let two = |a: &str, b: &str| ends_of_call(&[a, b]);
    let gatherv = "MPI_Gatherv:1000:1:COUNT:1,8,8:2:70:1,2:71:0,1:1,8,8:0:5,R,2:1001";
    assert_eq!(two(&gatherv.replace("COUNT", "1"), &gatherv.replace("COUNT", "2")), [5590, 1500]);
    let scatterv = "MPI_Scatterv:1000:1:70:1,27:71:0,1:1,4,4:2:27:1,4,4:0:5,R,2:1001";
    assert_eq!(two(scatterv, scatterv), [1500, 6142]);
    let allgatherv = "MPI_Allgatherv:1000:1:COUNT:1,8,8:2:70:1,2:71:0,1:1,8,8:5,R,2:1001";
    assert_eq!(two(&allgatherv.replace("COUNT", "1"), &allgatherv.replace("COUNT", "2")), [5590, 5542]);
    let alltoallv = |sent: &str, received: &str| {
        format!("MPI_Alltoallv:1000:1:70:{sent}:71:0,0:1,4,4:2:72:{received}:73:0,0:1,4,4:5,R,2:1001")
    };
    assert_eq!(two(&alltoallv("9,2", "9,27"), &alltoallv("27,9", "2,9")), [6142, 5542]);
    let reduce_scatter = "MPI_Reduce_scatter:1000:1:2:70:1,2:1,8,8:3:5,R,2:1001";
    assert_eq!(two(reduce_scatter, reduce_scatter), [5542, 5590]);
    let scan = "MPI_Scan:1000:1:2:1:1,8,8:3:5,R,2:1001";
    assert_eq!(two(scan, scan), [1500, 5542]);
}

#[test]
fn a_tested_request_is_complete_at_its_last_test_unless_it_is_waited_for() {
    let irecv = "MPI_Irecv:1000:93:1:1,8,8:0:7:5,1,2:4096:1000";
    // the message is received 505.542 µs after the begin, and 100 µs of work follow
    let send = "MPI_Send:1500:93:1:1,8,8:1:7:5,0,2:1501\nMPI_Finalize:1501:1502";
    let tested = |after: &str| {
        let calls = format!("{irecv}\nMPI_Test:1100:4096:1:2:1100\n{after}");
        let made = schedule(&[send, &calls]);
        (ends(&made, Progress::ProgramOrder)[1], made.notes().to_vec())
    };
    let (end, notes) = tested("MPI_Test:1200:4096:1:2:1200\nMPI_Finalize:1300:1301");
    assert_eq!(end, 505_542 + 100_000);
    assert!(notes.len() == 1 && notes[0].starts_with("2 calls of MPI_Test"), "{notes:?}");
    // the wait takes the message, and the work after the tests is done before
    let (end, _) =
        tested("MPI_Testall:1200:1:4096:1:2:1200\nMPI_Wait:1300:4096:0:1301\nMPI_Finalize:1301:1302");
    assert_eq!(end, 505_542);
    // a second request at the same address: the last test before it completed the first one
    let twice = "MPI_Send:1500:93:1:1,8,8:1:7:5,0,2:1501\nMPI_Send:1501:93:1:1,8,8:1:7:5,0,2:1502\nMPI_Finalize:1502:1503";
    let calls = format!(
        "{irecv}\nMPI_Testany:1000:1:4096:9:1:2:1000\n{}\nMPI_Wait:1200:4096:0:1201\nMPI_Finalize:1201:1202",
        irecv.replace(":1000", ":1100")
    );
    assert_eq!(ends(&schedule(&[twice, &calls]), Progress::ProgramOrder)[1], 505_542 + 200_000 + LATE);
}

#[test]
fn waitany_takes_the_oldest_request_and_waitsome_all() {
    // received 5.542 and 57.042 µs after the begin, if the rank has nothing else to do
    let sends = "MPI_Send:1000:93:1:1,8,8:1:1:5,0,2:1000\nMPI_Send:1050:93:1:1,8,8:1:2:5,0,2:1051\nMPI_Finalize:1051:1052";
    let with = |call: &str| {
        let receives = format!(
            "MPI_Irecv:1000:93:1:1,8,8:0:1:5,1,2:4096:1000\nMPI_Irecv:1000:93:1:1,8,8:0:2:5,1,2:4104:1000\n\
             {call}:1000:2:4096:7:8:9:1000\n{call}:1100:2:4096:7:8:9:1101\nMPI_Finalize:1101:1102"
        );
        let made = schedule(&[sends, &receives]);
        (ends(&made, Progress::ProgramOrder)[1], made.notes().join(" "))
    };
    let (end, notes) = with("MPI_Waitany");
    assert_eq!(end, 105_542 + LATE);
    assert!(notes.starts_with("2 calls of MPI_Waitany do not say"), "{notes}");
    let (end, notes) = with("MPI_Waitsome");
    assert_eq!(end, 57_042 + 100_000);
    assert!(notes.starts_with("1 calls of MPI_Waitsome do not say"), "{notes}");
}

#[test]
fn a_persistent_request_is_started_again_and_again() {
    let sender = "MPI_Send_init:1000:93:1:1,8,8:1:7:5,0,2:4096:1000\nMPI_Start:1500:4096:1500\nMPI_Wait:1500:4096:0:1500\n\
                  MPI_Startall:1600:1:4096:1600\nMPI_Waitall:1600:1:4096:0:1601\nMPI_Request_free:1601:4096:1601\nMPI_Finalize:1601:1602";
    let receiver = "MPI_Recv_init:1000:93:1:1,8,8:0:7:5,1,2:4096:1000\nMPI_Start:1000:4096:1000\nMPI_Wait:1000:4096:0:1000\n\
                    MPI_Start:1000:4096:1000\nMPI_Wait:1000:4096:0:1000\nMPI_Finalize:1000:1002";
    let made = schedule(&[sender, receiver]);
    assert_eq!(made.messages(), 2);
    assert_eq!(made.notes(), [] as [String; 0]);
    let second = 500_000 + 1500 + 100_000;
    assert_eq!(ends(&made, Progress::ProgramOrder), [second + 1500, second + 5542]);
    let unknown = error(&["MPI_Start:1001:4096:1002\nMPI_Finalize:2000:2001", "MPI_Finalize:2000:2001"]);
    assert!(unknown.contains(":5: MPI_Start starts a request at address 4096, where no call"), "{unknown}");
}

#[test]
fn making_a_communicator_takes_an_exchange_and_messages_of_several_are_noted() {
    let barrier = "MPI_Barrier:1000:6,R,4:1001";
    let barrier = ends_of_call(&[barrier; 4]);
    let split = ends_of_call(&["MPI_Comm_split:1000:5,R,4:0:0:99:1001"; 4]);
    assert!(split.iter().zip(&barrier).all(|(split, barrier)| split >= barrier), "{split:?} {barrier:?}");
    let message = |handle: u32| {
        schedule(&[
            &format!(
                "MPI_Send:1000:9:1:1,8,8:1:7:5,0,2:1000\nMPI_Send:1000:9:1:1,8,8:1:8:{handle},0,2:1000\nMPI_Finalize:1000:1001"
            ),
            "MPI_Recv:1000:9:1:1,8,8:0:7:5,1,2:0:1000\nMPI_Recv:1000:9:1:1,8,8:0:8:5,1,2:0:1000\nMPI_Finalize:1000:1001",
        ])
    };
    assert_eq!(message(5).notes(), [] as [String; 0]);
    assert!(message(6).notes()[0].starts_with("messages are sent in several communicators"));
    let own =
        error(&["MPI_Send:1001:9:1:1,8,8:0:7:4,0,1:1002\nMPI_Finalize:2000:2001", "MPI_Finalize:2000:2001"]);
    assert!(own.contains(":5: MPI_Send sends a message from a rank to itself"), "{own}");
}

#[test]
fn collectives_that_do_not_match_are_named_with_file_line_and_call() {
    let end = "MPI_Finalize:2000:2001";
    let barrier = |rank: u32| format!("MPI_Barrier:1001:5,{rank},2:1002\n");
    let bcast =
        |rank: u32, root: u32, bytes: u32| format!("MPI_Bcast:1003:1:{bytes}:1,1,1:{root}:5,{rank},2:1004\n");
    let counts = |rank: u32, count: u32| {
        format!("MPI_Gatherv:1005:1:{count}:1,8,8:2:70:1,2:71:0,1:1,8,8:0:5,{rank},2:1006\n")
    };
    for (first, second, says) in [
        (
            format!("{}{}", barrier(0), bcast(0, 0, 8)),
            format!("{}{}", barrier(1), barrier(1).replace("1001:", "1002:")),
            "pmpi-trace-rank-1.txt:6: MPI_Barrier, the 2nd collective call of rank 1, does not match that of rank 0, which has MPI_Bcast at \
             line 6 of pmpi-trace-rank-0.txt",
        ),
        (
            bcast(0, 0, 8),
            bcast(1, 1, 8),
            "rank-1.txt:5: MPI_Bcast, the 1st collective call of rank 1, does not match that of rank 0, which has root 0 instead of 1",
        ),
        (bcast(0, 0, 8), bcast(1, 0, 9), "which has 8 bytes instead of 9 at line 5 of"),
        (
            barrier(0),
            String::new(),
            "rank-1.txt:5: rank 1 ends without the 1st collective call, which is MPI_Barrier at line 5 of",
        ),
        (
            String::new(),
            barrier(1),
            "rank-1.txt:5: MPI_Barrier, the 1st collective call of rank 1, has no counterpart",
        ),
        (
            format!("{}{}", barrier(0), counts(0, 1)),
            format!("{}{}", barrier(1), counts(1, 3)),
            "rank-0.txt:6: MPI_Gatherv, the 2nd collective call of rank 0: rank 1 sends 24 bytes to rank 0, which receives 16; compare the \
             counts of this call in the trace of rank 1",
        ),
    ] {
        let error = error(&[&format!("{first}{end}"), &format!("{second}{end}")]);
        assert!(error.contains(says) && !error.contains("tag"), "{error}");
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let end = "MPI_Finalize:2000:2001";
    for (first, says) in [
        (
            "MPI_Exscan:1001:1:2:1:1,8,8:3:5,0,2:1002\nMPI_Finalize:2000:2001",
            "pmpi-trace-rank-0.txt:5: `MPI_Exscan` is a call",
        ),
        (
            "MPI_Barrier:1001:6,0,7:1002\nMPI_Finalize:2000:2001",
            ":5: MPI_Barrier uses a communicator of 7 ranks, and there are files of 2",
        ),
        (
            "MPI_Barrier:1001:6,1,2:1002\nMPI_Finalize:2000:2001",
            ":5: MPI_Barrier uses a communicator in which this is rank 1 of 2, and it is rank 0 of 2",
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
    let packed = folder(&[end, end]);
    let file = |end: &str| packed.path().join(format!("pmpi-trace-rank-1.txt{end}"));
    std::fs::rename(file(""), file(".gz")).expect("there");
    assert!(read(packed.path()).expect_err("packed").to_string().contains("is compressed: unpack"));
    let one = folder(&[end]);
    let error = read(&one.path().join("pmpi-trace-rank-0.txt")).expect_err("one rank").to_string();
    assert!(error.contains("a trace of MPI calls by liballprof"), "{error}");
    let empty = tempfile::tempdir().expect("temp dir");
    assert!(read(empty.path()).expect_err("empty").to_string().contains("no files of liballprof"));
    let two = folder(&[end, end]);
    std::fs::remove_file(two.path().join("pmpi-trace-rank-0.txt")).expect("there");
    assert!(read(two.path()).expect_err("one").to_string().contains("the file of rank 0 is missing"));
}
