// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose segments lie far apart.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use colony_nodes::ciod::{End, Mode};
use colony_nodes::{Machine, Partition};
use colony_vm::testing::missing;

use crate::common::{boot, folder, run, spec};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;

/// Writes a program of so many segments, each at the beginning of 2 MiB of its own, code first. It ends with 42.
fn write_program(path: &Path, segments: u64) {
    // mov edi, 42; mov eax, 231 (exit_group); syscall
    const CODE: [u8; 12] = [0xbf, 42, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05];
    const BASE: u64 = 4 * MIB;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    // an executable for x86-64, and the sizes of its headers
    put(&[2, 0, 62, 0, 1, 0, 0, 0]);
    [BASE, 64, 0].iter().for_each(|word| put(&word.to_le_bytes()));
    put(&[0, 0, 0, 0, 64, 0, 56, 0, segments as u8, 0, 64, 0, 0, 0, 0, 0]);
    for n in 0..segments {
        // to be read, and executed or written
        let flags = if n == 0 { 5u32 } else { 6 };
        put(&1u32.to_le_bytes());
        put(&flags.to_le_bytes());
        let at = BASE + n * 2 * MIB;
        let code = CODE.len() as u64;
        [PAGE as u64, at, at, code, code, PAGE as u64].iter().for_each(|word| put(&word.to_le_bytes()));
    }
    file.resize(PAGE, 0);
    file.extend_from_slice(&CODE);
    std::fs::write(path, file).expect("ours");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
}

fn boot_large() -> Option<Partition> {
    if let Some(reason) = missing() {
        colony_testing::skip(reason);
        return None;
    }
    Some(boot(Machine { memory: 2048 * MIB, ..Machine::default() }, 1))
}

#[test]
fn a_program_with_large_alignment_runs_on_a_node_with_much_memory() {
    let Some(mut partition) = boot_large() else { return };
    let place = folder();
    let program = place.path().join("program");
    for segments in [1, 4, 8] {
        write_program(&program, segments);
        let ran = run(&mut partition, spec(&program, place.path(), &[]));
        assert_eq!(ran.outcome.processes[0].end, End::Exited(42), "{segments}: {}", ran.outcome);
    }
}

#[test]
fn a_map_of_too_many_parts_is_told_and_the_node_goes_on() {
    let Some(mut partition) = boot_large() else { return };
    let place = folder();
    let program = place.path().join("program");
    let pid = partition.nodes()[0].pid();
    for (mode, ranks) in [(Mode::Coprocessor, 1), (Mode::VirtualNode, 2)] {
        write_program(&program, 16);
        let mut job = spec(&program, place.path(), &[]);
        job.mode = mode;
        let ran = run(&mut partition, job.clone());
        let ends: Vec<&End> = ran.outcome.processes.iter().map(|p| &p.end).collect();
        assert_eq!(ends, vec![&End::Signaled(9); ranks], "{}", ran.outcome);
        assert!(ran.outcome.log.iter().any(|line| line.contains("too many parts")), "{:?}", ran.outcome);
        assert!(ran.outcome.lost.is_empty(), "{:?}", ran.outcome);
        write_program(&program, 2);
        let ran = run(&mut partition, job);
        assert!(ran.outcome.processes.iter().all(|p| p.end == End::Exited(42)), "{}", ran.outcome);
    }
    assert_eq!(partition.nodes()[0].pid(), pid, "the same node");
}
