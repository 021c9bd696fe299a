// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published times: Table 1 of the HPC-Colony progress report of 2006 (section 2.3).
//!
//! In-memory checkpoints of a 7-point stencil in MPI on Blue Gene/L at IBM's T. J. Watson, as the average of several
//! checkpoints.

/// Numbers of processors of the table.
pub(super) const PROCESSORS: [u64; 2] = [8192, 20_480];

/// Data of a processor in bytes, and seconds of a checkpoint on each number of processors; none if it was not measured.
/// The table gives kB, taken here as 1000 bytes.
pub(super) const TABLE_1: [(u64, [Option<f64>; 2]); 5] = [
    (80_000, [Some(0.161_300_6), Some(0.377_770_4)]),
    (300_000, [Some(0.162_638_6), None]),
    (1_200_000, [Some(0.180_174_4), None]),
    (5_000_000, [Some(0.237_076_4), None]),
    (20_000_000, [Some(0.417_442_8), Some(0.692_455_5)]),
];

/// The published times for a size, if it is in the table.
pub(super) fn times(bytes: u64) -> [Option<f64>; 2] {
    TABLE_1.iter().find(|(size, _)| *size == bytes).map_or([None; 2], |(_, times)| *times)
}
