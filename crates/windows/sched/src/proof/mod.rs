// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof: what was stolen from the job, split exactly at the window edges.

mod bpf;
mod schedstat;

use std::sync::{Arc, Mutex, PoisonError};

use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::job::Job;
use bpf::BpfProof;
use schedstat::Sampler;

/// Where the figures of a proof come from.
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
    /// How often it took a CPU from a job task.
    pub times: u64,
}

/// What was stolen from the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Where the figures come from.
    pub source: ProofSource,
    /// Favored windows.
    pub favored: WindowTimes,
    /// Regular windows.
    pub regular: WindowTimes,
    /// Who ran while the job waited, most first; empty without BPF.
    pub threads: Vec<Deferred>,
    /// What a reader must know about these figures.
    pub notes: Vec<String>,
}

/// A running observation of a job.
#[derive(Debug)]
pub struct Observer {
    job: Arc<Job>,
    by: By,
    notes: Vec<String>,
}

#[derive(Debug)]
enum By {
    Bpf(Box<Mutex<BpfProof>>),
    Schedstat(Sampler),
}

impl Observer {
    /// Observes `job` on `cpus`, by BPF where it works, else by `schedstat`; it never fails, it says what
    /// it could not do. What it installs in the kernel goes when this value, or this process, does.
    #[must_use]
    pub fn start(windows: Windows, cpus: &CpuSet, job: Arc<Job>) -> Self {
        match BpfProof::start(&windows, cpus) {
            Ok(bpf) => {
                let observer = Self { job, by: By::Bpf(Box::new(Mutex::new(bpf))), notes: Vec::new() };
                observer.follow();
                observer
            }
            Err(reason) => Self::by_schedstat(windows, cpus, job, &reason.to_string()),
        }
    }

    /// Observes without BPF, for the `reason` given.
    #[must_use]
    pub fn by_schedstat(windows: Windows, cpus: &CpuSet, job: Arc<Job>, reason: &str) -> Self {
        let notes = vec![format!(
            "stolen time is from /proc/<tid>/schedstat, read just after each edge: {reason}. It includes the time \
             job tasks waited for each other, it misses what ended between two reads, and nobody is named"
        )];
        Self { by: By::Schedstat(Sampler::start(windows, cpus, Arc::clone(&job))), job, notes }
    }

    /// Where the figures come from.
    #[must_use]
    pub const fn source(&self) -> ProofSource {
        match self.by {
            By::Bpf(_) => ProofSource::Bpf,
            By::Schedstat(_) => ProofSource::Schedstat,
        }
    }

    /// Looks for tasks added to the job; what they fork is followed by itself.
    pub fn follow(&self) {
        if let By::Bpf(bpf) = &self.by {
            let bpf = bpf.lock().unwrap_or_else(PoisonError::into_inner);
            // what a task forks before it is followed is found by the second look, what it forks after by the kernel
            for _ in 0..2 {
                self.job.refresh();
                bpf.follow(&self.job.tasks());
            }
        }
    }

    /// Does `start` on this thread and follows every process it forks, from the fork on.
    pub(crate) fn following<T>(&self, start: impl FnOnce() -> T) -> T {
        let follow = |tid| {
            if let By::Bpf(bpf) = &self.by {
                bpf.lock().unwrap_or_else(PoisonError::into_inner).follow_children_of(tid);
            }
        };
        follow(nix::unistd::gettid().as_raw());
        let started = start();
        follow(0);
        started
    }

    /// Splits at these windows from now on.
    pub fn set_windows(&self, windows: Windows) {
        match &self.by {
            By::Bpf(bpf) => bpf.lock().unwrap_or_else(PoisonError::into_inner).set_windows(&windows),
            By::Schedstat(sampler) => sampler.set_windows(windows),
        }
    }

    /// The figures so far.
    #[must_use]
    pub fn proof(&self) -> Proof {
        let mut proof = match &self.by {
            By::Bpf(bpf) => bpf.lock().unwrap_or_else(PoisonError::into_inner).proof(),
            By::Schedstat(sampler) => sampler.proof(),
        };
        proof.notes.extend(self.notes.iter().cloned());
        proof
    }
}
