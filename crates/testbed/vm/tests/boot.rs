// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines that start: slow, so that each start proves several things.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use colony_vm::fleet::{self, NodeEvent};
use colony_vm::slots::Slots;
use colony_vm::testing::{missing, node, script};
use colony_vm::{Accel, Cause, Exit, Failure, Link, Outcome, Vm, VmError};

/// A node without programs of ours; `None`, with the reason printed, where machines cannot be started.
fn plain() -> Option<Vm> {
    if let Some(reason) = missing() {
        colony_testing::skip(reason);
        return None;
    }
    Some(node::<&str>([]).expect("a node"))
}

fn failure(result: Result<Outcome, VmError>) -> Failure {
    match result {
        Err(VmError::Failed(failure)) => *failure,
        other => panic!("not a machine that failed: {other:?}"),
    }
}

#[test]
fn a_program_runs_and_all_it_did_comes_back() {
    let Some(vm) = plain() else { return };
    let text = "
        test $$ -ne 1; test $(id -u) = 0; test $HOME = /root; test $PWD = /some/where; test \"$A\" = 'b c'
        mount | grep -q 'cgroup2 on /sys/fs/cgroup'; test -d /sys/kernel/debug/tracing
        ping -c 1 127.0.0.1 > /dev/null; test $(hostname) = guest; cat /extra
        # what the image has in a temporary folder is there
        test $(cat /tmp/given/extra) = given; test $(stat -c %a /tmp) = 1777
        # binary, in both streams, more than a pipe holds
        head -c 300000 /dev/zero; printf '\\377\\000x' >&2
        echo kept > /tmp/kept
        # orphans end with the job
        (sleep 100000 & sleep 100000 &)
        uname -r; exit 7";
    let vm = vm
        .icount(1)
        .name("guest")
        .cwd("/some/where")
        .env("A", "b c")
        .file("/extra", "added\n")
        .file("/tmp/given/extra", "given");
    let vm = vm.collect("/tmp/kept").collect("/not/there");
    let out = script(&vm, text).expect("it runs");
    assert_eq!(out.exit, Exit::Code(7), "{}{}", out.text(), out.error_text());
    let (zeros, ends) = (out.stdout.iter().filter(|&&b| b == 0).count(), (b"added\n", out.kernel.as_bytes()));
    assert_eq!(zeros, 300_000);
    assert!(out.stdout.starts_with(ends.0) && out.stdout.trim_ascii_end().ends_with(ends.1));
    assert_eq!(out.stderr, b"\xff\x00x");
    assert_eq!(out.files[Path::new("/tmp/kept")].as_deref(), Ok(b"kept\n".as_slice()));
    assert!(out.files[Path::new("/not/there")].as_ref().is_err_and(|e| e.contains("No such file")));
    assert!(out.boot.uptime_ns > 0 && out.guest.uptime_ns > out.boot.uptime_ns);
    assert!(out.guest.user_ns + out.guest.system_ns > 0 && out.guest.max_resident_bytes > 0);
    assert!(out.boot.host_cpu_ns <= out.host_cpu_ns);
    // generous for machines under load; the clean figure is in the book
    assert!(out.boot.host_cpu_ns < 30_000_000_000, "{:?}", out.boot);
}

#[test]
fn time_is_instructions_idling_costs_none_and_a_killed_program_is_distinguished() {
    let Some(vm) = plain() else { return };
    let text = "a=$(cut -d. -f1 /proc/uptime); sleep 100; b=$(cut -d. -f1 /proc/uptime); echo $((b - a)); date +%Y; kill -9 $$";
    let out = script(&vm.icount(1), text).expect("it runs");
    assert_eq!(out.exit, Exit::Signal(9));
    let text = out.text();
    let mut lines = text.lines().map(|l| l.parse::<u64>().expect("a number"));
    assert!(matches!(lines.next(), Some(100 | 101)), "{text}");
    assert_eq!(lines.next(), Some(2026));
}

#[test]
fn a_program_with_libraries_of_this_host_runs_and_one_that_is_not_there_is_127() {
    let Some(vm) = plain() else { return };
    drop(vm);
    // this test itself, with all it needs
    let own = std::env::current_exe().expect("linux");
    let vm = node([&own]).expect("a node").cpus(2).accel(Accel::SingleThread);
    let name = own.file_name().expect("a name").to_str().expect("text");
    let text = format!("{name} --list | grep time_is_instructions; nproc; test ! -e /etc/shadow; nowhere");
    let out = script(&vm, &text).expect("it runs");
    assert_eq!(out.exit, Exit::Code(127), "{}{}", out.text(), out.error_text());
    assert!(out.text().contains("time_is_instructions") && out.text().ends_with("2\n"), "{}", out.text());
}

#[test]
fn a_panic_brings_the_console_and_a_machine_that_says_nothing_is_given_up() {
    let Some(vm) = plain() else { return };
    let failed = failure(script(
        &vm,
        "echo before; sleep 1; echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger",
    ));
    assert_eq!(failed.cause, Cause::Panic);
    assert!(failed.console.contains("sysrq triggered crash") && failed.stdout == b"before\n", "{failed}");

    // long enough to start, even on a busy machine
    let limit = Duration::from_secs(10);
    let quiet = vm.clone().silence(limit);
    let failed = failure(quiet.run(&["sleep", "1000"]));
    assert_eq!(failed.cause, Cause::Silent(limit));
    // its kernel has said what its tasks wait for, and what its CPUs run
    let says = |what: &str| failed.console.contains(what);
    assert!(
        says("task:sleep") && says("hrtimer_nanosleep") && says("Show backtrace of all active CPUs"),
        "{}",
        failed.console
    );
    let short = vm.clone().timeout(Duration::from_millis(300));
    assert_eq!(failure(short.run(&["true"])).cause, Cause::Timeout(Duration::from_millis(300)));
    // a console that ends before there is a guest
    let broken = vm.append("rdinit=/nowhere");
    assert_eq!(failure(broken.run(&["true"])).cause, Cause::Panic);
}

#[test]
fn two_nodes_know_each_other_by_name_and_exchange_datagrams() {
    if let (Ok(node), Ok(nodes)) = (std::env::var("COLONY_NODE"), std::env::var("COLONY_NODES")) {
        return exchange(&node, &nodes);
    }
    if plain().is_none() {
        return;
    }
    // the program of both nodes: this test, started again there
    let own = std::env::current_exe().expect("linux");
    let vm = node([&own]).expect("a node");
    let text = format!(
        "test $(hostname) = n$COLONY_NODE; ping -c 2 -w 60 n$((1 - COLONY_NODE)) > /dev/null
         {} --exact two_nodes_know_each_other_by_name_and_exchange_datagrams --nocapture
         # a node whose program has ended is still there for the others
         test $COLONY_NODE = 0 || {{ sleep 2; ping -c 1 -w 60 n0 > /dev/null; }}",
        own.display()
    );
    let mut told = [0, 0];
    let listen = |node: u32, event: NodeEvent| {
        if matches!(event, NodeEvent::Stdout(_)) {
            told[node as usize] += 1;
        }
    };
    let out = fleet::run(&vm, 2, Link::default(), &["sh", "-euc", &text], listen).expect("both run");
    for (node, out) in out.iter().enumerate() {
        let text = out.text() + &out.error_text();
        assert_eq!(out.exit, Exit::Code(0), "{text}");
        assert!(text.contains(&format!("heard: datagram of n{}", 1 - node)), "{text}");
    }
    assert!(told.iter().all(|&n| n > 0));
}

/// Sends datagrams to the other node until both have heard of each other.
fn exchange(node: &str, nodes: &str) {
    assert_eq!(nodes, "2");
    let other = if node == "0" { "n1:99" } else { "n0:99" };
    let socket = UdpSocket::bind("0.0.0.0:99").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let mut heard = String::new();
    // a few more after the first that is heard, since the other may just begin
    let mut more = 20;
    while more > 0 {
        let said = format!("datagram of n{node}");
        let _ = socket.send_to(said.as_bytes(), other);
        let mut buffer = [0; 100];
        if let Ok((n, _)) = socket.recv_from(&mut buffer) {
            heard = String::from_utf8_lossy(&buffer[..n]).into_owned();
        }
        more -= i32::from(!heard.is_empty());
    }
    println!("heard: {heard}");
}

#[test]
fn a_runner_that_is_killed_leaves_no_emulator() {
    let Some(vm) = plain() else { return };
    const VARIABLE: &str = "COLONY_TEST_RUNNER";
    if std::env::var_os(VARIABLE).is_some() {
        // the runner: this test, started again below
        let _ = vm.name("victim").run(&["sleep", "100000"]);
        return;
    }
    let mut runner = Command::new(std::env::current_exe().expect("linux"))
        .args(["--exact", "a_runner_that_is_killed_leaves_no_emulator", "--nocapture"])
        .env(VARIABLE, "1")
        .spawn()
        .expect("this test");
    let id = runner.id();
    let children = || {
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
        let ids: Vec<u32> = lists
            .flat_map(|l| l.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect();
        ids
    };
    let is_emulator = |id: &u32| {
        std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|comm| comm.starts_with("qemu"))
    };
    // however long other machines have the slots
    let emulator = loop {
        if let Some(emulator) = children().into_iter().find(is_emulator) {
            break emulator;
        }
        assert!(runner.try_wait().expect("ours").is_none(), "it ended without an emulator");
        std::thread::sleep(Duration::from_millis(20));
    };
    runner.kill().expect("ours");
    runner.wait().expect("ours");
    wait_for(|| (!is_emulator(&emulator)).then_some(()));
    // and its slots are free again
    drop(Slots::take(usize::MAX).expect("slots"));
}

fn wait_for<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(value) = ready() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("waited a minute in vain");
}

#[test]
fn impossible_machines_are_refused_before_the_start() {
    let Some(vm) = plain() else { return };
    let refused = |vm: Vm, part: &str| {
        let error = vm.run(&["true"]).expect_err("refused");
        assert!(error.is_wrong_use() && error.to_string().contains(part), "{error}");
    };
    refused(vm.clone().icount(1).cpus(2), "use 1 CPU with icount");
    refused(vm.clone().icount(11), "at most 10");
    refused(vm.clone().cpus(0), "1 to 255");
    refused(vm.clone().memory_mib(64), "or more");
    assert!(vm.run::<&str>(&[]).expect_err("nothing to run").is_wrong_use());
    assert!(fleet::run(&vm, 0, Link::default(), &["true"], |_, _| {}).expect_err("no nodes").is_wrong_use());
}
