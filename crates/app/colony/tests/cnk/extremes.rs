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

#[test]
fn every_local_call_with_extreme_arguments() {
    let Some([program]) = programs(["colony-extremes"]) else { return };
    let place = folder();
    let mut partition = partition(1);
    for call in CALLS.iter().filter(|c| c.class == Class::Local && !ENDS.contains(&c.number.into())) {
        let ran = run(&mut partition, spec(&program, place.path(), &[call.name, "1"]));
        survived(&ran, call.name);
        assert!(ran.output().ends_with(" calls\n"), "{}: {}", call.name, ran.stdout);
    }
}

#[test]
fn extreme_calls_in_any_order_and_returns_from_no_handler() {
    let Some([program]) = programs(["colony-extremes"]) else { return };
    let place = folder();
    // most on one CPU: two of these tests have room beside each other
    for (cpus, name, seeds) in [(1, "any", 1..11), (1, "rt_sigreturn", 1..33), (2, "any", 11..13)] {
        let mut partition = partition(cpus);
        for seed in seeds {
            let seed = seed.to_string();
            let ran = run(&mut partition, spec(&program, place.path(), &[name, &seed]));
            survived(&ran, &format!("{name} {seed}"));
        }
    }
}
