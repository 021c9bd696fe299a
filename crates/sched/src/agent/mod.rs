//! The agent: coordinated windows from user space, for kernels without `sched_ext`.
//!
//! At every window edge, counted in TAI and so the same instant on every node, the job's tasks are
//! switched: in a favored window they are `SCHED_FIFO`, above everything else; in a regular window they
//! are in a low class, and everything else goes first (Colony Linux kernel technical report, section
//! 3.2; an agent beside the kernel is what its section 2.4 started from).

use std::sync::Arc;

use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::SchedError;
use crate::distribution::Distribution;
use crate::job::Job;

/// The class job tasks have in regular windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegularClass {
    /// `SCHED_IDLE`: everything else goes first.
    #[default]
    Idle,
    /// Each task's own class: a fair share.
    Own,
}

/// How an agent works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// The windows to keep.
    pub windows: Windows,
    /// The job's CPUs: one thread of the agent on each.
    pub cpus: CpuSet,
    /// `SCHED_FIFO` priority of job tasks in favored windows, 1..=97.
    pub favored_priority: u8,
    /// `SCHED_FIFO` priority of the agent's own threads and the guardian, above the job's, up to 99.
    pub agent_priority: u8,
    /// The class of job tasks in regular windows.
    pub regular: RegularClass,
}

impl AgentConfig {
    /// The usual priorities and classes with these windows on these CPUs.
    #[must_use]
    pub const fn new(windows: Windows, cpus: CpuSet) -> Self {
        Self { windows, cpus, favored_priority: 50, agent_priority: 60, regular: RegularClass::Idle }
    }
}

/// What an agent did so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentStats {
    /// Edges handled, counted on each CPU.
    pub edges: u64,
    /// Edges no thread was awake for in time: the window had passed already.
    pub missed: u64,
    /// How late after its edge each thread woke.
    pub lateness: Distribution,
    /// How long each thread took to switch its tasks.
    pub switching: Distribution,
    /// Tasks switched, counted at each edge.
    pub switches: u64,
    /// Tasks in the job now.
    pub tasks: u64,
    /// Tasks that ever joined.
    pub joined: u64,
    /// Tasks the scanner put right between edges: new ones, and such as no thread had switched.
    pub settled: u64,
    /// Tasks that could not be switched, or did not fit the table.
    pub errors: u64,
    /// The last such error.
    pub last_error: Option<String>,
    /// How often the guardian had died and was started again.
    pub guardian_restarts: u64,
    /// CPU time of the agent's threads.
    pub cpu_ns: u64,
    /// Time since the start.
    pub wall_ns: u64,
    /// Why the agent gave up and put the tasks back, if it did.
    pub stopped: Option<String>,
    /// What the user should know about these windows on this node.
    pub warnings: Vec<String>,
}

/// A running agent; dropping it stops it.
#[derive(Debug)]
pub struct Agent {}

impl Agent {
    /// Starts switching the tasks of `job`.
    ///
    /// # Errors
    /// [`SchedError::Config`] for impossible priorities or CPUs, [`SchedError::NoRealTime`] without the
    /// privilege, [`SchedError::Guardian`] where the guardian cannot be started.
    pub fn start(config: AgentConfig, job: Arc<Job>) -> Result<Self, SchedError> {
        let _ = (config, job);
        Err(SchedError::NoRealTime("not yet written".into()))
    }

    /// Changes the windows; the first edge of the new ones is the next to be kept.
    pub fn set_windows(&self, windows: Windows) {
        let _ = windows;
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> AgentStats {
        AgentStats::default()
    }

    /// Puts every task back into its own class and ends.
    #[must_use]
    pub fn stop(self) -> AgentStats {
        AgentStats::default()
    }
}
