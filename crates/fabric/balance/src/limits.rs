// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds of a load database. They keep every sum of loads finite and every number in its type.

/// The most PEs.
pub const MAX_PES: u32 = 1 << 24;
/// The most objects.
pub const MAX_OBJECTS: u32 = u32::MAX - 1;
/// The largest load of an object or a PE, in seconds: 31,700 years.
pub const MAX_LOAD_S: f64 = 1e12;
/// The smallest relative speed of a PE.
pub const MIN_SPEED: f64 = 1e-6;
/// The largest relative speed of a PE.
pub const MAX_SPEED: f64 = 1e6;
