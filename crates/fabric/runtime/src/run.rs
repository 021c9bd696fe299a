// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a program in this process.

use std::time::{Duration, Instant};

use crate::checkpoint::recovery::Origin;
use crate::class::Classes;
use crate::core::Core;
use crate::early_exit::Running;
use crate::generation::{Begin, Main, Start};
use crate::job::ranks::AGAIN;
use crate::object::Context;
use crate::options::Options;
use crate::outcome::{Outcome, RunError};
use crate::process::{Conclusion, Process};
use crate::program::Program;
use crate::transport::{Transport, TransportError};

/// Runs a program in this process, which is one rank of `transport`. `main` is called on PE 0.
///
/// # Errors
/// [`RunError`]. The transport has been told to end the other processes.
pub fn run_on(
    program: Program,
    options: &Options,
    transport: Box<dyn Transport>,
    main: impl FnOnce(&mut Context<'_, Main>) + Send + 'static,
) -> Result<Outcome, RunError> {
    run_and_report(program, options, transport, main, |_| {})
}

/// The same, and calls `report` with a failure of this process before the other processes are told to end: MPI ends
/// this one too, so that nothing can be reported after.
///
/// If the launcher replaces ranks that die, all ranks go on from the last checkpoint, as often as that happens.
///
/// # Errors
/// As [`run_on`].
pub fn run_and_report(
    program: Program,
    options: &Options,
    mut transport: Box<dyn Transport>,
    main: impl FnOnce(&mut Context<'_, Main>) + Send + 'static,
    report: impl FnOnce(&str),
) -> Result<Outcome, RunError> {
    let _running = Running::begin();
    let classes: &'static Classes<Core> = Box::leak(Box::new(program.into_classes()));
    let mut process = match Process::new(options, classes, &*transport) {
        Ok(process) => process,
        Err(text) => return Err(refuse_environment(text, &mut *transport, report)),
    };
    let mut main: Option<Begin> = if process.rank == 0 { Some(Box::new(main)) } else { None };
    let (mut has_died, mut survivor) = (false, None::<Box<Core>>);
    loop {
        let mut start = Start::new(Origin::Anew);
        if has_died || transport.generation() > 0 {
            let agreed = match process.recover(&mut *transport, has_died, survivor.as_deref()) {
                Ok(agreed) => agreed,
                Err(error) => return Err(end_recovery(error, &mut *transport, report)),
            };
            survivor = survivor.filter(|_| matches!(agreed.origin, Origin::Log(_)));
            start = Start::agreed(agreed, survivor.is_some());
        } else if let Some(checkpoint) = process.restart.clone() {
            start.origin = Origin::Disk(checkpoint);
        }
        if start.origin == Origin::Anew {
            start.begin = main.take();
            if process.rank == 0 && start.begin.is_none() {
                return Err(RunError::Again(AGAIN));
            }
        }
        let stopped;
        (stopped, transport) = process.run_generation(transport, start, survivor.take());
        match process.conclude(stopped, &mut *transport) {
            Conclusion::Ended(outcome) => return process.end(outcome, &mut *transport, report),
            Conclusion::Died(core) => (has_died, survivor) = (true, core),
        }
    }
}

/// Ends this process, which cannot go on after the death of another. Only a loss has been reported by another process.
fn end_recovery(error: TransportError, transport: &mut dyn Transport, report: impl FnOnce(&str)) -> RunError {
    match error {
        TransportError::Lost(text) | TransportError::Died(text) => RunError::Lost(text),
        error @ (TransportError::Failed { .. } | TransportError::Environment(_)) => {
            let text = error.to_string();
            report(&text);
            transport.abort(1);
            RunError::Program(text)
        }
    }
}

/// Ends the job because of a wrong variable. All ranks find it, so rank 0 reports it; another rank does if rank 0 has not
/// ended the job in time.
fn refuse_environment(text: String, transport: &mut dyn Transport, report: impl FnOnce(&str)) -> RunError {
    let began = Instant::now();
    while transport.rank() != 0 && began.elapsed() < Duration::from_secs(5) {
        if let Err(lost) = transport.poll(&mut |_, _| {}) {
            return RunError::Lost(lost.to_string());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    report(&text);
    transport.abort(1);
    RunError::Program(text)
}
