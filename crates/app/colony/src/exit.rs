// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: 0 done, 1 the run failed, 2 wrong use, 3 a measurement that its condition ended, 126 and 127 a program of `colony run` that cannot be started.

use std::process::ExitCode;

use colony_balance::BalanceError;
use colony_balance::file::FileError;
use colony_bench::checkpoint::CheckpointError;
use colony_bench::lb::LbError;
use colony_bench::{BenchError, ParamsError};
use colony_clock::simulate::ModelError;
use colony_clock::sync::SyncError;
use colony_control_api::ClientError;
use colony_doctor::DoctorError;
use colony_inject::InjectError;
use colony_measure::MeasureError;
use colony_measure::selfish::SelfishError;
use colony_model::ModelError as MachineError;
use colony_node::NodeError;
use colony_nodes::CnkError;
use colony_sched::SchedError;
use colony_sim::goal::GoalError;
use colony_sim::spec::SpecError;
use colony_study::StudyError;
use colony_study::failure::{self, Failure};
use colony_survival::SurvivalError;
use colony_timeline::TimelineError;
use colony_trace::{Problem, TraceError};
use colony_tune::TuneError;
use colony_vm::VmError;

/// The exit code of a measurement that a detour ended (`colony measure --until`). Peers such as rtla exit with 2 then, which is
/// wrong use here.
pub(crate) const LIMIT_REACHED: u8 = 3;

/// A wish the user can correct by other words.
#[derive(Debug)]
pub(crate) struct WrongUse(pub(crate) String);

impl std::fmt::Display for WrongUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}

/// The error of a request that the user can correct.
pub(crate) fn wrong(what: impl Into<String>) -> anyhow::Error {
    WrongUse(what.into()).into()
}

/// Prints an error, if there is one, and says how to exit.
pub(crate) fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            let failure = Failure::new(text(&e), code_of(&e));
            if !is_reported(&e) {
                note!("error: {}", failure.error);
            }
            leave(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// Prints the answer to arguments that are no command: help, the version, or what is wrong with them. Ends the process.
pub(crate) fn refuse(answer: &clap::Error) -> ! {
    if answer.use_stderr() {
        let text = answer.render().to_string();
        leave(&Failure::new(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned(), 2));
    }
    answer.exit()
}

/// The exit code of an error.
fn code_of(e: &anyhow::Error) -> u8 {
    let of_program = e.chain().find_map(|c| c.downcast_ref::<SchedError>()?.program_code());
    of_program.unwrap_or(if is_wrong_use(e) { 2 } else { 1 })
}

fn leave(failure: &Failure) {
    if let Err(e) = failure.leave() {
        note!("the failure could not be written to the file of {}: {e}", failure::VARIABLE);
    }
}

/// The error and its causes in one line, each said once: many errors have their cause in their own text. What
/// came from a file cannot move the cursor.
fn text(e: &anyhow::Error) -> String {
    let mut out = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if out.is_empty() {
            out = cause;
        } else if !out.contains(&cause) {
            out = format!("{out}: {cause}");
        }
    }
    out.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Whoever reads our output has had enough (`colony … | head`).
pub(crate) fn is_broken_pipe(e: &anyhow::Error) -> bool {
    let broken = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    e.chain().any(|c| {
        let trace = c.downcast_ref::<TraceError>().map(|e| &e.problem);
        // a JSON error hides the system's error that it wraps
        let json = c.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        c.downcast_ref::<std::io::Error>().is_some_and(broken)
            || json == Some(std::io::ErrorKind::BrokenPipe)
            || matches!(trace, Some(Problem::Io(e)) if broken(e))
    })
}

/// Returns `true` if the launcher of ranks has printed the error already.
fn is_reported(e: &anyhow::Error) -> bool {
    e.chain().any(|c| matches!(c.downcast_ref(), Some(LbError::Killed { .. })))
}

/// Returns `true` if other arguments would have succeeded, according to the library that refused these.
fn is_wrong_use(e: &anyhow::Error) -> bool {
    // a `WrongUse` around another error is no link of the chain
    e.downcast_ref::<WrongUse>().is_some()
        || e.chain().any(|c| {
            macro_rules! asked {
            ($($error:ty),*) => { $(c.downcast_ref::<$error>().is_some_and(|e| e.is_wrong_use()))||* };
        }
            c.is::<WrongUse>()
                || c.is::<ParamsError>()
                || c.is::<ModelError>()
                || c.is::<MachineError>()
                || c.is::<SurvivalError>()
                || asked!(
                    BalanceError,
                    FileError,
                    NodeError,
                    SelfishError,
                    MeasureError,
                    InjectError,
                    TraceError,
                    BenchError,
                    CheckpointError,
                    LbError,
                    SchedError,
                    SyncError,
                    SpecError,
                    DoctorError,
                    GoalError,
                    StudyError,
                    TimelineError,
                    TuneError,
                    VmError,
                    CnkError,
                    ClientError
                )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use colony_node::cpu::CpuSet;
    use colony_trace::diff::DiffError;

    fn offline() -> NodeError {
        NodeError::CpuUnusable { cpu: 1, reason: "it is offline", usable: CpuSet::default() }
    }

    #[test]
    fn what_other_words_would_cure_is_wrong_use_through_every_library() {
        let wrong: [anyhow::Error; 10] = [
            WrongUse("no".into()).into(),
            anyhow!("else").context(WrongUse("no".into())),
            offline().into(),
            MeasureError::Selfish(SelfishError::Node(offline())).into(),
            InjectError::Node(offline()).into(),
            SchedError::Node(offline()).into(),
            BenchError::Node(offline()).into(),
            BenchError::Ranks { program: colony_bench::Program::Ring, ranks: 1, least: 2 }.into(),
            StudyError::Params("no".into()).into(),
            VmError::Wrong("no".into()).into(),
        ];
        for e in wrong {
            assert!(is_wrong_use(&e), "{e}");
        }
    }

    #[test]
    fn a_run_that_failed_is_no_wrong_use() {
        let failed: [anyhow::Error; 5] = [
            // it went offline under the observer
            MeasureError::Vanished(1).into(),
            BenchError::NoMpi { looked_for: vec!["mpirun".into()] }.into(),
            SchedError::NoRealTime("no".into()).into(),
            DiffError::NotTimed("first", 0.0).into(),
            anyhow!("else"),
        ];
        for e in failed {
            assert!(!is_wrong_use(&e), "{e}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_has_the_exit_code_of_a_shell() {
        let source = std::io::Error::from_raw_os_error(nix::libc::ENOENT);
        let e = anyhow::Error::from(SchedError::Command { command: "x".into(), source }).context("a run");
        assert_eq!((code_of(&e), code_of(&wrong("no")), code_of(&anyhow!("else"))), (127, 2, 1));
    }

    #[test]
    fn a_cause_is_told_once_and_cannot_draw_on_the_terminal() {
        let inner = std::io::Error::other("no room");
        let e = anyhow::Error::from(inner).context("writing x: no room").context("the \u{1b}[2Jreport");
        assert_eq!(text(&e), "the \u{fffd}[2Jreport: writing x: no room");
    }
}
