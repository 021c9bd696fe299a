//! The `colony` command: parse, call, print.

mod cli;
mod cmd;
mod exit;
mod words;

use clap::Parser;

fn main() -> std::process::ExitCode {
    // a run's guardian is this program started again
    colony_sched::main_if_asked();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("COLONY_LOG"))
        .with_writer(std::io::stderr)
        .init();
    exit::code(cli::Cli::parse().run())
}
