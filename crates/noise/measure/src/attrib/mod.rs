// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attribution: which source each detour came from.
//!
//! With privileges, BPF programs on the kernel's tracepoints record what runs on the measured CPUs
//! ([`probe`]). From these events follows what was on a CPU at every instant, the innermost first
//! ([`spans`]): an interrupt inside another task's time is the interrupt's, not the task's. Laid over the
//! detours ([`join`]) this says what each consists of, and what nothing explains. For a detour that ends a measurement
//! the programs also keep the kernel's stacks ([`stack`]), which are read with the kernel's [`symbols`].
//! They also count the [`senders`] of interprocessor interrupts.

pub mod event;
pub mod join;
pub mod probe;
pub mod senders;
mod skel;
pub mod spans;
pub mod stack;
pub mod symbols;

pub use join::{Attributed, Cause, attribute};
pub use probe::{Probe, ProbeError, Wanted};
pub use senders::{IpiReport, IpiSender};
