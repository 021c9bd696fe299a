// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the scheduler in the kernel, as it counts them itself.

use colony_node::class::Class;
use colony_node::cpu::CpuSet;
use colony_stats::Distribution;
use serde::{Deserialize, Serialize};

/// CPU time in windows of one kind, in nanoseconds, by the kind of task that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// A task of the job ran.
    pub job_ns: u64,
    /// A task that is not the job's ran: in favored windows, what was not held back in time.
    pub other_ns: u64,
    /// Such a task ran in a favored window that every job task slept through.
    pub filled_ns: u64,
    /// An exempt task ran.
    pub exempt_ns: u64,
    /// None of this scheduler's tasks ran: the CPU was idle, or a real-time task had it.
    pub away_ns: u64,
}

impl CpuTimes {
    /// Adds the times of another CPU or another scheduler.
    pub fn add(&mut self, more: &Self) {
        self.job_ns += more.job_ns;
        self.other_ns += more.other_ns;
        self.filled_ns += more.filled_ns;
        self.exempt_ns += more.exempt_ns;
        self.away_ns += more.away_ns;
    }

    /// The sum of these times, in nanoseconds.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.job_ns + self.other_ns + self.filled_ns + self.exempt_ns + self.away_ns
    }
}

/// Threads of one name that waited while favored windows held them back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// The name of the threads.
    pub comm: String,
    /// Number of waits.
    pub times: u64,
    /// Sum of these waits, in nanoseconds.
    pub total_ns: u64,
    /// The longest of these waits, in nanoseconds.
    pub max_ns: u64,
}

/// One CPU of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStats {
    /// The number of the CPU.
    pub cpu: usize,
    /// CPU time in favored windows.
    pub favored: CpuTimes,
    /// CPU time in regular windows.
    pub regular: CpuTimes,
    /// Edges its timer handled.
    pub edges: u64,
    /// Favored windows that have ended.
    pub favored_windows: u64,
    /// Favored windows in which a task outside the job ran (idle time and exempt tasks not counted).
    pub windows_hit: u64,
    /// Time of such tasks in the worst of these windows, in nanoseconds.
    pub worst_window_ns: u64,
    /// Scheduler ticks that interrupted the job in favored windows.
    pub ticks_favored: u64,
    /// Scheduler ticks that interrupted the job in regular windows.
    pub ticks_regular: u64,
}

impl CpuStats {
    /// Adds what this CPU did under another scheduler.
    pub fn add(&mut self, more: &Self) {
        self.favored.add(&more.favored);
        self.regular.add(&more.regular);
        self.edges += more.edges;
        self.favored_windows += more.favored_windows;
        self.windows_hit += more.windows_hit;
        self.worst_window_ns = self.worst_window_ns.max(more.worst_window_ns);
        self.ticks_favored += more.ticks_favored;
        self.ticks_regular += more.ticks_regular;
    }
}

/// A task of a real-time class that may use CPUs of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtTask {
    /// The number of the task.
    pub tid: i32,
    /// Start of the task in clock ticks since boot. Number and start together are unique.
    pub start_ticks: u64,
    /// The name of the task.
    pub comm: String,
    /// The scheduling class of the task.
    pub class: Class,
    /// True for a kernel thread.
    pub kernel: bool,
    /// CPU time of the task so far, in nanoseconds.
    pub ran_ns: u64,
}

/// Statistics of the scheduler in the kernel, for all of the job's CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExtStats {
    /// The job's CPUs.
    pub cpus: CpuSet,
    /// CPU time in favored windows, summed over the CPUs.
    pub favored: CpuTimes,
    /// CPU time in regular windows, summed over the CPUs.
    pub regular: CpuTimes,
    /// Edges handled, counted on each CPU.
    pub edges: u64,
    /// Edges whose whole window had passed before the timer came.
    pub missed: u64,
    /// Number of times the clock was set, after which the windows are counted anew.
    pub clock_steps: u64,
    /// Delay from each edge to its timer.
    pub lateness: Distribution,
    /// Favored windows that have ended, counted on each CPU.
    pub favored_windows: u64,
    /// Favored windows in which a task outside the job ran (idle time and exempt tasks not counted).
    pub windows_hit: u64,
    /// Time of such tasks in the worst of these windows, in nanoseconds.
    pub worst_window_ns: u64,
    /// Scheduler ticks that interrupted the job in favored windows.
    pub ticks_favored: u64,
    /// Scheduler ticks that interrupted the job in regular windows.
    pub ticks_regular: u64,
    /// Tasks put into idle favored windows.
    pub filled: u64,
    /// Number of times an exempt task took the CPU from a job task in a favored window.
    pub preempted: u64,
    /// Number of times a task had to wait because a cgroup it is in had used its `cpu.max`.
    #[serde(default)]
    pub throttled: u64,
    /// Threads that favored windows held back, by name, the longest total wait first.
    pub deferred: Vec<Waited>,
    /// Statistics of each CPU.
    pub by_cpu: Vec<CpuStats>,
    /// Real-time tasks that may use the job's CPUs: they are above this scheduler.
    pub real_time: Vec<RtTask>,
    /// Real-time tasks put into an ordinary class until the end, as asked.
    pub demoted: Vec<RtTask>,
    /// Times the scheduler was loaded again, after CPUs came or went.
    pub restarts: u64,
    /// Time since the start, in nanoseconds.
    pub wall_ns: u64,
    /// The reason for which the kernel ended the scheduler, if it did.
    pub stopped: Option<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl ExtStats {
    /// Adds the statistics of a scheduler that was loaded after this one.
    pub fn add(&mut self, later: Self) {
        self.favored.add(&later.favored);
        self.regular.add(&later.regular);
        self.edges += later.edges;
        self.missed += later.missed;
        self.clock_steps += later.clock_steps;
        self.lateness.merge(&later.lateness);
        self.favored_windows += later.favored_windows;
        self.windows_hit += later.windows_hit;
        self.worst_window_ns = self.worst_window_ns.max(later.worst_window_ns);
        self.ticks_favored += later.ticks_favored;
        self.ticks_regular += later.ticks_regular;
        self.filled += later.filled;
        self.preempted += later.preempted;
        self.throttled += later.throttled;
        for waited in later.deferred {
            match self.deferred.iter_mut().find(|w| w.comm == waited.comm) {
                Some(known) => {
                    known.times += waited.times;
                    known.total_ns += waited.total_ns;
                    known.max_ns = known.max_ns.max(waited.max_ns);
                }
                None => self.deferred.push(waited),
            }
        }
        self.deferred.sort_by_key(|w| std::cmp::Reverse(w.total_ns));
        for cpu in later.by_cpu {
            match self.by_cpu.iter_mut().find(|c| c.cpu == cpu.cpu) {
                Some(known) => known.add(&cpu),
                None => self.by_cpu.push(cpu),
            }
        }
        self.warnings.extend(later.warnings);
    }

    /// Time stolen from the job in favored windows, as a share of those windows: something else ran there.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        let total = self.favored.total_ns();
        if total == 0 { 0.0 } else { (self.favored.other_ns + self.favored.exempt_ns) as f64 / total as f64 }
    }
}
