// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process for the tests.

use colony_fship::layout::{Process, Segment};

/// Bytes of its bank.
pub(crate) const BANK: u64 = 64 << 20;

/// A process with these segments: address, length, flags.
pub(crate) fn process(segments: &[(u64, u64, u64)]) -> Process {
    let mut process = Process { memory: BANK, stack: BANK - 64, ..Process::default() };
    for (place, &(address, length, flags)) in process.segments.iter_mut().zip(segments) {
        *place = Segment { address, length, flags };
        process.heap = address + length;
    }
    process.entry = segments.first().map_or(0, |s| s.0);
    process.segments_len = segments.len() as u64;
    process
}
