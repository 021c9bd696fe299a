// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `main` of a program of objects.

use std::process::ExitCode;

use crate::generation::Main;
use crate::health;
use crate::launch::{LOST, transport_from_environment};
use crate::object::Context;
use crate::options::Options;
use crate::outcome::{Outcome, RunError};
use crate::program::Program;
use crate::report::report_line;
use crate::run::run_and_report;
use crate::signals;
use crate::transport::TransportError;

/// Runs a program on the processes that a launcher has started (see [`transport_from_environment`]), or on this one
/// alone. `begin` is called on PE 0. Errors are printed once, on the rank where they happened. `SIGUSR1` evacuates the PEs
/// of the process that gets it ([`Context::evacuate`]), `SIGUSR2` readmits them. A warning in the host's health file
/// (`/run/colony-health/health.json`, or `$COLONY_HEALTH`) evacuates them until it ends.
///
/// ```no_run
/// use colony_runtime::{Options, Program};
///
/// fn main() -> std::process::ExitCode {
///     colony_runtime::main(Program::new(), &Options::default(), |cx| {
///         println!("{} PEs", cx.pes());
///         cx.exit(0);
///     })
/// }
/// ```
pub fn main(
    program: Program,
    options: &Options,
    begin: impl FnOnce(&mut Context<'_, Main>) + Send + 'static,
) -> ExitCode {
    main_with(program, options, begin, |_| {})
}

/// The same, and calls `end` on each process if the program has ended by `exit`.
pub fn main_with(
    program: Program,
    options: &Options,
    begin: impl FnOnce(&mut Context<'_, Main>) + Send + 'static,
    end: impl FnOnce(&Outcome),
) -> ExitCode {
    // without handlers the signals end the process, as they would without the runtime
    let _ = signals::listen();
    let transport = match transport_from_environment() {
        Ok(transport) => transport,
        // another rank has failed before this one joined
        Err(TransportError::Lost(_)) => return ExitCode::from(LOST),
        Err(error) => {
            report_line!("error: {error}");
            return ExitCode::from(2);
        }
    };
    health::watch(&*transport);
    let report = |text: &str| report_line!("error: {text}");
    match run_and_report(program, options, transport, begin, report) {
        Ok(outcome) => {
            end(&outcome);
            ExitCode::from(outcome.code)
        }
        Err(RunError::Program(_)) => ExitCode::from(1),
        // the rank that failed has said why
        Err(RunError::Lost(_)) => ExitCode::from(LOST),
        Err(RunError::Again(code)) => ExitCode::from(code),
    }
}
