// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other tasks of a node while cores are reserved, and afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use colony_node::cpu::{self, CpuSet};
use colony_node::task::TaskId;

use crate::common::*;

#[test]
fn what_tasks_chose_before_and_during_a_reservation_is_theirs_after_it() {
    let Some(_cpu) = the_job_cpu() else { return };
    let (all, job) = (cpu::usable().expect("linux"), last_cpu());
    let spare = all.without(&job);
    let chooser = bound_to(&job);
    // bound to just the CPUs that will be spare, with a child that has all again
    let mut narrow = Command::new("sh");
    narrow.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
    let mut narrow = Owned(narrow.spawn().expect("sh"));
    cpu::bind(narrow.pid(), &spare).expect("ours");
    let mut line = String::new();
    BufReader::new(narrow.0.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
    let wide: i32 = line.trim().parse().expect("a number");
    cpu::bind(wide, &all).expect("ours");
    let has = |pid: i32, cpus: &CpuSet| cpu::affinity(pid).is_ok_and(|now| now == *cpus);
    let reservation = wait_until_ready(me(&["reserve", "1"]));
    let are_moved = || [chooser.pid(), wide].iter().all(|&pid| has(pid, &spare));
    assert!(eventually(are_moved).is_some(), "{:?}", cpu::affinity(wide));
    cpu::bind(chooser.pid(), &all).expect("ours");
    assert_eq!(stop(reservation).trim(), "ended");
    for (pid, own) in [(chooser.pid(), &all), (narrow.pid(), &spare), (wide, &all)] {
        assert!(has(pid, own), "{own}: {:?}", cpu::affinity(pid));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(wide), nix::sys::signal::Signal::SIGKILL)
        .expect("ours");
}

#[test]
fn a_transaction_and_a_reservation_end_in_any_order() {
    let Some(_cpu) = the_job_cpu() else { return };
    let (all, job) = (cpu::usable().expect("linux"), last_cpu());
    let spare = all.without(&job);
    let folder = tempfile::tempdir().expect("temp dir");
    let journal = folder.path().join("journal");
    std::fs::write(&journal, []).expect("ours");
    for (transaction_first, revert_first) in [(true, true), (true, false), (false, true), (false, false)] {
        let order = format!("transaction first: {transaction_first}, reverted first: {revert_first}");
        let moved = bound_to(&all);
        let task = TaskId::of(moved.pid()).expect("alive");
        let has = |cpus: &CpuSet| cpu::affinity(moved.pid()).is_ok_and(|now| now == *cpus);
        let transaction = |cpus: &CpuSet| colony_ledger::bind(&journal, task, cpus).expect("ours");
        if transaction_first {
            transaction(&job);
        }
        let reservation = wait_until_ready(me(&["reserve", "1"]));
        assert!(eventually(|| has(&spare)).is_some(), "{order}: {:?}", cpu::affinity(moved.pid()));
        if !transaction_first {
            transaction(&spare);
        }
        let revert = || colony_ledger::unbind(&journal, task, false).expect("ours");
        if revert_first {
            revert();
        }
        assert_eq!(stop(reservation).trim(), "ended", "{order}");
        if !revert_first {
            let expected = if transaction_first { &job } else { &spare };
            assert!(has(expected), "{order}: {:?}", cpu::affinity(moved.pid()));
            revert();
        }
        assert!(has(&all), "{order}: {:?}", cpu::affinity(moved.pid()));
    }
}
