// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocation of a site's scheduler: nodes take no more than it has, and the machine is switched off before it ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::Shared;
use super::control::Control;
use super::peer::Peer;
use crate::ControlError;
use crate::api::{Allocation, NodeRequest, Scheduler, Severity, memory_mib, now};

/// The time before the end in which jobs end and nodes are switched off, seconds, and its largest share of the whole time.
const MARGIN_S: f64 = 60.0;
const SHARE: f64 = 0.1;
/// Longest wait between two looks at the time: the clock may be set.
const LOOK: Duration = Duration::from_secs(1);
/// Period of looks at jobs that have been told to end.
const JOBS: Duration = Duration::from_millis(20);
/// Bytes of the name of a scheduler's job at most.
const LONGEST: usize = 64;
/// The largest memory of a host, MiB: an exbibyte.
const LARGEST_MIB: u64 = 1 << 40;
/// The code of events about the end of an allocation.
const CODE: &str = "allocation-end";

/// The job of a scheduler that this process is a part of.
fn own_job(scheduler: Scheduler) -> Option<String> {
    let variable = match scheduler {
        Scheduler::Slurm => "SLURM_JOB_ID",
        Scheduler::Flux => "FLUX_JOB_ID",
    };
    std::env::var(variable).ok()
}

/// Refuses to start processes outside of the allocation: the scheduler would not see them.
fn check_inside(allocation: &Allocation) -> Result<(), ControlError> {
    if own_job(allocation.scheduler).as_ref() == Some(&allocation.job) {
        return Ok(());
    }
    Err(ControlError::Conflict(format!(
        "the control daemon runs outside of {allocation} and boots no nodes for it: end it by `colony machine down`, then run \
         `colony machine up` in that job"
    )))
}

/// An allocation that a machine may be a part of, with the time at which the daemon switches the machine off.
fn accepted(new: &Allocation, now: f64) -> Result<Allocation, ControlError> {
    let is_word =
        |text: &str| !text.is_empty() && text.len() <= LONGEST && text.chars().all(|c| c.is_ascii_graphic());
    let is_wrong = [new.cpus == 0, new.hosts == 0, new.memory_mib.is_some_and(|mib| mib > LARGEST_MIB)];
    if !is_word(&new.job) || is_wrong.contains(&true) || new.ends.is_some_and(|ends| !ends.is_finite()) {
        let text = format!(
            "an allocation has a job of 1 to {LONGEST} letters and digits, a host, a CPU, and a finite end"
        );
        return Err(ControlError::Wrong(text));
    }
    if new.ends.is_some_and(|ends| ends <= now) {
        return Err(ControlError::Conflict(format!("{new} has ended: ask {} for a new one", new.scheduler)));
    }
    let stops = new.ends.map(|ends| ends - MARGIN_S.min((ends - now) * SHARE));
    Ok(Allocation { stops, ..new.clone() })
}

/// The reason why a job with this time limit cannot run, if it would end too late.
fn too_late(allocation: &Allocation, limit_s: Option<f64>, now: f64) -> Option<String> {
    let left = allocation.stops? - now;
    if left <= 0.0 {
        return Some(format!("{allocation} ends, and takes no more jobs"));
    }
    let limit = limit_s.filter(|limit| *limit > left)?;
    Some(format!(
        "a time limit of {limit:.0} s goes beyond the end of {allocation}, before which the machine is switched off in \
         {left:.0} s: use a shorter --timeout"
    ))
}

/// What is to be done about the end of an allocation.
enum Step {
    Wait(Duration),
    SwitchedOff,
}

impl Control {
    /// The allocation of a machine that is to be set up.
    pub(super) fn accept(&self, new: Option<&Allocation>) -> Result<Option<Allocation>, ControlError> {
        let Some(new) = new else { return Ok(None) };
        let accepted = accepted(new, now())?;
        check_inside(&accepted)?;
        Ok(Some(accepted))
    }

    /// Refuses a partition whose nodes do not fit in the allocation beside the others.
    pub(super) fn check_allocation(&self, nodes: u32, node: &NodeRequest) -> Result<(), ControlError> {
        let rows = self.store().partitions()?;
        let others =
            rows.iter().map(|row| memory_mib(row.shape.nodes(), &row.node)).fold(0, u64::saturating_add);
        let allocation = self.store().allocation()?;
        allocation.map_or(Ok(()), |own| own.check(nodes, node, others).map_err(ControlError::Wrong))
    }

    /// Refuses to boot nodes outside of the allocation, or at its end.
    pub(super) fn check_boot(&self) -> Result<(), ControlError> {
        let Some(allocation) = self.store().allocation()? else { return Ok(()) };
        if let Some(why) = too_late(&allocation, None, now()) {
            return Err(ControlError::Conflict(why));
        }
        check_inside(&allocation)
    }

    /// Returns `true` if the allocation ends, so that no job begins.
    pub(super) fn is_ending(&self) -> Result<bool, ControlError> {
        let allocation = self.store().allocation()?;
        Ok(allocation.is_some_and(|own| own.stops.is_some_and(|stops| stops <= now())))
    }

    /// Refuses a job that the allocation would not let end.
    pub(super) fn check_in_time(&self, limit_s: Option<f64>) -> Result<(), ControlError> {
        let why = self.store().allocation()?.and_then(|own| too_late(&own, limit_s, now()));
        why.map_or(Ok(()), |why| Err(ControlError::Conflict(why)))
    }

    /// Ends the jobs in the queue of a partition for which there is not enough time left.
    pub(super) fn end_late_jobs(&self, name: &str) -> Result<(), ControlError> {
        let Some(allocation) = self.store().allocation()? else { return Ok(()) };
        let queued = self.store().queued(name)?;
        for job in queued {
            if let Some(why) = too_late(&allocation, job.request.timeout_s, now()) {
                self.end_job(job.id, 1, Some(&why))?;
            }
        }
        Ok(())
    }

    /// The errors of a job that has ended, with the reason if the end of the allocation is one.
    pub(super) fn with_reason(
        &self,
        code: i32,
        error: Option<String>,
    ) -> Result<Option<String>, ControlError> {
        let allocation = self.store().allocation()?;
        let ending = allocation.filter(|own| code != 0 && own.stops.is_some_and(|stops| stops <= now()));
        let Some(ending) = ending else { return Ok(error) };
        let why = format!("{ending} ends: its jobs were told to end");
        Ok(Some(error.map_or_else(|| why.clone(), |error| format!("{error}\n{why}"))))
    }

    /// At the start of the daemon: an allocation that has ended without one leaves a machine that is off.
    pub(super) fn forget_ended(&self) -> Result<(), ControlError> {
        let Some(allocation) = self.store().allocation()? else { return Ok(()) };
        let has_nodes = self.store().partitions()?.iter().any(|row| row.owner.is_some());
        if has_nodes || allocation.stops.is_none_or(|stops| stops > now()) {
            return Ok(());
        }
        let text = format!("{allocation} has ended while no control daemon ran, and the machine with it");
        self.report(Severity::Warning, "", CODE, text, None);
        self.set_off()
    }

    /// Waits for the end of the allocation, and switches the machine off before.
    fn look_at_end(&self) -> Result<Step, ControlError> {
        let Some(allocation) = self.store().allocation()? else { return Ok(Step::Wait(LOOK)) };
        let Some((stops, ends)) = allocation.stops.zip(allocation.ends) else { return Ok(Step::Wait(LOOK)) };
        // a time that cannot be waited for has passed
        match Duration::try_from_secs_f64(stops - now()) {
            Ok(left) if !left.is_zero() => Ok(Step::Wait(left.min(LOOK))),
            _ => {
                let left = (ends - now()).max(0.0);
                let text =
                    format!("{allocation} ends in {left:.0} s: its jobs end, and its nodes are switched off");
                self.report(Severity::Warning, "", CODE, text, None);
                self.end_jobs(&allocation, Duration::try_from_secs_f64(left / 2.0).unwrap_or_default())?;
                self.switch_off()?;
                Ok(Step::SwitchedOff)
            }
        }
    }

    /// Ends the jobs that wait, and tells those that run to end. Returns when they have, or after `limit`.
    fn end_jobs(&self, allocation: &Allocation, limit: Duration) -> Result<(), ControlError> {
        let why = format!("{allocation} ends");
        let rows = self.store().partitions()?;
        for row in &rows {
            self.fail_queue(&row.name, 1, &why)?;
        }
        let (began, mut told) = (Instant::now(), BTreeSet::new());
        loop {
            let mut running = 0;
            for row in &rows {
                let begun = self.store().begun(&row.name)?;
                running += begun.len();
                for job in begun {
                    // one that is just being started, or ends, is told at the next look
                    if !told.contains(&job.id)
                        && self.signal(Peer::own(), job.id, Signal::SIGTERM as i32).is_ok()
                    {
                        told.insert(job.id);
                    }
                }
            }
            if running == 0 || began.elapsed() >= limit {
                return Ok(());
            }
            std::thread::sleep(JOBS);
        }
    }
}

/// Switches the machine off before its allocation ends, and tells the daemon to end.
pub(super) async fn keep_end(shared: Arc<Shared>) {
    loop {
        let control = shared.control.clone();
        let step = tokio::task::spawn_blocking(move || control.look_at_end()).await;
        match step {
            Ok(Ok(Step::Wait(time))) => tokio::time::sleep(time).await,
            Ok(Ok(Step::SwitchedOff)) => return shared.over.notify_one(),
            Ok(Err(error)) => {
                shared.control.report(Severity::Error, "", CODE, error.to_string(), None);
                tokio::time::sleep(LOOK).await;
            }
            // the runtime ends
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(ends: impl Into<Option<f64>>) -> Allocation {
        let (scheduler, job) = (Scheduler::Slurm, "77".to_owned());
        Allocation { scheduler, job, hosts: 1, cpus: 2, memory_mib: None, ends: ends.into(), stops: None }
    }

    #[test]
    fn the_machine_stops_a_minute_or_a_tenth_before_the_end() {
        let stops = |ends: f64| accepted(&allocation(ends), 1000.0).map(|own| own.stops).ok().flatten();
        assert_eq!((stops(1100.0), stops(4600.0)), (Some(1090.0), Some(4540.0)));
        assert_eq!(accepted(&allocation(None), 1000.0).expect("it has no end").stops, None);
        assert!(
            matches!(accepted(&allocation(1000.0), 1000.0), Err(ControlError::Conflict(text)) if text.contains("has ended"))
        );
        let usual = allocation(2000.0);
        for wrong in [
            Allocation { job: String::new(), ..usual.clone() },
            Allocation { job: "a b".to_owned(), ..usual.clone() },
            Allocation { job: "7".repeat(65), ..usual.clone() },
            Allocation { memory_mib: Some(u64::MAX), ..usual.clone() },
            Allocation { cpus: 0, ..usual.clone() },
            Allocation { hosts: 0, ..usual.clone() },
            allocation(f64::INFINITY),
            allocation(f64::NAN),
        ] {
            assert!(matches!(accepted(&wrong, 1000.0), Err(ControlError::Wrong(_))), "{wrong:?}");
        }
    }

    #[test]
    fn a_job_has_to_end_before_the_machine_is_switched_off() {
        let own = accepted(&allocation(1100.0), 1000.0).expect("it has time");
        assert_eq!(too_late(&own, Some(90.0), 1000.0), None);
        assert_eq!(too_late(&own, None, 1089.0), None, "it is ended if it has not by then");
        let text = too_late(&own, Some(80.0), 1020.0).expect("too long");
        assert!(text.contains("80 s") && text.contains("Slurm job 77") && text.contains("70 s"), "{text}");
        assert!(too_late(&own, None, 1090.0).is_some_and(|text| text.contains("no more jobs")));
        assert_eq!(too_late(&allocation(None), Some(1e9), 1000.0), None);
    }
}
