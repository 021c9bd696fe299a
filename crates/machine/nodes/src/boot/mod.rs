// SPDX-License-Identifier: MIT OR Apache-2.0
//! The boot process: a process of its own that starts the emulators of a partition, holds a pidfd of each, and ends them.
//!
//! Nodes live as long as their partition does, whichever thread of the caller booted them. The boot process kills all
//! of its emulators when the partition is dropped or the process that owns it dies (its socket is closed then); the kernel
//! kills them if the boot process itself dies, since it has one thread and each emulator is bound to that
//! (`PR_SET_PDEATHSIG`).

mod owner;
mod protocol;
mod server;

pub(crate) use owner::{Booter, Emulator};
pub use server::boot_main;
