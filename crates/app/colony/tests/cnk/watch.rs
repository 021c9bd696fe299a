// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that die in the middle of a job: it ends, and says why.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use colony_fship::layout::{REPLIES_IN_CHANNEL, channel_at};
use colony_nodes::ciod::{Config, End, JobError, JobSpec, Network};
use colony_nodes::testing::hang_in;
use colony_nodes::{Cause, CnkError, Link, Machine, Partition};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Ran, ciod, folder, launch, programs, run, script};

/// Two nodes, with a daemon that has little patience with one that does not react.
fn boot(machine: Machine) -> Partition {
    let grace = Duration::from_secs(3);
    Partition::boot(machine, 2, Config { grace, ..Config::new(ciod()) }).expect("boots")
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("ours");
}

/// A job that does not end by itself.
fn endless(busybox: &Path, folder: &Path) -> JobSpec {
    script(busybox, folder, "while :; do :; done")
}

/// The job has ended by the death of node 1, and the partition works again.
fn told_and_replaced(partition: &mut Partition, ran: &Ran, busybox: &Path, folder: &Path) {
    let died: Vec<u32> = ran.deaths.iter().map(|d| d.node).collect();
    assert_eq!(died, [1], "{:?}", ran.outcome);
    assert!(ran.outcome.lost.contains(&1), "{:?}", ran.outcome);
    assert!(!matches!(ran.outcome.error, Some(JobError::Timeout { .. })), "{:?}", ran.outcome);
    let ran = run(partition, script(busybox, folder, "echo $COLONY_RANK"));
    assert_eq!(ran.output().lines().count(), 2, "both nodes work again");
}

#[test]
fn an_emulator_that_dies_ends_the_job() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default());
    let running = launch(&mut partition, endless(&busybox, place.path()));
    assert!(running.job().wait_started());
    send(partition.nodes()[1].pid(), Signal::SIGKILL);
    let ran = running.end(&partition);
    assert_eq!(ran.deaths[0].cause, Cause::Emulator("signal SIGKILL".into()));
    let ends: Vec<&End> = ran.outcome.processes.iter().map(|p| &p.end).collect();
    assert_eq!(ends, [&End::Signaled(9), &End::Lost(JobError::NodeUnresponsive(1))]);
    told_and_replaced(&mut partition, &ran, &busybox, place.path());
}

#[test]
fn others_go_on_without_a_node_that_died_if_the_job_says_so() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default());
    let text =
        "case $COLONY_RANK in 0) until [ -e go ]; do :; done; echo went on;; *) while :; do :; done;; esac";
    let mut job = script(&busybox, place.path(), text);
    job.go_on = true;
    let running = launch(&mut partition, job);
    assert!(running.job().wait_started());
    send(partition.nodes()[1].pid(), Signal::SIGKILL);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while running.job().deaths().is_empty() {
                std::thread::sleep(Duration::from_millis(10));
            }
            std::fs::write(place.path().join("go"), "").expect("ours");
        });
        running.job().wait();
    });
    let ran = running.end(&partition);
    assert_eq!(ran.stdout, "went on\n");
    assert_eq!(ran.outcome.processes[0].end, End::Exited(0));
    told_and_replaced(&mut partition, &ran, &busybox, place.path());
}

#[test]
fn a_node_that_dies_before_the_job_has_begun_ends_it() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default());
    let victim = partition.nodes()[1].pid();
    // it boots no further
    send(victim, Signal::SIGSTOP);
    let running = launch(&mut partition, endless(&busybox, place.path()));
    send(victim, Signal::SIGKILL);
    let outcome = running.job().wait();
    assert!(!running.job().has_begun(), "it can be launched again: {outcome:?}");
    assert!(outcome.error.is_some_and(|error| error.is_of_machine()));
    let ran = running.end(&partition);
    told_and_replaced(&mut partition, &ran, &busybox, place.path());
}

#[test]
fn a_node_that_dies_without_a_job_is_replaced_unless_it_never_had_one() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let die = |partition: &Partition| {
        send(partition.nodes()[1].pid(), Signal::SIGKILL);
        while partition.nodes()[1].check().is_ok() {}
    };
    let job = || script(&busybox, place.path(), "echo $COLONY_RANK");
    let mut partition = boot(Machine::default());
    run(&mut partition, job()).output();
    die(&partition);
    assert_eq!(run(&mut partition, job()).output().lines().count(), 2);
    // its places among the virtual machines are needed
    drop(partition);
    let mut partition = boot(Machine::default());
    die(&partition);
    let refused = partition.run_captured(job());
    assert!(matches!(refused, Err(CnkError::Died(death)) if death.node == 1));
}

#[test]
fn a_kernel_that_panics_ends_the_job() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default());
    // a call that waits for ever
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("ours");
    let running = launch(&mut partition, script(&busybox, place.path(), "read word <> fifo"));
    assert!(running.job().wait_started());
    let node = &partition.nodes()[1];
    let window = File::from(node.link().memory().try_clone_to_owned().expect("a descriptor"));
    // a ring that says it holds what no ring holds, until the kernel looks
    while !node.console().contains("panicked") {
        let tail = channel_at(0) + REPLIES_IN_CHANNEL;
        window.write_all_at(&0x7fff_ffffu32.to_le_bytes(), tail).expect("ours");
        nix::unistd::write(node.link().bells_to_node()[0], &1u64.to_ne_bytes()).expect("rings");
        std::thread::sleep(Duration::from_millis(10));
        let ended = running.job().wait_timeout(Duration::ZERO);
        assert_eq!(ended, None, "the kernel has not looked: {}", node.console());
    }
    let ran = running.end(&partition);
    assert_eq!(
        ran.deaths.first().map(|d| &d.cause),
        Some(&Cause::Panic),
        "{:?} {:?}",
        ran.deaths,
        ran.outcome
    );
    assert!(ran.deaths[0].said.contains("damaged a ring"), "{}", ran.deaths[0]);
    told_and_replaced(&mut partition, &ran, &busybox, place.path());
}

#[test]
fn a_kernel_that_hangs_in_a_call_ends_the_job_while_its_emulator_runs() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let network = Link::Network(Network::default());
    for machine in [Machine::default(), Machine { link: network, ..Machine::default() }] {
        let place = folder();
        let mut partition = boot(machine);
        let running = launch(&mut partition, script(&busybox, place.path(), "while :; do echo; done"));
        assert!(running.job().wait_started());
        hang_in(&partition.nodes()[1], "syscall_dispatch").expect("it has a monitor");
        let ran = running.end(&partition);
        let Cause::Hang(hang) = &ran.deaths[0].cause else { panic!("{}", ran.deaths[0]) };
        assert!(hang.looped_ns.is_some() && hang.at.ends_with("in syscall_dispatch"), "{hang}");
        told_and_replaced(&mut partition, &ran, &busybox, place.path());
    }
}

#[test]
fn an_idle_kernel_that_hangs_is_found_and_the_next_job_has_a_new_node() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default());
    run(&mut partition, script(&busybox, place.path(), "echo $COLONY_RANK"));
    let node = &partition.nodes()[0];
    assert!(node.check().is_ok(), "{:?}", node.check());
    // where it comes when it is woken
    hang_in(node, "trap_dispatch").expect("it has a monitor");
    nix::unistd::write(node.link().bells_to_node()[0], &1u64.to_ne_bytes()).expect("rings");
    let error = loop {
        match node.check() {
            Ok(()) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.starts_with("node 0 died: its kernel hangs: CPU 0 has run in the kernel for "), "{error}");
    let ran = run(&mut partition, script(&busybox, place.path(), "echo $COLONY_RANK"));
    assert_eq!(ran.output().lines().count(), 2, "{:?}", ran.outcome);
}

#[test]
fn a_proxy_that_dies_ends_the_job() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine { link: Link::Network(Network::default()), ..Machine::default() });
    let running = launch(&mut partition, endless(&busybox, place.path()));
    assert!(running.job().wait_started());
    send(partition.nodes()[1].proxy_pid().expect("it has one"), Signal::SIGKILL);
    let ran = running.end(&partition);
    assert_eq!(ran.deaths[0].cause, Cause::Proxy("signal SIGKILL".into()));
    told_and_replaced(&mut partition, &ran, &busybox, place.path());
}

#[test]
fn a_second_cpu_that_is_late_halts_and_the_node_goes_on_with_one() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let machine = Machine { kernel_words: vec!["hasty".into()], debug: true, ..Machine::default() };
    let mut partition = boot(machine);
    for round in 0..3 {
        let ran = run(&mut partition, script(&busybox, place.path(), "echo $COLONY_RANK"));
        assert_eq!(ran.output().lines().count(), 2, "{round}");
    }
    for node in partition.nodes() {
        assert!(node.check().is_ok(), "{:?}", node.check());
        assert!(node.console().contains("cnk: 1 CPUs"), "nobody was late: {}", node.console());
    }
}

#[test]
fn the_kernel_takes_at_most_256_kib_with_two_threads() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine { debug: true, ..Machine::default() });
    run(&mut partition, script(&busybox, place.path(), "echo $COLONY_RANK"));
    for node in partition.nodes() {
        let console = node.console();
        let (_, rest) = console.split_once("cnk: 2 CPUs").expect("the kernel tells its CPUs");
        let kib =
            rest.split(", ").find_map(|part| part.strip_suffix(" KiB resident")).expect("and its memory");
        assert!(kib.parse::<u64>().expect("a number") <= 256, "{console}");
    }
}
