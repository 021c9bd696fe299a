// SPDX-License-Identifier: MIT OR Apache-2.0
//! This program as a rank of a run.

use std::fs::{File, OpenOptions};
use std::io::Write;

use colony_runtime::launch::{AGAIN, LOST, transport_from_environment};
use colony_runtime::{BalanceOptions, Options, RunError, run_and_report};
use serde::{Deserialize, Serialize};

use super::cell;
use super::kernel::Setup;
use super::params::NONE;
use super::record::{Told, record};

/// The first argument of a rank.
pub(super) const ARGUMENT: &str = "--colony-bench-lb-rank";

/// What a rank is to do: the second argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) setup: Setup,
    /// The inherited descriptor of the file for what ranks have to tell.
    pub(super) report: i32,
}

/// Becomes a rank if this process was started as one, and then does not return. Call it first in the `main` of every
/// program that calls [`Params::run`](super::Params::run).
pub fn main_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if std::env::args_os().nth(1).is_none_or(|first| first != ARGUMENT) {
        return;
    }
    let task = arguments.nth(1).and_then(|text| serde_json::from_str::<Task>(&text).ok());
    // its place among the descriptors is its own: lines of several ranks are appended whole
    let open = |task: &Task| OpenOptions::new().append(true).open(format!("/proc/self/fd/{}", task.report));
    let code = match task.as_ref().map(|task| (task, open(task))) {
        Some((task, Ok(mut file))) => run(&task.setup, &mut file),
        _ => 2,
    };
    std::process::exit(code.into());
}

/// Tells the command something. It reads that once all ranks have ended.
fn tell(file: &mut File, what: &Told) -> bool {
    let line = serde_json::to_string(what).map(|line| line + "\n");
    line.is_ok_and(|line| file.write_all(line.as_bytes()).is_ok())
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
        Err(RunError::Again) => AGAIN,
    }
}
