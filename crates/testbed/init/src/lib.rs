// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a virtual machine's first program and its host say to each other: the [`job`] the host puts into the
//! guest's memory, and the [frames](wire) the guest answers with on a virtual serial port.
//!
//! The program itself, `colony-init`, is built as a static binary and carried inside `colony-vm`.

pub mod job;
pub mod wire;

/// Where the host leaves the [`job::Job`], in the guest's root file system.
pub const JOB_PATH: &str = "/etc/colony/job.json";

/// Kernel modules to load before the job, one path a line, in this order.
pub const MODULES_PATH: &str = "/etc/colony/modules";

/// Name of the virtual serial port that frames go through.
pub const PORT: &str = "colony.job";
