// SPDX-License-Identifier: MIT OR Apache-2.0
//! This program as a rank of the benchmark.

use std::fs::File;

use colony_runtime::launch::{LOST, transport_from_environment};
use colony_runtime::{CheckpointOptions, Options, Outcome, Period, RunError, run_and_report};
use serde::{Deserialize, Serialize};

use super::block::{self, Setup};
use super::floor::Descriptors;
use super::told::{Checkpoint, Told};
use crate::ranks::{run_if_asked, tell};

/// The first argument of a rank.
pub(super) const ARGUMENT: &str = "--colony-bench-checkpoint-rank";

/// The task of a rank: the second argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) setup: Setup,
    /// The inherited connections for the floor.
    pub(super) floor: Descriptors,
    /// The inherited descriptor of the report file.
    pub(super) report: i32,
}

/// Becomes a rank if this process was started as one, and then does not return. Call it first in the `main` of every
/// program that calls [`Params::run`](super::Params::run).
pub fn main_if_asked() {
    run_if_asked(ARGUMENT, |task: &Task| task.report, run);
}

/// Runs the program, then the floor. Returns the exit code.
fn run(task: &Task, file: &mut File) -> u8 {
    let Task { setup, floor, .. } = task;
    let transport = match transport_from_environment() {
        Ok(transport) => transport,
        Err(error) => return fail(file, error.to_string()),
    };
    let rank = transport.rank();
    let period = Period::Rounds(1);
    let options = Options {
        threads: setup.threads,
        checkpoint: Some(CheckpointOptions { same_machine: true, ..CheckpointOptions::new(period) }),
        ..Options::default()
    };
    let begin = setup.clone();
    let mut failure = None;
    let ended = run_and_report(
        block::program(),
        &options,
        transport,
        |cx| block::begin(begin, cx),
        |why| failure = Some(why.to_owned()),
    );
    match ended {
        Ok(outcome) => end(&outcome, (setup, rank), floor, file),
        Err(RunError::Program(why)) => fail(file, failure.unwrap_or(why)),
        // the rank that failed has said why
        Err(RunError::Lost(_)) => LOST,
        Err(RunError::Again(code)) => code,
    }
}

fn fail(file: &mut File, why: String) -> u8 {
    tell(file, &Told::Failed(why));
    1
}

/// Measures the floor, and tells the times.
fn end(outcome: &Outcome, (setup, rank): (&Setup, u32), floor: &Descriptors, file: &mut File) -> u8 {
    if outcome.generation > 0 {
        return fail(
            file,
            "a rank was killed and replaced, so the times are not those of a checkpoint; repeat the run"
                .into(),
        );
    }
    let bytes = setup.bytes * u64::from(setup.threads);
    let Ok(bytes) = usize::try_from(bytes) else { return fail(file, format!("{bytes} bytes are too many")) };
    // SAFETY: the command has opened them for this rank, which has used none of them so far
    let sockets = unsafe { floor.of_rank(rank) };
    match sockets.and_then(|mut sockets| sockets.floor(bytes, setup.threads, setup.rounds)) {
        Ok(floors) => {
            let checkpoints = outcome.checkpoints.iter().map(|report| Checkpoint {
                bytes: report.bytes,
                sent: report.sent,
                quiet_s: report.quiet_s,
                copy_s: report.copy_s,
            });
            u8::from(!tell(file, &Told::Ended { checkpoints: checkpoints.collect(), floors }))
        }
        Err(error) => fail(file, format!("the exchange without the runtime, on rank {rank}: {error}")),
    }
}
