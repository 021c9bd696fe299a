// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions of the kernel, without access to the machine: all of this runs, and is tested, on any Linux too.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod access;
pub mod clock;
pub mod frame;
pub mod futex;
pub mod job;
pub mod map;
pub mod reserve;
pub mod sched;
pub mod signals;
pub mod space;
#[cfg(test)]
mod testing;

/// The error `otherwise`, unless `condition` holds.
///
/// # Errors
/// `otherwise`.
pub fn ensure<E>(condition: bool, otherwise: E) -> Result<(), E> {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// `value` rounded up to a multiple of `unit`, a power of two; `None` where there is no such number.
pub fn round_up(value: u64, unit: u64) -> Option<u64> {
    Some(value.checked_add(unit - 1)? & !(unit - 1))
}

/// `value` rounded down to a multiple of `unit`, a power of two.
pub const fn round_down(value: u64, unit: u64) -> u64 {
    value & !(unit - 1)
}
