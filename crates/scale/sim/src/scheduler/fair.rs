// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise and job take turns.

use super::{Cpu, Scheduler, Tasks};
use crate::SimError;
use crate::noise::Detour;

/// The job and every runnable thread share the CPU in turns: how unmodified Linux ran the noise daemon of
/// the Colony report (single operations of 4 µs to over 9900 µs, section 3.5).
///
/// A thread that wakes while the job runs alone goes first at once; then thread and job alternate until
/// its burst is done. Threads that are runnable together have one turn each, in the order of the list, then
/// the job has its own. A thread whose next burst already waits goes on with it in the same turn. So *n*
/// threads that never sleep have *n* · `noise_slice_ns` of every *n* · `noise_slice_ns` + `job_slice_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fair {
    /// Longest turn of a thread.
    pub noise_slice_ns: u64,
    /// The job's turn between two.
    pub job_slice_ns: u64,
}

impl Fair {
    /// The turns of Linux 2.6.16, the kernel of the Colony report: interactive tasks of one priority go
    /// round every 10 ms (`TIMESLICE_GRANULARITY` of its scheduler).
    pub const LINUX_2_6_16: Self = Self { noise_slice_ns: 10_000_000, job_slice_ns: 10_000_000 };
}

impl Scheduler for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn next(&self, _: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<Detour> {
        let (task, start_ns) = self.turn(now_ns, tasks)?;
        *tasks.turn = task as u32 + 1;
        let slice_ns = self.noise_slice_ns.max(1);
        let mut duration_ns = tasks.serve(task, slice_ns);
        while duration_ns < slice_ns && tasks.goes_on(task, start_ns.saturating_add(duration_ns)) {
            duration_ns += tasks.serve(task, slice_ns - duration_ns);
        }
        Some(Detour { start_ns, duration_ns })
    }

    fn settle_ns(&self) -> u64 {
        self.noise_slice_ns.saturating_add(self.job_slice_ns)
    }

    fn check(&self) -> Result<(), SimError> {
        match self.noise_slice_ns {
            0 => Err(SimError::Scheduler {
                scheduler: self.name(),
                parameter: "noise slice (ns)",
                found: 0.0,
                must: "at least 1",
            }),
            _ => Ok(()),
        }
    }
}

impl Fair {
    /// The thread that has the next turn, and the instant at which the turn begins.
    fn turn(&self, now_ns: u64, tasks: &Tasks<'_>) -> Option<(usize, u64)> {
        // `turn` is one more than the thread that ran last, 0 before any did
        let ran = *tasks.turn as usize;
        let runnable = |t: usize, at_ns| tasks.arrival_ns(t).is_some_and(|arrival_ns| arrival_ns <= at_ns);
        if ran > 0
            && let Some(task) = (ran..tasks.len()).find(|&t| runnable(t, now_ns))
        {
            return Some((task, now_ns));
        }
        let (first, arrival_ns) = tasks.earliest()?;
        // the round is over: the job's turn, when anyone has been waiting for it to end
        let start_ns = match ran > 0 && arrival_ns < now_ns {
            true => now_ns.saturating_add(self.job_slice_ns),
            false => arrival_ns.max(now_ns),
        };
        let task = (0..tasks.len()).find(|&t| runnable(t, start_ns)).unwrap_or(first);
        Some((task, start_ns))
    }
}
