// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of programs on compute nodes: those of the emulator's plugin beside those of the node's kernel.

use std::path::Path;

use colony_nodes::ciod::Mode;
use colony_nodes::tlb::Setup;
use colony_nodes::{Accel, Machine, NodeCounters, RunCounters};

use crate::common::{boot, folder, programs, run, spec};
use crate::programs::compiled;

/// Counters of a run of `accesses` with so many rounds, on a node of its own.
fn counted(machine: Machine, program: &Path, rounds: &str) -> NodeCounters {
    let folder = program.parent().expect("it is in a folder");
    let mut partition = boot(machine, 1);
    let ran = run(&mut partition, spec(program, folder, &[rounds]));
    ran.output();
    let counts = partition.counts().expect("the plugin has started");
    RunCounters::new(&counts, &ran.outcome.processes).sum
}

/// What a round does, by `accesses.c`, is counted to the last byte, however time passes and whatever else is counted. The program
/// fails if `perf_event_open` gives anything else than `ENOSYS`.
#[test]
fn rounds_of_a_loop_are_counted_exactly() {
    let Some([]) = programs([]) else { return };
    let built = folder();
    let program = compiled("gcc", "accesses", &[], built.path());
    let one = Machine { cpus: 1, torus: Some(0), counters: true, ..Machine::default() };
    let instructions = Accel::Counted { shift: 1 };
    for machine in [
        Machine { accel: instructions, ..one.clone() },
        Machine { accel: instructions, tlb: Some(Setup::ppc440()), ..one.clone() },
        Machine { cpus: 2, ..one },
    ] {
        let count = |rounds| counted(machine.clone(), &program, rounds);
        // Numbers of as many digits, so that all but the loop is the same. The C library takes two instructions more to read a 9.
        let (fewer, more) = (count("1000"), count("5000"));
        let grown = |of: fn(&NodeCounters) -> u64| of(&more) - of(&fewer);
        assert_eq!(grown(|c| c.instructions), 4000 * 6, "{machine:?}: {fewer:?} {more:?}");
        assert_eq!((grown(|c| c.loads), grown(|c| c.stores)), (4000 * 3, 4000 * 2), "{machine:?}");
        assert_eq!(
            (grown(|c| c.bytes_loaded), grown(|c| c.bytes_stored)),
            (4000 * 16, 4000 * 6),
            "{machine:?}"
        );
        // interrupts depend on the time that the I/O daemon takes
        let calls = |of: &NodeCounters| of.kernel.map(|k| (k.local_calls, k.shipped_calls, k.faults));
        assert!(calls(&fewer) == calls(&more) && calls(&more) > Some((1, 0, 0)), "{fewer:?} {more:?}");
    }
}

#[test]
fn each_node_has_counters_of_its_own_and_those_of_two_processes_are_added() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine { counters: true, ..Machine::default() }, 3);
    let mut job = spec(&busybox, place.path(), &["true"]);
    (job.mode, job.processes) = (Mode::VirtualNode, Some(3));
    let ran = run(&mut partition, job);
    ran.output();
    let found = RunCounters::new(&partition.counts().expect("counted"), &ran.outcome.processes);
    let [two, one, none] = &found.nodes[..] else { panic!("three nodes: {found:?}") };
    let local = |node: &NodeCounters| node.kernel.expect("none was lost").local_calls;
    assert!(two.instructions > one.instructions && local(two) == 2 * local(one), "{found:?}");
    assert_eq!(
        (none.instructions, none.loads, none.stores, local(none)),
        (0, 0, 0, 0),
        "no process ran there"
    );
    assert_eq!(found.sum.instructions, two.instructions + one.instructions);
    assert!(two.bytes_loaded > two.loads && two.bytes_stored > two.stores, "{found:?}");
}
