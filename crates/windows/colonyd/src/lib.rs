// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colonyd`, the node daemon: it owns the windows of a node and shows them as a tree of files.
//!
//! "The /proc interfaces, /proc/hpc/period and /proc/hpc/duty_cycle allow the HPC application to tune
//! scheduler behavior as well as identify itself to the kernel" (Colony Linux kernel technical report,
//! section 3.2). Here they are files below `/run/colony`, by FUSE, so that any program in any language
//! takes part by writing one:
//!
//! ```sh
//! echo 100ms > /run/colony/period
//! echo 95% > /run/colony/duty_cycle
//! echo 1 > /run/colony/job      # this shell and what it starts are the job
//! cat /run/colony/stats
//! ```
//!
//! [`config`] and [`limits`](colony_sched::limits) say what may be, [`access`] who may, [`setting`] keeps the windows possible,
//! [`clock`] judges how well they agree with other nodes', [`metrics`] shows monitors what they come to, [`health`] warns
//! programs that the node may fail, and [`serve`] runs it all, from mount to unmount.

pub mod access;
pub mod clock;
pub mod config;
mod event;
mod files;
mod guard;
pub mod health;
pub mod metrics;
mod mount;
mod notify;
mod privileges;
mod quota;
mod saved;
mod scheduler;
mod serve;
mod service;
pub mod setting;
mod tree;

pub use guard::guard_main;
pub use mount::MountError;
pub use scheduler::JoinError;
pub use serve::{DaemonError, serve};
pub use service::Refusal;
