// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLB misses of programs on compute nodes, counted by the emulator's plugin.

use colony_nodes::tlb::{Counts, Setup};
use colony_nodes::{Accel, Machine};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{boot, folder, programs, run, script, spec};

/// A node whose time is counted in instructions, so that counts can be compared.
fn machine() -> Machine {
    let accel = Accel::Counted { shift: 1 };
    Machine { cpus: 1, torus: Some(0), accel, tlb: Some(Setup::ppc440()), ..Machine::default() }
}

/// Counts of a program on a node of its own.
fn counts(program: &std::path::Path, arguments: &[&str]) -> Counts {
    let place = folder();
    let mut partition = boot(machine(), 1);
    run(&mut partition, spec(program, place.path(), arguments)).output();
    partition.tlb_counts().expect("the plugin has started").expect("there is a TLB")
}

/// `ra` of class S makes 2^20 updates at random places of a table of 8 MiB twice, and passes through it four times in order. Its loop has
/// one page of code, or two: in each round of the entries, these are replaced once and miss again.
#[test]
fn random_updates_of_a_table_miss_as_often_as_the_tlb_does_not_hold_their_page() {
    const UPDATES: f64 = 2.0 * (1 << 20) as f64;
    const TABLE: f64 = (8 << 20) as f64;
    let Some([nas]) = programs(["colony-nas"]) else { return };
    let counts = counts(&nas, &["ra", "--class", "S", "--json"]);
    let expected = |page: f64, code: f64| {
        let held = 62.0 - code;
        (UPDATES * (1.0 - held * page / TABLE) + 4.0 * TABLE / page) * 62.0 / held
    };
    for (index, page) in [4096.0, 65536.0].into_iter().enumerate() {
        let (least, most) = (expected(page, 1.0) * 0.995, expected(page, 2.0) * 1.005);
        let misses = counts.misses[index] as f64;
        assert!((least..most).contains(&misses), "{misses} misses of {page} bytes, not {least} to {most}");
    }
    assert!(counts.misses[2] < 10, "the table is one page of 16 MiB or two: {counts:?}");
    assert!(counts.accesses as f64 > UPDATES && counts.instructions > counts.accesses, "{counts:?}");
}

#[test]
fn a_program_has_the_same_misses_in_every_run() {
    let Some([nas]) = programs(["colony-nas"]) else { return };
    let count = || counts(&nas, &["is", "--class", "S", "--json"]);
    let (first, second) = (count(), count());
    // the times that it prints have other digits
    let near = |a: u64, b: u64| a.abs_diff(b) <= 4 + a / 1000;
    let all = first.misses.into_iter().zip(second.misses).chain([(first.accesses, second.accesses)]);
    assert!(all.into_iter().all(|(a, b)| near(a, b)), "{first:?} {second:?}");
}

#[test]
fn what_the_kernel_does_for_a_program_is_not_counted_however_time_passes() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let calls = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); done > /dev/null";
    let count = |accel| {
        let mut partition = boot(Machine { accel, ..machine() }, 1);
        run(&mut partition, script(&busybox, place.path(), calls)).output();
        partition.tlb_counts().expect("started").expect("a TLB")
    };
    // without counted time, translated blocks are left at other places
    let (counted, not_counted) = (count(machine().accel), count(Accel::Emulated));
    let near = |a: u64, b: u64| a.abs_diff(b) <= 40 + a / 100;
    assert!(near(counted.accesses, not_counted.accesses), "{counted:?} {not_counted:?}");
    assert!(near(counted.misses[0], not_counted.misses[0]), "{counted:?} {not_counted:?}");
}

#[test]
fn neither_firmware_nor_kernel_is_counted_and_counts_survive_the_kill_of_the_emulator() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot(machine(), 1);
    let count =
        |partition: &colony_nodes::Partition| partition.tlb_counts().expect("started").expect("a TLB");
    run(&mut partition, spec(&busybox, place.path(), &["true"])).output();
    // firmware and boot take hundreds of thousands of instructions
    let first = count(&partition);
    assert!((1..100_000).contains(&first.instructions), "{first:?}");
    run(&mut partition, script(&busybox, place.path(), "for i in 1 2 3 4 5 6 7 8 9; do :; done")).output();
    let second = count(&partition);
    assert!(second.instructions > first.instructions, "the jobs of a node are counted together");
    kill(Pid::from_raw(partition.nodes()[0].pid().cast_signed()), Signal::SIGKILL).expect("ours");
    while partition.nodes()[0].check().is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(count(&partition), second);
}
