// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health of the node: signs that it may fail, in a file that programs of objects watch to leave the node in time.
//!
//! A thread without any privilege looks at the memory controllers, the CPUs' thermal throttling, Slurm's state of the node and
//! an operator's marker, and replaces the [health file](colony_node::health) when the result changes. [`HealthRules`] is the
//! configuration.

mod edac;
mod file;
mod finding;
mod hour;
mod rules;
mod slurm;
mod sysfs;
mod thermal;
mod watch;
mod watcher;

pub use rules::{HealthRules, HealthRulesError};

pub(crate) use file::HealthFile;
pub(crate) use watch::start;
