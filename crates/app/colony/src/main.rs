// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `colony` command: parse, call, print.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
mod say;
mod cli;
mod cmd;
mod exit;
mod state;
mod words;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// What is logged by default: errors, and waits for what another process holds.
const LOGGED: &str = "error,colony_ledger::lock=warn";

fn main() -> std::process::ExitCode {
    // a run's guardian is this program started again
    colony_sched::main_if_asked();
    // and so is a rank of `bench lb` or `bench checkpoint`
    colony_bench::lb::main_if_asked();
    colony_bench::checkpoint::main_if_asked();
    let filter =
        EnvFilter::try_from_env(colony_sched::log::VARIABLE).unwrap_or_else(|_| EnvFilter::new(LOGGED));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .init();
    match cli::Cli::try_parse() {
        Ok(cli) => exit::code(cli.run()),
        Err(e) => exit::refuse(&e),
    }
}
