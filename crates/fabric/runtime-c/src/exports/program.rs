// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs and their runs.

use std::ffi::{c_char, c_int};

use colony_runtime::RunError;
use colony_runtime::transport::TransportError;

use crate::abi::{ColonyClass, ColonyOptions, StartFn};
use crate::launch;
use crate::run::{Start, read_options, run_over};
use crate::status::{Refusal, guard, keep, last};
use crate::table::{Program, install};

/// The version of `colony.h` that this library has.
#[unsafe(no_mangle)]
pub extern "C" fn colony_abi_version() -> u32 {
    1
}

/// The text of this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn colony_last_error() -> *const c_char {
    last()
}

/// A program without classes.
#[unsafe(no_mangle)]
pub extern "C" fn colony_program_new() -> *mut Program {
    Box::into_raw(Box::default())
}

/// Frees a program.
///
/// # Safety
/// `program` is null or of [`colony_program_new`], and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_program_free(program: *mut Program) {
    if !program.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(program) });
    }
}

/// Adds a class.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_program_class(program: *mut Program, description: *const ColonyClass) -> i32 {
    let added = guard(|| {
        // SAFETY: the caller's promise.
        let program = unsafe { program.as_mut() };
        let program = program.ok_or_else(|| Refusal::Invalid("the program is NULL".to_owned()))?;
        // SAFETY: the caller's promise.
        unsafe { program.add(description) }
    });
    added.map_or_else(|code| code, i32::from)
}

/// Says why this process ends; without standard error, nobody reads it.
fn report(text: &str) {
    use std::io::Write as _;
    keep(text);
    let _ = writeln!(std::io::stderr(), "error: {text}");
}

/// Runs a program.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_run(
    program: *const Program,
    options: *const ColonyOptions,
    argc: c_int,
    argv: *mut *mut c_char,
    start: Option<StartFn>,
) -> c_int {
    let ran = guard(|| {
        // SAFETY: the caller's promise.
        let program = unsafe { program.as_ref() };
        let program = program.ok_or_else(|| Refusal::Invalid("the program is NULL".to_owned()))?;
        let start = start.ok_or_else(|| Refusal::Invalid("the callback `start` is NULL".to_owned()))?;
        // SAFETY: the caller's promise.
        let options = unsafe { read_options(options) }?;
        let transport = match launch::transport_from_environment() {
            Ok(transport) => transport,
            // another process has ended before this one joined the job, which the launcher reports
            Err(TransportError::Lost(text)) => return Ok(Err(RunError::Lost(text))),
            Err(error) => return Err(Refusal::Invalid(error.to_string())),
        };
        let table = program.table();
        // a program that runs already is wrong use, not a run that failed
        let _installed = install(&table)?;
        Ok(run_over(&table, &options, transport, Start::new(start, argc, argv)))
    });
    match ran {
        Ok(Ok(code)) => c_int::from(code),
        // the process in which the program failed has said why
        Ok(Err(RunError::Lost(text))) => {
            keep(&text);
            c_int::from(launch::LOST)
        }
        // whatever the program would do after its run is for the process that takes the place of this one
        Ok(Err(RunError::Again(code))) => std::process::exit(i32::from(code)),
        Ok(Err(RunError::Program(text))) => {
            report(&text);
            1
        }
        Err(code) => {
            // SAFETY: a string of this thread.
            let text = unsafe { std::ffi::CStr::from_ptr(last()) }.to_string_lossy().into_owned();
            report(&text);
            if code == -6 { 1 } else { 2 }
        }
    }
}
