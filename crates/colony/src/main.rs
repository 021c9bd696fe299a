//! The `colony` command: parse, call, print.

mod cli;
mod cmd;
mod exit;

use clap::Parser;

fn main() -> std::process::ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("COLONY_LOG"))
        .with_writer(std::io::stderr)
        .init();
    exit::code(cmd::run(cli::Cli::parse()))
}
