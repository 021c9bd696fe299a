// SPDX-License-Identifier: MIT OR Apache-2.0
//! This program as a rank of a run.

use std::fs::File;

use colony_runtime::launch::{LOST, transport_from_environment};
use colony_runtime::{BalanceOptions, Options, RunError, run_and_report};
use serde::{Deserialize, Serialize};

use super::cell;
use super::kernel::Setup;
use super::params::NONE;
use super::record::{Told, record};
use crate::ranks::{run_if_asked, tell};

/// The first argument of a rank.
pub(super) const ARGUMENT: &str = "--colony-bench-lb-rank";

/// The task of a rank: the second argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) setup: Setup,
    /// The inherited descriptor of the report file.
    pub(super) report: i32,
}

/// Becomes a rank if this process was started as one, and then does not return. Call it first in the `main` of every
/// program that calls [`Params::run`](super::Params::run).
pub fn main_if_asked() {
    run_if_asked(ARGUMENT, |task: &Task| task.report, |task, file| run(&task.setup, file));
}

fn options(setup: &Setup) -> Result<Options, String> {
    let balance = match &*setup.strategy {
        NONE => None,
        name => Some(BalanceOptions::strategy(name)?),
    };
    Ok(Options { threads: setup.threads, balance, ..Options::default() })
}

/// Runs the program. Returns the exit code.
fn run(setup: &Setup, file: &mut File) -> u8 {
    let begun =
        options(setup).and_then(|o| Ok((o, transport_from_environment().map_err(|e| e.to_string())?)));
    let (options, transport) = match begun {
        Ok(begun) => begun,
        Err(why) => {
            tell(file, &Told::Failed(why));
            return 1;
        }
    };
    let begin = setup.clone();
    let mut failure = None;
    let ended = run_and_report(
        cell::program(),
        &options,
        transport,
        |cx| cell::begin(begin, cx),
        |why| failure = Some(why.to_owned()),
    );
    match ended {
        Ok(outcome) => {
            let record = std::mem::take(&mut *record());
            let reports = outcome.balance.iter().map(Into::into).collect();
            u8::from(!tell(file, &Told::Ended { record, reports }))
        }
        Err(RunError::Program(why)) => {
            tell(file, &Told::Failed(failure.unwrap_or(why)));
            1
        }
        // the rank that failed has said why
        Err(RunError::Lost(_)) => LOST,
        Err(RunError::Again(code)) => code,
    }
}
