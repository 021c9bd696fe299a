// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of all BPF objects of Colony: the small CO-RE header (`include/colony_kernel.h`), the build
//! step (`build`, for build scripts), and the check whether BPF works here ([`check`]).

#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "load")]
mod load;

#[cfg(feature = "load")]
pub use load::{Plain, Unavailable, bytes_of, check, place, read};
