//! A run of a program: iteration after iteration, those skipped that are sure to be as the last.

use super::job::Job;
use super::plan::MOST_NS;
use crate::SimError;
use crate::simulate::Run;

/// How far a run goes, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Iterations of the program.
    pub(crate) iterations: u64,
    /// Most that are gone through one by one; the run ends there.
    pub(crate) most: u64,
    /// Whether any may be skipped.
    pub(crate) skip: bool,
}

/// Runs a job that began at `begin_ns`; `program` is its name.
///
/// # Errors
/// [`SimError`] where noise leaves a rank no time, or the time is beyond what is counted.
pub(crate) fn run(job: &mut Job<'_>, limits: Limits, begin_ns: u64, program: &str) -> Result<Run, SimError> {
    let mut run = Run { total_ns: 0, iterations: Vec::new() };
    let (mut last, mut left, mut gone) = (begin_ns, limits.iterations, 0);
    while left > 0 && gone < limits.most {
        // two of the same length may be the beginning of many
        let alike = limits.skip && left > 1 && run.iterations.last().is_some_and(|&(_, count)| count > 1);
        let watch =
            if alike { Watch::new(job, last, run.iterations.last().map_or(0, |t| t.0)) } else { None };
        job.iterate();
        let now = check(job, program)?;
        push(&mut run.iterations, now - last, 1);
        (last, left, gone) = (now, left - 1, gone + 1);
        if let Some((each_ns, count)) = watch.and_then(|w| w.repeats(job, now, left)) {
            job.advance(each_ns * count);
            push(&mut run.iterations, each_ns, count);
            (last, left) = (last + each_ns * count, left - count);
        }
    }
    run.total_ns = last - begin_ns;
    Ok(run)
}

/// An iteration is watched to see whether those after it will be the same.
struct Watch {
    before: super::job::Snapshot,
    quiet_until_ns: u64,
}

impl Watch {
    /// From `now_ns` on; `None` where noise comes too soon to gain anything by it.
    fn new(job: &mut Job<'_>, now_ns: u64, iteration_ns: u64) -> Option<Self> {
        let quiet_until_ns = job.quiet_until();
        let worth_it = quiet_until_ns > now_ns.saturating_add(iteration_ns.saturating_mul(2));
        worth_it.then(|| job.snapshot()).flatten().map(|before| Self { before, quiet_until_ns })
    }

    /// The length of an iteration and how many more of at most `left` will be the same: the one watched
    /// ended at `now_ns` without having met noise, and left everything as it was but later.
    fn repeats(&self, job: &Job<'_>, now_ns: u64, left: u64) -> Option<(u64, u64)> {
        let quiet_ns = self.quiet_until_ns.checked_sub(now_ns)?;
        let each_ns = job.shift_ns(&self.before)?;
        // `MOST_NS` holds all iterations
        let quiet_ns = quiet_ns.min(MOST_NS);
        Some((each_ns, quiet_ns.checked_div(each_ns).unwrap_or(left).min(left))).filter(|r| r.1 > 0)
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
