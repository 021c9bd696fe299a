// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that are told their place by a control system.

use colony_model::{Block, Partition, PsetSize};
use colony_nodes::Machine;

use crate::common::{boot, folder, programs, run, script};

#[test]
fn programs_see_the_location_that_the_control_system_has_given() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let machine = colony_model::Machine::new("8x8x8".parse().expect("a shape")).expect("a machine");
    let block = Block::new(machine, [6, 2, 4], "2x2x2".parse().expect("a shape")).expect("a block");
    let partition = Partition::new(machine, "a", block, PsetSize::ALL[0]).expect("a partition");
    let place = folder();
    let mut nodes = boot(Machine { cpus: 1, ..Machine::default() }, partition.clone());
    // a shell cannot start a second process on a node; it becomes the command
    let job = script(&busybox, place.path(), &format!("exec {} uname -n > $COLONY_RANK", busybox.display()));
    assert!(run(&mut nodes, job).outcome.success());
    for rank in 0..8 {
        let seen = std::fs::read_to_string(place.path().join(rank.to_string())).expect("written");
        assert_eq!(seen.trim(), partition.location(rank).to_string());
    }
}
