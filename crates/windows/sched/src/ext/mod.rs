// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `sched_ext` backend: coordinated scheduling inside the kernel's scheduler (`bpf/scx_colony.bpf.c`).
//!
//! The Colony Linux kernel technical report moves coordinated scheduling from a daemon into the scheduler
//! (section 3.2). Here the scheduler is a BPF program, so the kernel is a stock one, and whatever happens
//! to the process that loaded it, the kernel's own scheduler is back at once.
//!
//! * [`ExtConfig`]: windows, CPUs, and who is exempt from them.
//! * [`ExtScheduler`]: the scheduler while it runs, and [`ExtStats`](colony_client::ExtStats), what it did.
//! * [`support`]: whether this kernel can, and who is in the way.
//! * [`rt`]: real-time tasks, which are above any such scheduler.

mod config;
mod demote;
mod error;
mod load;
pub mod rt;
mod skel;
pub mod support;
mod worker;

pub use config::{Exempt, ExemptError, ExtConfig, ExtOptions, KthreadPolicy};
pub use error::ExtError;
pub use worker::ExtScheduler;
