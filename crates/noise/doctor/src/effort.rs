// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effort of a remedy: how much of a node and of its users' work changes with it.

use serde::{Deserialize, Serialize};

/// Effort of a remedy, the smallest first. Advice proposes a remedy of less effort before one of more effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// One program is moved, limited or stopped. Nothing else changes.
    Program,
    /// The job is started with other options. The node is as before when the job ends.
    JobStart,
    /// A setting of the running node, such as the CPUs of an interrupt.
    Setting,
    /// CPUs leave the scheduler's balancing on the running node (an isolated cpuset partition).
    Partition,
    /// A parameter of the kernel's command line, and a boot.
    Boot,
}

impl Effort {
    /// All, the cheapest first.
    pub const ALL: [Self; 5] = [Self::Program, Self::JobStart, Self::Setting, Self::Partition, Self::Boot];

    /// A word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::JobStart => "job start",
            Self::Setting => "now",
            Self::Partition => "partition",
            Self::Boot => "reboot",
        }
    }
}
