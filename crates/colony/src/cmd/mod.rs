//! One module a command: call the library, print what it says.

pub(crate) mod bench;
pub(crate) mod inject;
pub(crate) mod measure;
pub(crate) mod noise;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod study;
pub(crate) mod top;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cli::{Cli, Command};

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Measure(args) => measure::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Run(args) => run::run(args),
        Command::Study(args) => study::run(args),
        Command::Noise(args) => noise::run(args),
        Command::Inject(args) => inject::run(args),
        Command::Top(args) => top::run(args),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
    }
}

/// Prints a result for programs or for people.
fn print<T: serde::Serialize>(json: bool, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
    } else {
        out.write_all(text(value).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// A flag that Ctrl-C and a polite kill raise.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
