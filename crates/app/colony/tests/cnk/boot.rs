// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that boots nodes: they outlive the thread that asked for them, and nothing outlives their owner.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use colony_node::task::{self, TaskId};
use colony_nodes::{Cause, Machine};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{boot, folder, launch, programs, run, script};

fn send(task: TaskId, signal: Signal) {
    kill(Pid::from_raw(task.tid), signal).expect("ours");
}

/// `colony cnk run` of two nodes whose job does not end, and the processes below it.
struct Run {
    owner: Child,
    booter: TaskId,
    emulators: Vec<TaskId>,
}

impl Run {
    fn start(busybox: &std::path::Path) -> Self {
        let mut owner = Command::new(assert_cmd::cargo::cargo_bin!("colony"))
            .args(["cnk", "run", "--nodes", "2", "--cpus", "1", "--"])
            .arg(busybox)
            .args(["sh", "-c", "echo runs; while :; do :; done"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("colony starts");
        let mut lines = BufReader::new(owner.stdout.take().expect("a pipe")).lines();
        (0..2).for_each(|_| assert_eq!(lines.next().expect("a line").expect("text"), "runs"));
        let below = task::children(owner.id().cast_signed());
        let booter = below.into_iter().find(|&p| task::name(p).as_deref() == Some("colony-boot"));
        let booter = booter.expect("the boot process is a child of the owner");
        let identified = |pid| TaskId::of(pid).expect("it runs");
        let emulators: Vec<TaskId> = task::children(booter).into_iter().map(identified).collect();
        assert_eq!(emulators.len(), 2, "the boot process has an emulator a node");
        Self { owner, booter: identified(booter), emulators }
    }

    /// Waits until all of its processes have ended.
    fn wait_for_end(mut self) {
        let _ = self.owner.wait();
        for process in self.emulators.iter().chain([&self.booter]) {
            while process.is_running_process().unwrap_or(false) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[test]
fn no_emulator_outlives_its_owner_or_the_boot_process_whichever_are_killed() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    // the owner alone
    let mut ran = Run::start(&busybox);
    ran.owner.kill().expect("ours");
    ran.wait_for_end();
    // the boot process alone: the owner reports it and ends
    let ran = Run::start(&busybox);
    send(ran.booter, Signal::SIGKILL);
    ran.wait_for_end();
    // both, stopped first so that neither sees the other's end
    let mut ran = Run::start(&busybox);
    let owner = TaskId::of(ran.owner.id().cast_signed()).expect("it runs");
    for process in [owner, ran.booter] {
        send(process, Signal::SIGSTOP);
    }
    send(ran.booter, Signal::SIGKILL);
    ran.owner.kill().expect("ours");
    ran.wait_for_end();
}

#[test]
fn nodes_outlive_the_thread_that_booted_them() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let machine = Machine { cpus: 1, ..Machine::default() };
    let booting = std::thread::spawn(move || boot(machine, 2));
    let mut partition = booting.join().expect("it boots");
    for _ in 0..2 {
        let ran = run(&mut partition, script(&busybox, place.path(), "echo $COLONY_RANK"));
        assert_eq!(ran.output().lines().count(), 2);
    }
}

#[test]
fn a_boot_process_that_dies_ends_the_job_and_is_replaced() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine { cpus: 1, ..Machine::default() }, 2);
    let running = launch(&mut partition, script(&busybox, place.path(), "while :; do :; done"));
    assert!(running.job().wait_started());
    let booter = partition.boot_pid().expect("a process").cast_signed();
    kill(Pid::from_raw(booter), Signal::SIGKILL).expect("ours");
    let ran = running.end(&partition);
    assert_eq!(ran.deaths.len(), 2, "{:?}", ran.deaths);
    let cause = Cause::BootProcess { pid: booter.cast_unsigned() };
    assert!(ran.deaths.iter().all(|d| d.cause == cause), "both deaths have one cause: {:?}", ran.deaths);
    let ran = run(&mut partition, script(&busybox, place.path(), "echo $COLONY_RANK"));
    assert_eq!(ran.output().lines().count(), 2, "both nodes work again");
}
