// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inner loops, compiled for the processor's wide registers where it has them.
//!
//! Times are 64-bit unsigned numbers: comparing those in wide registers takes AVX2, which a program for
//! any x86-64 cannot count on.

use multiversion::multiversion;

/// Ranks that [`late`] has one bit for.
pub(crate) const PART: usize = 64;

/// Ranks whose arithmetic is done at a time, before anyone looks at their noise: no more than [`late`] has
/// bits for, and few enough to stay in the innermost cache.
pub(crate) const CHUNK: usize = 8 * PART;

/// Adds `ns` to all times.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn add(times: &mut [u64], ns: u64) {
    times.iter_mut().for_each(|t| *t += ns);
}

/// The latest time.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn latest(times: &[u64]) -> u64 {
    times.iter().fold(0, |a, &b| a.max(b))
}

/// The parts, of at most [`CHUNK`] ranks, that have an end after its start: a bit for each [`PART`].
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn late(ends: &[u64], starts: &[u64]) -> u32 {
    let parts = ends.chunks(PART).zip(starts.chunks(PART));
    parts.enumerate().fold(0, |mask, (k, (ends, starts))| {
        let late = ends.iter().zip(starts).fold(false, |late, (end, start)| late | (end > start));
        mask | u32::from(late) << k
    })
}

/// Receives: a message begins `latency_ns` after `from`, or as soon as the rank is free, and ends `add_ns` later.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn arrive(out: &mut [u64], own: &[u64], from: &[u64], latency_ns: u64, add_ns: u64) {
    for (out, (own, from)) in out.iter_mut().zip(own.iter().zip(from)) {
        *out = (*own).max(from + latency_ns) + add_ns;
    }
}

/// The same with a latency for each.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn arrive_each(out: &mut [u64], own: &[u64], from: &[u64], latency_ns: &[u32], add_ns: u64) {
    for (out, (own, (from, latency_ns))) in out.iter_mut().zip(own.iter().zip(from.iter().zip(latency_ns))) {
        *out = (*own).max(from + u64::from(*latency_ns)) + add_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_a_late_end_are_found() {
        let starts = vec![100; 200];
        let mut ends = vec![100; 200];
        assert_eq!(late(&ends, &starts), 0);
        (ends[63], ends[199]) = (101, 101);
        assert_eq!(late(&ends, &starts), 0b1001);
        assert_eq!(latest(&ends), 101);
    }
}
