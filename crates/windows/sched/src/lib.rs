// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coordinated scheduling on Linux (Colony Linux kernel technical report, section 3.2).
//!
//! * [`job`]: the job class: registered processes and all that descends from them.
//! * [`agent`]: switches the job's tasks at every window edge, for kernels without `sched_ext`.
//! * [`ext`]: the same inside the kernel's scheduler, for kernels with `sched_ext`.
//! * [`guardian`]: the process that puts everything back when the agent dies.
//! * [`backend`], [`keeper`]: which of both is asked for; the one that works here, and the other when it ends.
//! * [`proof`]: what was stolen from the job, split by window, as the kernel's own events show it.
//! * [`limits`]: the bounds of windows.
//! * [`run`]: a program as the job class, start to end, with its proof.
//! * [`spare`]: the job's cores for the job alone, everything else on the others.
//! * [`binding`], [`undo`]: changes to a node, and undoing them when every process of Colony was killed; affinities of tasks are in
//!   the [ledger](colony_ledger).
//! * [`log`]: standard error of a process that must outlive it.
//!
//! The node daemon `colonyd` is built on this crate, and programs talk to it through `colony_client`.
//!
//! A program that starts an agent calls [`main_if_asked`] first thing in its `main`.

pub mod agent;
pub mod backend;
pub mod binding;
mod cgroup;
mod entry;
mod error;
pub mod ext;
pub mod guardian;
pub mod job;
pub mod keeper;
pub mod limits;
pub mod log;
pub mod proof;
mod relief;
mod restore;
pub mod run;
pub mod spare;
pub mod undo;

pub use cgroup::ThreadEntry;
pub use entry::{main_if_asked, restore};
pub use error::SchedError;
pub use relief::above_all_jobs;
