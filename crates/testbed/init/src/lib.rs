// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of a virtual machine's first program and its host: the [`job`] that the host puts into the
//! guest's memory, and the [frames](wire) the guest answers with on a virtual serial port.
//!
//! The program itself, `colony-init`, is built as a static binary and carried inside `colony-vm`.

pub mod job;
pub mod wire;

/// Path of the [`job::Job`] in the guest's root file system; the host writes it.
pub const JOB_PATH: &str = "/etc/colony/job.json";

/// Kernel modules to load before the job, one path a line, in this order.
pub const MODULES_PATH: &str = "/etc/colony/modules";

/// Name of the virtual serial port that frames go through.
pub const PORT: &str = "colony.job";
