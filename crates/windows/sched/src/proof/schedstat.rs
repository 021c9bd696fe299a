// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof without BPF: how long each job task waited, read at the edges.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use colony_node::cpu::CpuSet;
use colony_node::task;
use colony_time::clock::Clock;
use colony_time::{WindowKind, Windows};

use super::figures::{Proof, ProofSource, WindowTimes};
use crate::binding::keep_off;
use crate::job::Job;

/// Reads the job's tasks just after each edge, on a thread of its own.
#[derive(Debug)]
pub(super) struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    state: Mutex<State>,
    job: Arc<Job>,
    cpus: CpuSet,
}

#[derive(Debug)]
struct State {
    windows: Windows,
    /// Run time and waiting time of each task when last read, with its start.
    last: BTreeMap<i32, (u64, u64, u64)>,
    /// TAI up to which time is observed.
    since_ns: i64,
    favored: WindowTimes,
    regular: WindowTimes,
}

impl Sampler {
    pub(super) fn start(windows: Windows, cpus: &CpuSet, job: Arc<Job>) -> Self {
        let state = State {
            windows,
            last: BTreeMap::new(),
            since_ns: Clock::Tai.now_ns(),
            favored: WindowTimes::default(),
            regular: WindowTimes::default(),
        };
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            state: Mutex::new(state),
            job,
            cpus: cpus.clone(),
        });
        shared.sample(None);
        let its = Arc::clone(&shared);
        // without the thread the figures cover the whole run in one reading, which `proof` takes
        let thread = std::thread::Builder::new().name("colony-sample".into()).spawn(move || its.run()).ok();
        Self { shared, thread }
    }

    pub(super) fn set_windows(&self, windows: Windows) {
        self.shared.lock().windows = windows;
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    pub(super) fn proof(&self) -> Proof {
        let windows = self.shared.lock().windows;
        self.shared.sample(Some(windows.kind(Clock::Tai.now_ns())));
        let state = self.shared.lock();
        Proof {
            source: ProofSource::Schedstat,
            favored: state.favored,
            regular: state.regular,
            threads: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        keep_off(&self.cpus);
        while !self.stop.load(Ordering::Acquire) {
            let windows = self.lock().windows;
            let now = Clock::Tai.now_ns();
            let edge = windows.next_edge(now);
            // A wait is written down when it ends: one that ends with the window does so just after the edge.
            let shorter = windows.favored_ns().min(windows.regular_ns());
            let after_ns = (shorter / 10).min(1_000_000);
            let sleep_ns = (edge.at_ns - now).unsigned_abs() + after_ns;
            std::thread::park_timeout(Duration::from_nanos(sleep_ns));
            if Clock::Tai.now_ns() >= edge.at_ns {
                let ended = match edge.opens {
                    WindowKind::Favored => WindowKind::Regular,
                    WindowKind::Regular => WindowKind::Favored,
                };
                self.sample(Some(ended));
            }
        }
    }

    /// Charges what the tasks did since the last reading to the window that `ended`; `None` only reads.
    fn sample(&self, ended: Option<WindowKind>) {
        self.job.refresh();
        let tasks = self.job.tasks();
        let mut state = self.lock();
        let now = Clock::Tai.now_ns();
        let since = std::mem::replace(&mut state.since_ns, now);
        let total_ns = (now - since).max(0).unsigned_abs();
        let mut read = BTreeMap::new();
        let (mut ran, mut waited) = (0, 0);
        for task in tasks {
            let Some((run_ns, wait_ns)) = task::run_and_delay_ns(task.tid) else { continue };
            let before = state.last.get(&task.tid).filter(|b| b.2 == task.start_ticks);
            // A new task did all it has done since the last reading, unless it is one that joined late.
            let (run_before, wait_before) = before.map_or((0, 0), |b| (b.0, b.1));
            ran += run_ns.saturating_sub(run_before).min(total_ns);
            waited += wait_ns.saturating_sub(wait_before).min(total_ns);
            read.insert(task.tid, (run_ns, wait_ns, task.start_ticks));
        }
        state.last = read;
        let Some(ended) = ended else { return };
        let favored_ns = state.windows.favored_time_between(since, now);
        state.favored.observed_ns += favored_ns * self.cpus.len() as u64;
        state.regular.observed_ns += total_ns.saturating_sub(favored_ns) * self.cpus.len() as u64;
        let times = match ended {
            WindowKind::Favored => &mut state.favored,
            WindowKind::Regular => &mut state.regular,
        };
        times.job_ns += ran;
        times.stolen_ns += waited;
    }
}
