// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration and the report of a run.

use std::ffi::OsString;

use colony_client::{AgentStats, Backend, ExtStats};
use colony_node::cpu::CpuSet;
use colony_pages::{PagePolicy, PagesReport};
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::agent::RegularClass;
use crate::backend::BackendChoice;
use crate::ext::ExtOptions;
use crate::proof::Proof;
use crate::spare::{SpareCores, SpareReport};

/// The configuration of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// The windows.
    pub windows: Windows,
    /// The backend that is asked for.
    pub backend: BackendChoice,
    /// The job's CPUs, to which the program is bound; `None`: all it may use.
    pub cpus: Option<CpuSet>,
    /// The cores that are left to the system; `None`: the job shares its CPUs.
    pub spare: Option<SpareCores>,
    /// The class of job tasks in regular windows.
    pub regular: RegularClass,
    /// Settings of the scheduler in the kernel.
    pub ext: ExtOptions,
    /// Page size of the program; `None`: as the node's settings make it.
    pub pages: Option<PagePolicy>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ending {
    /// The exit code a shell would show: a signal's number plus 128.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
        }
    }
}

/// A run, with its proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// `colony.run/1`.
    pub schema: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The windows.
    pub windows: Windows,
    /// The backend that enforced them.
    pub backend: Backend,
    /// The job's CPUs.
    pub cpus: CpuSet,
    /// The end of the program.
    pub ending: Ending,
    /// Wall time of the run, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the job in nanoseconds: the program and every descendant that was waited for.
    pub job_cpu_ns: u64,
    /// Time stolen from the job, and the threads that took it.
    pub proof: Proof,
    /// Statistics of the agent; `None` without one.
    pub agent: Option<AgentStats>,
    /// Statistics of the scheduler in the kernel; `None` without one.
    pub sched_ext: Option<ExtStats>,
    /// The reservation of cores; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<SpareReport>,
    /// The job's memory by page size; `None` unless a page size was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PagesReport>,
    /// Processes of the job that outlived the program; they are in their own class.
    pub left_running: Vec<i32>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}
