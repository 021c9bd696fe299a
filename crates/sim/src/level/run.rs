//! A run of a program: iteration after iteration.

use super::job::Job;
use super::plan::MOST_NS;
use crate::SimError;
use crate::simulate::Run;

/// Runs `iterations` of a job that began at `begin_ns`; `program` is its name.
///
/// # Errors
/// [`SimError`] where noise leaves a rank no time, or the time is beyond what is counted.
pub(crate) fn run(job: &mut Job<'_>, iterations: u64, begin_ns: u64, program: &str) -> Result<Run, SimError> {
    let mut run = Run { total_ns: 0, iterations: Vec::new() };
    let (mut last, mut left) = (begin_ns, iterations);
    while left > 0 {
        job.iterate();
        let now = check(job, program)?;
        push(&mut run.iterations, now - last, 1);
        last = now;
        left -= 1;
    }
    run.total_ns = last - begin_ns;
    Ok(run)
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
