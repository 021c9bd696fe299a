// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux I/O nodes: they stay, run one job after another, and their death ends a job and nothing else.

use std::io::Write as _;
use std::path::Path;

use colony_nodes::ciod::{Config, End, JobError, JobSpec, Network, Streams};
use colony_nodes::{IoNodes, Link, Machine, Partition, Places};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{ciod, folder, launch, programs, run, script, spec};

/// Nodes in two psets, each with a Linux I/O node.
const NODES: u32 = 4;

fn boot() -> Partition {
    boot_row(NODES, 2)
}

/// Nodes in psets of this size.
fn boot_row(nodes: u32, pset: u32) -> Partition {
    let link = Link::Network(Network::default());
    let machine = Machine { cpus: 1, memory: 16 << 20, link, io_nodes: IoNodes::Linux, ..Machine::default() };
    Partition::boot(machine, Places::row(nodes, Some(pset)), Config::new(ciod())).expect("boots")
}

/// A job whose output has the rank before each line.
fn labeled(busybox: &Path, text: &str) -> JobSpec {
    JobSpec { labels: true, ..script(busybox, Path::new("/work"), text) }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn linux_io_nodes_run_one_job_after_another() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    let given = place.path().join("given");
    std::fs::write(&given, "of the host\n").expect("written");

    // files of a job are its own, and leave with it
    let text = format!(
        "read x < {}; cd /tmp; [ -e $COLONY_RANK ] && exit 9; echo $x > $COLONY_RANK; read y < $COLONY_RANK; echo $y",
        given.display()
    );
    for _ in 0..2 {
        let job = JobSpec { copies: vec![given.clone()], ..labeled(&busybox, &text) };
        let ran = run(&mut partition, job);
        let expected = ["0: of the host", "1: of the host", "2: of the host", "3: of the host"];
        assert_eq!(sorted(ran.output()), expected);
    }
    assert_eq!(std::fs::read_dir(place.path()).expect("ours").count(), 1, "nothing is written on the host");

    // standard input is read by rank 0, all of it
    let input = "0123456789abcde\n".repeat(40_000);
    let mut file = colony_vm::qemu::memory_file("input").expect("a file");
    file.write_all(input.as_bytes()).expect("written");
    std::io::Seek::rewind(&mut file).expect("ours");
    let out = place.path().join("out");
    let stdout = std::fs::File::create(&out).expect("ours");
    let stderr = stdout.try_clone().expect("ours").into();
    let streams = Streams { stdin: file.into(), stdout: stdout.into(), stderr };
    let job = script(&busybox, Path::new("/"), "");
    let job = JobSpec { arguments: vec!["cat".into()], timeout_s: Some(240.0), ..job };
    let outcome = partition.run(job, streams).expect("starts");
    assert!(outcome.success(), "{outcome}");
    assert!(std::fs::read_to_string(&out).expect("ours") == input, "every byte, in order");

    // signals reach the programs of both I/O nodes; the first that ends by one ends the job
    let running = launch(&mut partition, labeled(&busybox, "while :; do :; done"));
    assert!(running.job().wait_started());
    running.job().signal(Signal::SIGTERM as i32).expect("it runs");
    let ran = running.end(&partition);
    let ends: Vec<End> = ran.outcome.processes.iter().map(|p| p.end.clone()).collect();
    assert!(ends.contains(&End::Signaled(15)), "{ends:?}");
    assert!(ends.iter().all(|end| matches!(end, End::Signaled(9 | 15))), "{ends:?}");

    // programs that do not run are refused before any starts
    let ran = run(&mut partition, JobSpec::new("/no/such/program"));
    assert!(matches!(ran.outcome.error, Some(JobError::Program { .. })), "{}", ran.outcome);
    let ran = run(&mut partition, labeled(&busybox, "echo $COLONY_RANK"));
    assert_eq!(sorted(ran.output()), ["0: 0", "1: 1", "2: 2", "3: 3"], "{}", ran.outcome);
}

#[test]
fn a_linux_io_node_that_dies_ends_its_job_and_the_next_runs_on_a_new_one() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let mut partition = boot();
    let running = launch(&mut partition, labeled(&busybox, "while :; do :; done"));
    assert!(running.job().wait_started());
    let (kept, pid) = (partition.io_node_pid(0), partition.io_node_pid(1).expect("it runs"));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("ours");
    let ran = running.end(&partition);
    let error = ran.outcome.error.clone().expect("the job has failed");
    assert!(error.to_string().starts_with("the I/O node of pset 1 failed"), "{error}");
    assert_eq!(ran.outcome.lost, [2, 3]);
    let ran = run(&mut partition, labeled(&busybox, "echo $COLONY_RANK"));
    assert_eq!(sorted(ran.output()), ["0: 0", "1: 1", "2: 2", "3: 3"], "{}", ran.outcome);
    assert_eq!(partition.io_node_pid(0), kept, "the other one stays");
    assert!(partition.io_node_pid(1).is_some_and(|new| new != pid));

    // a job that is killed in the middle leaves nodes that are started anew
    let running = launch(&mut partition, labeled(&busybox, "while :; do :; done"));
    assert!(running.job().wait_started());
    let relay = running.job().io_nodes()[0].1;
    kill(Pid::from_raw(relay.cast_signed()), Signal::SIGKILL).expect("ours");
    let ran = running.end(&partition);
    assert_eq!(ran.outcome.lost, [0, 1], "{}", ran.outcome);
    let ran = run(&mut partition, labeled(&busybox, "echo $COLONY_RANK"));
    assert_eq!(sorted(ran.output()), ["0: 0", "1: 1", "2: 2", "3: 3"], "{}", ran.outcome);
    assert_eq!(partition.io_node_pid(0), kept, "its I/O node stays");
}

#[test]
fn nodes_of_linux_io_nodes_exchange_messages() {
    let Some([bench]) = programs(["colony-bench-cnk"]) else { return };
    let mut partition = boot();
    for program in ["barrier", "allreduce", "alltoall"] {
        let arguments = [program, "--ops", "50", "--warmup", "2", "--json"];
        let ran = run(&mut partition, spec(&bench, Path::new("/work"), &arguments));
        let result: serde_json::Value = serde_json::from_str(ran.output()).expect("JSON");
        assert_eq!(result["ranks"], NODES, "{program}");
        let measured = &result["results"][0];
        assert_eq!(measured["wrong"], 0, "{program}: {measured}");
        assert!(measured["ops"].as_u64() > Some(0), "{program}: {measured}");
    }
}

#[test]
fn a_linux_io_node_serves_a_pset_of_128() {
    const MOST: u32 = 128;
    let Some([busybox]) = programs(["busybox"]) else { return };
    let mut partition = boot_row(MOST, MOST);
    // nodes that compute at the same time take the time of the I/O node, on a host with few CPUs
    let job = JobSpec { processes: Some(2), ..labeled(&busybox, "echo done") };
    assert_eq!(sorted(run(&mut partition, job).output()), ["0: done", "1: done"]);
    while !partition.nodes().iter().all(|node| node.link().has_asked()) {
        assert_eq!(partition.io_node_death(0), None);
        assert!(partition.nodes().iter().all(|node| node.check().is_ok()));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
