// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node makes no noise.

use colony_nodes::{Accel, Machine};

use crate::common::{boot, folder, programs, run, spec};

#[test]
fn nothing_interrupts_a_program_that_computes() {
    let Some([selfish, nas]) = programs(["colony-selfish", "colony-nas"]) else { return };
    let place = folder();
    let machine = Machine { cpus: 1, accel: Accel::Counted { shift: 1 }, ..Machine::default() };
    let mut partition = boot(machine, 1);
    let ran = run(&mut partition, spec(&selfish, place.path(), &["--seconds", "1", "--threshold", "1us"]));
    let result: serde_json::Value = serde_json::from_str(ran.output()).expect("JSON");
    assert_eq!(result["detours"]["count"], 0, "no detour above 1 us: {result}");
    assert!(result["seconds"].as_f64() >= Some(0.9) && result["turns"].as_u64() > Some(1000), "{result}");
    assert_eq!(ran.outcome.processes[0].counters.timer_interrupts, 0, "{:?}", ran.outcome);
    let kernels = ["is", "lu", "sp", "bt", "--class", "S", "--json"];
    let ran = run(&mut partition, spec(&nas, place.path(), &kernels));
    for line in ran.output().lines() {
        let result: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(result["verified"], true, "{result}");
    }
    let counters = ran.outcome.processes[0].counters;
    assert_eq!((counters.timer_interrupts, counters.faults), (0, 0), "{counters:?}");
}
