// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of a program: iteration after iteration, those skipped that are sure to be as the last.

use std::num::NonZeroU64;

use super::job::{Job, Snapshot};
use crate::SimError;
use crate::simulation::{MOST_NS, Run};

/// The limits of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Iterations of the program.
    pub(crate) iterations: u64,
    /// Most that are gone through one by one; the run ends there.
    pub(crate) most: u64,
    /// The run ends with the iteration that goes on at this time after its beginning.
    pub(crate) span_ns: u64,
    /// True if iterations may be skipped.
    pub(crate) skip: bool,
}

/// Runs a job that began at `begin_ns`; `program` is its name.
///
/// # Errors
/// [`SimError`] where noise leaves a rank no time, or the time is beyond what is counted.
pub(crate) fn run(job: &mut Job<'_>, limits: Limits, begin_ns: u64, program: &str) -> Result<Run, SimError> {
    let mut run = Run { total_ns: 0, iterations: Vec::new() };
    extend(&mut run, job, limits, begin_ns, program)?;
    Ok(run)
}

/// Runs a job in parts of `part` iterations, until `is_enough` returns `true` for the run so far.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_in_parts(
    job: &mut Job<'_>,
    limits: Limits,
    begin_ns: u64,
    program: &str,
    (part, is_enough): (NonZeroU64, impl Fn(&Run) -> bool),
) -> Result<Run, SimError> {
    let mut run = Run { total_ns: 0, iterations: Vec::new() };
    let mut left = limits.iterations;
    while left > 0 {
        let iterations = left.min(part.get());
        extend(&mut run, job, Limits { iterations, ..limits }, begin_ns, program)?;
        left -= iterations;
        if is_enough(&run) {
            break;
        }
    }
    Ok(run)
}

/// Adds the next iterations of a job to its run.
fn extend(
    run: &mut Run,
    job: &mut Job<'_>,
    limits: Limits,
    begin_ns: u64,
    program: &str,
) -> Result<(), SimError> {
    let (mut last, mut left, mut gone) = (begin_ns + run.total_ns, limits.iterations, 0);
    let mut watch: Option<Watch> = None;
    while left > 0 && gone < limits.most && last - begin_ns < limits.span_ns {
        // two of the same length may be the beginning of many
        if let (true, None, Some(&(each_ns, 2..))) = (limits.skip, &watch, run.iterations.last()) {
            watch = Watch::new(job, last, each_ns);
        }
        job.iterate();
        let now = check(job, program)?;
        push(&mut run.iterations, now - last, 1);
        if let Some(mut w) = watch.take() {
            push(&mut w.times, now - last, 1);
            watch = w.skip_repeats(job, now, &mut left, run);
            last = job.last_ns();
        } else {
            last = now;
        }
        (left, gone) = (left - 1, gone + 1);
    }
    run.total_ns = last - begin_ns;
    Ok(())
}

/// Iterations without noise are watched until the job is as it was before, only later. What they did it
/// will then do again and again until noise comes (Brent, "An improved Monte Carlo factorization
/// algorithm", BIT 1980, has this way of finding the cycle).
struct Watch {
    before: Snapshot,
    /// Iterations since then.
    times: Vec<(u64, u64)>,
    /// Iterations after which the next snapshot is taken.
    snapshot_after: u64,
    quiet_until_ns: u64,
}

impl Watch {
    /// From `now_ns` on; `None` where noise comes too soon to gain anything by it.
    fn new(job: &mut Job<'_>, now_ns: u64, iteration_ns: u64) -> Option<Self> {
        let quiet_until_ns = job.quiet_until();
        let worth_it = quiet_until_ns > now_ns.saturating_add(iteration_ns.saturating_mul(2));
        let before = if worth_it { job.snapshot()? } else { return None };
        Some(Self { before, times: Vec::new(), snapshot_after: 1, quiet_until_ns })
    }

    /// Compares the job with the snapshot after an iteration that ended at `now_ns` with `left` to go, this one
    /// included. Skips the iterations that repeat, or returns the watch to go on.
    fn skip_repeats(mut self, job: &mut Job<'_>, now_ns: u64, left: &mut u64, run: &mut Run) -> Option<Self> {
        let quiet_ns = self.quiet_until_ns.checked_sub(now_ns)?;
        let count = self.times.iter().map(|t| t.1).sum::<u64>();
        if let Some(cycle) = job.cycle_since(&self.before, count) {
            let most = (*left - 1) / count;
            let cycles = quiet_ns.checked_div(cycle.shift_ns).unwrap_or(most).min(most);
            job.advance(&cycle, cycles);
            repeat(&mut run.iterations, &self.times, cycles);
            *left -= cycles * count;
            return None;
        }
        if count == self.snapshot_after {
            self.before = job.snapshot()?;
            self.times.clear();
            self.snapshot_after *= 2;
        }
        Some(self)
    }
}

/// Appends `cycle`, `cycles` times.
fn repeat(times: &mut Vec<(u64, u64)>, cycle: &[(u64, u64)], cycles: u64) {
    match cycle {
        [(ns, count)] if cycles > 0 => push(times, *ns, count * cycles),
        _ => (0..cycles).for_each(|_| cycle.iter().for_each(|&(ns, count)| push(times, ns, count))),
    }
}

fn check(job: &Job<'_>, program: &str) -> Result<u64, SimError> {
    if let Some(rank) = job.starved() {
        return Err(SimError::Starved { rank });
    }
    match job.last_ns() {
        now if now > 2 * MOST_NS => Err(SimError::TooLong { program: program.into() }),
        now => Ok(now),
    }
}

fn push(times: &mut Vec<(u64, u64)>, ns: u64, count: u64) {
    match times.last_mut() {
        Some(last) if last.0 == ns => last.1 += count,
        _ => times.push((ns, count)),
    }
}
