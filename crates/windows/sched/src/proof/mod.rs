// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof: what was stolen from the job, split exactly at the window edges.

mod bpf;
mod figures;
mod schedstat;

use std::sync::{Arc, Mutex, PoisonError};

use colony_node::cpu::CpuSet;
use colony_time::Windows;

use crate::job::Job;
use bpf::BpfProof;
use schedstat::Sampler;

pub use figures::{Deferred, Proof, ProofSource, WindowTimes};

/// A running observation of a job.
#[derive(Debug)]
pub struct Observer {
    job: Arc<Job>,
    method: Method,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Method {
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
                let observer =
                    Self { job, method: Method::Bpf(Box::new(Mutex::new(bpf))), notes: Vec::new() };
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
        Self { method: Method::Schedstat(Sampler::start(windows, cpus, Arc::clone(&job))), job, notes }
    }

    /// The source of the figures.
    #[must_use]
    pub const fn source(&self) -> ProofSource {
        match self.method {
            Method::Bpf(_) => ProofSource::Bpf,
            Method::Schedstat(_) => ProofSource::Schedstat,
        }
    }

    /// Looks for tasks added to the job; what they fork is followed by itself.
    pub fn follow(&self) {
        if let Method::Bpf(bpf) = &self.method {
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
            if let Method::Bpf(bpf) = &self.method {
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
        match &self.method {
            Method::Bpf(bpf) => bpf.lock().unwrap_or_else(PoisonError::into_inner).set_windows(&windows),
            Method::Schedstat(sampler) => sampler.set_windows(windows),
        }
    }

    /// The figures so far.
    #[must_use]
    pub fn proof(&self) -> Proof {
        let mut proof = match &self.method {
            Method::Bpf(bpf) => bpf.lock().unwrap_or_else(PoisonError::into_inner).proof(),
            Method::Schedstat(sampler) => sampler.proof(),
        };
        proof.notes.extend(self.notes.iter().cloned());
        proof
    }
}
