// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a proof.

use serde::{Deserialize, Serialize};

/// The source of a proof's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofSource {
    /// Scheduler events seen by BPF programs: exact, with the threads by name.
    Bpf,
    /// `/proc/<tid>/schedstat` read just after each edge: totals only, waits of job tasks for each other included.
    Schedstat,
}

/// Times of one kind of window, summed over the job's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowTimes {
    /// Time observed: windows' length times CPUs.
    pub observed_ns: u64,
    /// A job task ran.
    pub job_ns: u64,
    /// Something else ran while a job task waited for that CPU.
    pub stolen_ns: u64,
    /// A job task waited for a CPU on which another job task ran.
    pub contended_ns: u64,
    /// A job task waited for a CPU that was idle: it was waking up, or held by the kernel's throttling.
    pub waking_ns: u64,
    /// Something else ran and no job task wanted that CPU.
    pub filled_ns: u64,
    /// The CPU was idle and no job task wanted it.
    pub idle_ns: u64,
    /// Interrupts and softirqs while a job task ran: a part of `job_ns` and `contended_ns`, which no window
    /// takes away.
    pub interrupts_ns: u64,
}

/// A thread that is not the job's, and when it ran on the job's CPUs; threads of one name are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// The thread's name.
    pub comm: String,
    /// Its time in favored windows while a job task waited: not deferred.
    pub favored_ns: u64,
    /// Its time in regular windows while a job task waited: deferred to where it belongs.
    pub regular_ns: u64,
    /// Number of times it took a CPU from a job task.
    pub times: u64,
}

/// The CPU time that was stolen from the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The source of the figures.
    pub source: ProofSource,
    /// Favored windows.
    pub favored: WindowTimes,
    /// Regular windows.
    pub regular: WindowTimes,
    /// The threads that ran while the job waited, most first; empty without BPF.
    pub threads: Vec<Deferred>,
    /// Notes for the reader of these figures.
    pub notes: Vec<String>,
}
