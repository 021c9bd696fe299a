//! Noise and job take turns.

use super::{Cpu, Scheduler, Tasks};
use crate::noise::Detour;

/// The job and every runnable thread share the CPU in turns: how unmodified Linux ran the noise daemon of
/// the Colony report (single operations of 4 µs to over 9900 µs, section 3.5).
///
/// A thread that wakes while the job runs alone goes first at once; then thread and job alternate until
/// its burst is done. Threads that are runnable together have one turn each, then the job has its own.
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
        // `turn` is one more than the thread that ran last, 0 when the job did
        let slice = self.noise_slice_ns.max(1);
        let ran = *tasks.turn as usize;
        let runnable = |t: &usize| tasks.arrival_ns(*t).is_some_and(|at| at <= now_ns);
        let next = (ran..tasks.len()).find(runnable).filter(|_| ran > 0);
        let (task, start_ns) = match next {
            Some(task) => (task, now_ns),
            None => {
                let (first, arrival_ns) = tasks.earliest()?;
                // the round is over: the job's turn, when anyone has been waiting for it to end
                let start_ns = if ran > 0 && arrival_ns < now_ns {
                    now_ns.saturating_add(self.job_slice_ns)
                } else {
                    arrival_ns.max(now_ns)
                };
                (
                    (0..tasks.len())
                        .find(|&t| tasks.arrival_ns(t).is_some_and(|at| at <= start_ns))
                        .unwrap_or(first),
                    start_ns,
                )
            }
        };
        *tasks.turn = task as u32 + 1;
        Some(Detour { start_ns, duration_ns: tasks.serve(task, slice) })
    }
}
