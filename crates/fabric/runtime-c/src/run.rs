// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of a program in this process.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use colony_runtime::transport::Transport;
use colony_runtime::{BalanceOptions, Context, Main, Options, RunError, run_on};

use crate::abi::{ColonyContext, ColonyOptions, StartFn};
use crate::scope::{self, Callback, Who};
use crate::status::{Refusal, text_of};
use crate::table::{self, Table};
use crate::{foreign, launch};

/// The program's beginning, with its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The callback.
    pub call: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut ColonyContext) -> c_int,
    /// The number of arguments.
    pub argc: c_int,
    /// The arguments.
    pub argv: *mut *mut c_char,
}

// SAFETY: one PE gets it, and the caller of `colony_run`, whose arguments these are, waits for that PE.
unsafe impl Send for Start {}

impl Start {
    pub(crate) fn new(call: StartFn, argc: c_int, argv: *mut *mut c_char) -> Self {
        Self { call, argc, argv }
    }

    fn run(self, table: &Table, cx: &mut Context<'_, Main>) {
        let who = Who { table, object: None, callback: Callback::Named("start") };
        // SAFETY: the arguments are those of the caller, who waits for the end of the run.
        let code = scope::enter(cx, &who, |context| unsafe { (self.call)(self.argc, self.argv, context) });
        foreign::check(code, &who);
        scope::end_if_failed();
    }
}

/// The options of a run.
///
/// # Safety
/// `options` is null or as `colony.h` says.
pub(crate) unsafe fn read_options(options: *const ColonyOptions) -> Result<Options, Refusal> {
    if options.is_null() {
        return Ok(Options { threads: launch::threads(0)?, ..Options::default() });
    }
    // SAFETY: the caller's promise; `size` is the first field in every version.
    let size = unsafe { *options.cast::<usize>() };
    if size != size_of::<ColonyOptions>() {
        return Err(Refusal::Invalid(format!(
            "the size of the options is {size} instead of {}: set it to sizeof(colony_options), and build with the \
             colony.h of this library",
            size_of::<ColonyOptions>()
        )));
    }
    // SAFETY: the caller's promise, for options of this size.
    let options = unsafe { &*options };
    let balance = if options.balance.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        let name = unsafe { text_of(options.balance, "the strategy of load balancing") }?;
        Some(BalanceOptions::strategy(&name).map_err(Refusal::Invalid)?)
    };
    Ok(Options {
        threads: launch::threads(options.threads)?,
        steal: options.steal != 0,
        balance,
        ..Options::default()
    })
}

/// Runs a program of C as one rank of a network. Ranks that are threads of one process share one table.
///
/// # Errors
/// The program has failed; the text is in the words of C as far as it is known here.
pub fn run_over(
    table: &Arc<Table>,
    options: &Options,
    transport: Box<dyn Transport>,
    start: Start,
) -> Result<u8, RunError> {
    let refused = |refusal: Refusal| RunError::Program(refusal.to_string());
    let _installed = table::install(table).map_err(refused)?;
    scope::begin_run();
    let shared = Arc::clone(table);
    let outcome = run_on(foreign::program(), options, transport, move |cx| start.run(&shared, cx));
    scope::begin_run();
    match outcome {
        Ok(outcome) => Ok(outcome.code),
        Err(RunError::Program(text)) => Err(RunError::Program(table::failure().unwrap_or(text))),
        Err(lost) => Err(lost),
    }
}
