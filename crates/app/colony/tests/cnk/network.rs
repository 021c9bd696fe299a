// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that share no memory with their daemon.

use std::time::Duration;

use colony_nodes::ciod::{End, Mode, Network};
use colony_nodes::{Link, Machine};

use crate::common::{boot, folder, launch, programs, run, script, spec};
use crate::conformance;

fn machine(network: Network) -> Machine {
    Machine { link: Link::Network(network), ..Machine::default() }
}

/// A link that loses much, and carries little at once.
const BAD: Network = Network { mtu: 1500, lose_every: Some(7) };

#[test]
fn every_call_does_over_a_network_what_it_does_on_linux() {
    conformance::as_on_linux(machine(Network::default()));
}

#[test]
fn jobs_follow_one_another_with_their_arguments_streams_and_exit_codes() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(machine(Network::default()), 2);
    let pid = partition.nodes()[0].pid();
    let mut job = script(&busybox, place.path(), "echo $0 $NAME; echo problem >&2; exit 9");
    job.arguments.push("zero".into());
    job.environment.insert("NAME".into(), "value".into());
    let ran = run(&mut partition, job);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("zero value\nzero value\n", "problem\nproblem\n")
    );
    assert_eq!(ran.outcome.processes[0].end, End::Exited(9), "{}", ran.outcome);
    let mut job = script(&busybox, place.path(), "kill -SEGV $$");
    job.processes = Some(1);
    let ran = run(&mut partition, job);
    assert_eq!(ran.outcome.processes[0].end, End::Signaled(11), "{}", ran.outcome);
    let crash = ran.outcome.processes[0].crash.clone().unwrap_or_default();
    assert!(crash.contains("rip") && crash.contains("rsp"), "{crash}");
    let exec = format!("exec {} echo $COLONY_RANK of $COLONY_SIZE", busybox.display());
    let mut job = script(&busybox, place.path(), &exec);
    job.mode = Mode::VirtualNode;
    let ran = run(&mut partition, job);
    let mut lines: Vec<&str> = ran.output().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
    assert_eq!(partition.nodes()[0].pid(), pid, "the same node");
}

#[test]
fn a_signal_ends_a_program_that_computes_and_one_that_waits() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(machine(Network::default()), 1);
    for (text, signal) in [("while :; do :; done", 15), ("while :; do :; done", 9), ("sleep 100", 15)] {
        let running = launch(&mut partition, script(&busybox, place.path(), text));
        assert!(running.job().wait_started());
        std::thread::sleep(Duration::from_millis(200));
        running.job().signal(signal).expect("under way");
        let ran = running.end(&partition);
        assert_eq!(ran.outcome.processes[0].end, End::Signaled(signal), "{text}: {}", ran.outcome);
    }
}

#[test]
fn a_signal_that_comes_while_nodes_get_their_program_ends_it() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(machine(Network::default()), 1);
    for _ in 0..5 {
        let running = launch(&mut partition, script(&busybox, place.path(), "sleep 100"));
        running.job().signal(15).expect("told");
        let ran = running.end(&partition);
        assert_eq!(ran.outcome.processes[0].end, End::Signaled(15), "{}", ran.outcome);
    }
}

#[test]
fn files_are_kept_whole_over_a_link_that_loses_frames() {
    let Some([busybox, sqlite]) = programs(["busybox", "sqlite3"]) else { return };
    let place = folder();
    for network in [Network::default(), BAD] {
        let mut partition = boot(machine(network), 1);
        let make = "create table t(a integer primary key, b text); \
                    with recursive n(i) as (select 1 union all select i + 1 from n where i < 500) \
                    insert into t select i, printf('row %d', i * i) from n; \
                    begin; delete from t where a % 7 = 0; commit; \
                    select count(*), sum(a) from t; pragma integrity_check;";
        let ran = run(&mut partition, spec(&sqlite, place.path(), &[":memory:", make]));
        assert_eq!(ran.output(), "429|107358\nok\n");
        let ran = run(&mut partition, spec(&sqlite, place.path(), &["data", make]));
        assert_eq!(ran.output(), "429|107358\nok\n");
        let bytes: Vec<u8> = (0..300_000u32).map(|n| ((n * 7919) >> 5) as u8).collect();
        std::fs::write(place.path().join("bytes"), &bytes).expect("ours");
        run(&mut partition, spec(&busybox, place.path(), &["dd", "if=bytes", "of=copy", "bs=100000"]))
            .output();
        assert!(std::fs::read(place.path().join("copy")).expect("it was made") == bytes);
        std::fs::remove_file(place.path().join("data")).expect("it was made");
    }
}
