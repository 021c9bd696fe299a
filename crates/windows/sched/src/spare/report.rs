// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a reservation.

use colony_node::cpu::CpuSet;
use serde::{Deserialize, Serialize};

/// The way in which the job's CPUs are kept for the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partition {
    /// A cpuset partition of control groups version 2 that the scheduler does not balance.
    Isolated,
    /// A cpuset partition of version 2 that is balanced, for jobs that do not bind their threads.
    Balanced,
    /// A cpuset of version 2 without exclusive CPUs.
    Cpuset,
    /// A cpuset of version 1 without exclusive CPUs.
    CpusetV1,
    /// Affinities of tasks only.
    #[default]
    Affinity,
}

impl Partition {
    /// The partition in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Isolated => "isolated cpuset partition",
            Self::Balanced => "cpuset partition with load balancing",
            Self::Cpuset => "cpuset (cgroup v2), not exclusive",
            Self::CpusetV1 => "cpuset (cgroup v1), not exclusive",
            Self::Affinity => "affinity only",
        }
    }
}

/// A change of a setting of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// The doctor's rule that asks for it.
    pub rule: String,
    /// The file, or the command.
    pub setting: String,
    /// The kernel's answer, if the change was refused or read back as another value; `None` if it is in effect.
    pub refused: Option<String>,
}

/// A task that may still run on the job's CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staying {
    /// The name; CPU numbers of kernel threads are left out (`ksoftirqd`).
    pub name: String,
    /// Number of such tasks.
    pub count: usize,
    /// The reason.
    pub reason: String,
}

/// An interrupt's arrivals at the job's CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Name as in `/proc/interrupts`, with its devices.
    pub name: String,
    /// Arrivals a second at all job CPUs together, in a sample before the reservation.
    pub before_per_s: f64,
    /// Arrivals during the run.
    pub count: u64,
    /// Arrivals a second during the run.
    pub per_s: f64,
}

/// A reservation, as it was verified.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpareReport {
    /// The CPUs of everything but the job.
    pub spare: CpuSet,
    /// The way in which the job's CPUs are kept for the job.
    pub partition: Partition,
    /// Reasons why better ways were not possible, the best way first.
    pub fallbacks: Vec<String>,
    /// Changes of the node's settings.
    pub settings: Vec<SettingChange>,
    /// Findings of the doctor that nothing without a boot removes: rule and reason.
    pub left: Vec<(String, String)>,
    /// Tasks whose affinity was changed.
    pub moved: usize,
    /// Times that a task of the job was brought back to the job's CPUs.
    pub brought_back: u64,
    /// Tasks that may still run on the job's CPUs.
    pub staying: Vec<Staying>,
    /// Interrupts on the job's CPUs, the most frequent first.
    pub interrupts: Vec<Arrivals>,
    /// Restored settings that could not be verified, or changes that could not be undone.
    pub not_undone: Vec<String>,
}
