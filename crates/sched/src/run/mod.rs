//! A program as the job class, start to end, with its proof.

use std::ffi::OsString;

use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::SchedError;
use crate::agent::{AgentStats, RegularClass};
use crate::proof::Proof;

/// What makes the windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The best that works here.
    #[default]
    Auto,
    /// The user-space [agent](crate::agent).
    Agent,
    /// Nothing: the windows are only measured, for comparison.
    None,
}

/// What to run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// The windows.
    pub windows: Windows,
    /// What makes them.
    pub backend: Backend,
    /// The job's CPUs, to which the program is bound; `None`: all it may use.
    pub cpus: Option<CpuSet>,
    /// The class of job tasks in regular windows.
    pub regular: RegularClass,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// How the program ended.
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
    /// What made them: never `Auto`.
    pub backend: Backend,
    /// The job's CPUs.
    pub cpus: CpuSet,
    /// How the program ended.
    pub ending: Ending,
    /// Its length.
    pub wall_ns: u64,
    /// CPU time of the job: the program and every descendant that was waited for.
    pub job_cpu_ns: u64,
    /// What was stolen from it, and by whom.
    pub proof: Proof,
    /// What the agent did; `None` without one.
    pub agent: Option<AgentStats>,
    /// Processes of the job that outlived the program; they are in their own class.
    pub left_running: Vec<i32>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Runs a program as the job class and waits for its end. `SIGINT`, `SIGTERM`, `SIGHUP` and `SIGQUIT` sent to this
/// process go to the program; call it from a process that has no other threads yet. Prints nothing.
///
/// If this process is killed, the program goes on in its own class.
///
/// # Errors
/// [`SchedError`] where it cannot be started.
pub fn run(config: &RunConfig) -> Result<RunReport, SchedError> {
    let _ = config;
    Err(SchedError::NoRealTime("not yet written".into()))
}
