// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as the files of a run of Projections: up to the line `END` the `.sts` file, then the log of its PE.
#![no_main]

use colony_timeline::analysis::summary::Summary;
use colony_timeline::projections;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let end = bytes.windows(5).position(|w| w == b"\nEND\n").map_or(bytes.len(), |at| at + 5);
    let (sts, log) = bytes.split_at(end);
    let Ok(timeline) = projections::parse(sts, &[log]) else { return };
    let _ = Summary::of(&timeline, None, 50, 5);
});
