// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a folder of traces of liballprof: a form feed begins the trace of the next rank.
#![no_main]

use std::fs;
use std::path::Path;

/// Files that are made at most: more would repeat what these show.
const RANKS: usize = 8;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder for the traces");
    for (rank, trace) in bytes.split(|byte| *byte == b'\x0c').take(RANKS).enumerate() {
        write(folder.path(), rank, trace);
    }
    colony_sim::goal::fuzz_read_folder(folder.path());
});

fn write(folder: &Path, rank: usize, trace: &[u8]) {
    fs::write(folder.join(format!("pmpi-trace-rank-{rank}.txt")), trace).expect("a file of a trace");
}
