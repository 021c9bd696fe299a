// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the BPF programs: the proof of a run, and the scheduler.

fn main() {
    colony_bpf::build::skeleton("bpf/windows.bpf.c", "windows");
    colony_bpf::build::skeleton("bpf/scx_colony.bpf.c", "scx_colony");
    for header in [
        "favored",
        "scx_compat",
        "scx_state",
        "scx_class",
        "scx_queue",
        "scx_account",
        "scx_bandwidth",
        "scx_late",
    ] {
        println!("cargo::rerun-if-changed=bpf/{header}.h");
    }
}
