// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time as coordinated scheduling sees it.
//!
//! * [`Windows`]: one period is one favored window followed by one regular window; exact integer
//!   arithmetic on TAI nanoseconds (Colony Linux kernel technical report, section 3.2).
//! * [`DutyCycle`], [`cycles`]: shares, lengths and the Blue Gene/L notation (cycles at 700 MHz).
//! * [`text`]: what people write on a command line or into a control file (`100ms`, `95%`,
//!   `0xf4000000`); `notation` (features `std` and `serde`): the same in configurations.
//! * [`clock`], [`tsc`] (feature `std`): the clocks of the running machine, the time-stamp counter's
//!   calibration, and the map from one to the other.
//! * [`quality`], [`estimate`] (feature `std`): the error bound of this node's clock according to the kernel, and an
//!   estimate of another node's clock.
//!
//! Without the feature `std` the crate is `no_std` and allocates nothing.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod cycles;
mod duty;
mod ns;
pub mod text;
mod windows;

#[cfg(feature = "std")]
pub mod clock;
#[cfg(feature = "std")]
pub mod estimate;
#[cfg(all(feature = "std", feature = "serde"))]
pub mod notation;
#[cfg(feature = "std")]
pub mod quality;
#[cfg(feature = "std")]
pub mod tsc;

pub use duty::{DutyCycle, DutyError};
#[cfg(feature = "std")]
pub use estimate::Estimate;
#[cfg(feature = "std")]
pub use quality::ClockQuality;
pub use windows::{Edge, WindowKind, Windows, WindowsError};

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;
