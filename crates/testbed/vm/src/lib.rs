// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual Linux nodes as a test bed.
//!
//! A [`Kernel`] and an [`Image`] make a [`Vm`], which runs one program and returns its [`Outcome`]. Time in the guest
//! can be made a count of its instructions ([`Vm::icount`]), so that what is measured there does not depend on
//! what else the host does. All machines of a user share as many [slots] as there are CPUs.

mod accel;
pub mod cache;
pub mod counting;
mod digest;
mod error;
pub mod fleet;
pub mod image;
pub mod kernel;
pub mod machine;
pub mod net;
pub mod qemu;
pub mod report;
pub mod slots;
pub mod testing;
mod tool;

pub use accel::Accel;
pub use colony_init::job::Interface;
pub use colony_init::wire::{Exit, Finished};
pub use error::{Cause, Failure, VmError};
pub use image::{Image, Recipe};
pub use kernel::Kernel;
pub use machine::{Event, Outcome, Running, Stopper, Vm};
pub use net::{Link, Network};
