// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel survives whatever a program asks of it.

use colony_fship::Class;
use colony_fship::calls::{CALLS, number};
use colony_nodes::{Machine, Partition};

use crate::common::{Ran, boot, folder, programs, run, spec};

/// Calls that end the program, or go on elsewhere: they have no arguments that another call could not bring along.
const ENDS: [u32; 3] = [number::exit, number::exit_group, number::rt_sigreturn];

fn partition(cpus: u32) -> Partition {
    // little memory: whatever is cleared is cleared soon
    boot(Machine { cpus, memory: 16 << 20, ..Machine::default() }, 1)
}

fn survived(ran: &Ran, what: &str) {
    assert!(ran.deaths.is_empty() && ran.outcome.error.is_none(), "{what}: {:?} {}", ran.deaths, ran.outcome);
}

/// Every local call whose place in the table is `part` modulo `PARTS`, on a node of its own.
fn every_local_call(part: usize) {
    let Some([program]) = programs(["colony-extremes"]) else { return };
    let place = folder();
    let mut partition = partition(1);
    let calls = CALLS.iter().filter(|c| c.class == Class::Local && !ENDS.contains(&c.number.into()));
    for call in calls.skip(part).step_by(PARTS) {
        let ran = run(&mut partition, spec(&program, place.path(), &[call.name, "1"]));
        survived(&ran, call.name);
        assert!(ran.output().ends_with(" calls\n"), "{}: {}", call.name, ran.stdout);
    }
}

/// Tests that share the local calls: they run side by side, and none takes a minute.
const PARTS: usize = 3;

#[test]
fn every_local_call_with_extreme_arguments() {
    every_local_call(0);
}

#[test]
fn every_local_call_with_extreme_arguments_second_part() {
    every_local_call(1);
}

#[test]
fn every_local_call_with_extreme_arguments_third_part() {
    every_local_call(2);
}

/// Runs the calls that `name` chooses, in the order of each of these seeds.
fn in_any_order(cpus: u32, name: &str, seeds: std::ops::Range<u32>) {
    let Some([program]) = programs(["colony-extremes"]) else { return };
    let place = folder();
    let mut partition = partition(cpus);
    for seed in seeds {
        let seed = seed.to_string();
        let ran = run(&mut partition, spec(&program, place.path(), &[name, &seed]));
        survived(&ran, &format!("{name} {seed}"));
    }
}

#[test]
fn extreme_calls_in_any_order() {
    in_any_order(1, "any", 1..6);
}

#[test]
fn extreme_calls_in_any_other_order() {
    in_any_order(1, "any", 6..11);
}

#[test]
fn extreme_calls_in_any_order_on_two_cpus() {
    in_any_order(2, "any", 11..13);
}

#[test]
fn returns_from_no_handler() {
    in_any_order(1, "rt_sigreturn", 1..33);
}
