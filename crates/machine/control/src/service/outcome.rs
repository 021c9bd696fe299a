// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of jobs: the code, the reasons, and whether the machine has failed or the job.

use colony_ciod::{End, JobError, JobOutcome};
use colony_nodes::{CnkError, Death, Running};

use crate::api::MACHINE_FAILED;

/// Failed processes in the report of a job at most, and dead nodes.
const TOLD: usize = 8;
/// The exit code of a job whose program ends with [`MACHINE_FAILED`] by itself.
const NEXT_TO_FAILED: i32 = MACHINE_FAILED - 1;

/// The end of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) error: Option<String>,
    /// A rank may have begun.
    pub(super) has_begun: bool,
    /// The machine has failed, not the job.
    pub(super) by_machine: bool,
}

impl Ended {
    /// A job that does not start because the machine has failed.
    pub(super) fn by_machine(why: impl ToString) -> Self {
        Self { code: MACHINE_FAILED, error: Some(why.to_string()), has_begun: false, by_machine: true }
    }

    /// A job that is refused.
    pub(super) fn refused(why: impl ToString) -> Self {
        Self { code: 1, error: Some(why.to_string()), has_begun: false, by_machine: false }
    }

    /// A job that the nodes do not start.
    pub(super) fn not_started(error: &CnkError) -> Self {
        if error.is_of_machine() { Self::by_machine(error) } else { Self::refused(error) }
    }

    /// A job that was launched, and is over.
    pub(super) fn of(running: &Running, outcome: &JobOutcome, deaths: &[Death]) -> Self {
        let by_machine = machine_has_failed(outcome);
        let error = description(outcome, deaths);
        Self { code: code(outcome, by_machine), error, has_begun: running.has_begun(), by_machine }
    }
}

/// Returns `true` if the job has failed because a part of the machine has.
fn machine_has_failed(outcome: &JobOutcome) -> bool {
    match &outcome.error {
        Some(JobError::Timeout { .. }) => false,
        Some(error) if error.is_of_machine() => true,
        _ => outcome.processes.iter().any(|process| matches!(process.end, End::Lost(_))),
    }
}

/// The exit code of a job. [`MACHINE_FAILED`] says that the machine has failed, and nothing else does.
fn code(outcome: &JobOutcome, by_machine: bool) -> i32 {
    match outcome.code() {
        _ if by_machine => MACHINE_FAILED,
        MACHINE_FAILED => NEXT_TO_FAILED,
        code => code,
    }
}

/// The reasons of a failure, one in each line: enough to see the cause, whatever the number of processes.
fn description(outcome: &JobOutcome, deaths: &[Death]) -> Option<String> {
    // nodes that have died with their boot process have one cause
    let (shared, own): (Vec<&Death>, Vec<&Death>) = deaths.iter().partition(|d| d.boot_process().is_some());
    let mut lines: Vec<String> = own.iter().take(TOLD).map(ToString::to_string).collect();
    if !shared.is_empty() {
        lines.push(format!(
            "the process that boots the nodes ended, and {} nodes of the job with it",
            shared.len()
        ));
    }
    lines.extend(outcome.error.iter().map(ToString::to_string));
    let failed: Vec<_> = outcome.causes().collect();
    lines.extend(failed.iter().take(TOLD).map(|p| format!("rank {} (node {}) {}", p.rank, p.node, p.end)));
    if failed.len() > TOLD {
        lines.push(format!("and {} more of {} processes", failed.len() - TOLD, outcome.processes.len()));
    }
    lines.extend(failed.iter().find_map(|p| p.crash.as_ref()).map(|crash| crash.trim_end().to_owned()));
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use colony_ciod::{Counters, ProcessOutcome};
    use colony_nodes::Cause;

    use super::*;

    fn outcome(ends: impl IntoIterator<Item = End>) -> JobOutcome {
        let process = |(rank, end)| ProcessOutcome {
            rank,
            node: rank,
            end,
            counters: Counters::default(),
            crash: Some("SIGSEGV\n  rip 0\n".to_owned()),
        };
        JobOutcome { processes: (0..).zip(ends).map(process).collect(), ..JobOutcome::default() }
    }

    #[test]
    fn the_report_of_a_job_is_short_whatever_its_size() {
        let all = |end: End| outcome(std::iter::repeat_n(end, 512));
        assert_eq!(description(&all(End::Exited(0)), &[]), None);
        let text = description(&all(End::Signaled(11)), &[]).expect("it failed");
        assert_eq!(text.lines().count(), TOLD + 1 + 2, "{text}");
        assert!(text.contains("and 504 more of 512 processes") && text.ends_with("rip 0"), "{text}");
    }

    #[test]
    fn nodes_that_died_with_their_boot_process_are_one_line() {
        let died = |node| Death { node, cause: Cause::BootProcess { pid: 7 }, said: String::new() };
        let deaths: Vec<Death> = (0..16).map(died).collect();
        let text = description(&JobOutcome::default(), &deaths).expect("it failed");
        assert_eq!(text, "the process that boots the nodes ended, and 16 nodes of the job with it");
    }

    #[test]
    fn one_code_says_that_the_machine_has_failed_and_no_program_ends_with_it() {
        let lost = || End::Lost(JobError::NodeUnresponsive(1));
        let with = |error: JobError, all: JobOutcome| JobOutcome { error: Some(error), ..all };
        let died = || JobError::WorkerDied("signal SIGKILL".to_owned());
        let late = || JobError::Timeout { seconds: 1.0 };
        for (outcome, by_machine, expected) in [
            (outcome([End::Exited(0)]), false, 0),
            (outcome([End::Exited(7)]), false, 7),
            (outcome([End::Exited(255)]), false, 254),
            (outcome([End::Signaled(9), lost()]), true, 255),
            // another rank has seen that its neighbor was lost
            (outcome([End::Exited(7), lost()]), true, 255),
            (with(died(), outcome([])), true, 255),
            (with(died(), outcome([End::Exited(3)])), true, 255),
            (with(JobError::NoUser("eve".to_owned()), outcome([])), false, 1),
            (with(late(), outcome([lost()])), false, 254),
        ] {
            let found = machine_has_failed(&outcome);
            assert_eq!((found, code(&outcome, found)), (by_machine, expected), "{outcome:?}");
        }
    }
}
