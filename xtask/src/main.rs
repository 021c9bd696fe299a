// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: what `./x` does beyond installing packages.

mod again;
mod bench;
mod budget;
mod changed;
mod figures;
mod killed;
mod libtest;
mod options;
mod parts;
mod plan;
mod process;
mod programs;
mod python;
mod release;
mod report;
mod runs;
mod schedule;
mod soak;
mod statics;
mod storm;
mod suite;
mod summary;
mod tier;

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use guests::{Profile, target_folder};

const HELP: &str = "\
Usage: cargo xtask COMMAND

  guests [--release]
                    the compute node kernel, the first program of virtual nodes and the plugin that counts, into target/guests;
                    the crates that carry them inside need them before they are built
  static [--release] [NAME…]
                    programs for the compute node kernel, linked statically, into target/static (default: all)
  test [OPTION…]    every check of the checkout (--all, --quick, --changed[=COMMIT], --program P, --test NAME, --record,
                    --results FOLDER, --allow-skip)
  soak [OPTION…]    every test several times beside busy loops (--all, --program P, --test NAME, --results FOLDER, --times N,
                    --busy K)
  bench [NAME…]     benchmarks (sim, balance, runtime, logging, fship; without a name: the others)
  storm [KILLS [SEED]]
                    kill ranks and processes at random times, and compare the results
  release VERSION   version numbers, changelog, commit, tag, and the files that users download

Procedural macros and build scripts are shared with the build that has the same profile: dev, or release with --release.
./x installs the packages that each of them needs, and then runs it.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["guests"] => build_guests(Profile::Dev).map(|()| true),
        ["guests", "--release"] => build_guests(Profile::Release).map(|()| true),
        ["static", "--release", ref names @ ..] => {
            statics::build(&target_folder().join("static"), Profile::Release, names).map(|()| true)
        }
        ["static", ref names @ ..] => {
            statics::build(&target_folder().join("static"), Profile::Dev, names).map(|()| true)
        }
        ["test", ref options @ ..] => match options::Options::parse(options.iter().copied()) {
            Ok(options) => plan::run(options),
            Err(e) => return wrong_use(&e.to_string()),
        },
        ["soak", ref options @ ..] => match options::Soak::parse(options.iter().copied()) {
            Ok(soak) => soak::run(soak),
            Err(e) => return wrong_use(&e.to_string()),
        },
        ["bench", ref names @ ..] => bench::run(names).map(|()| true),
        ["storm", ref numbers @ ..] => storm::run(numbers).map(|()| true),
        ["release", version] => release::run(version).map(|()| true),
        [] | ["help" | "-h" | "--help"] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => return wrong_use(&format!("there is no `cargo xtask {}`", words.join(" "))),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn wrong_use(error: &str) -> ExitCode {
    eprintln!("{HELP}\n\nerror: {error}");
    ExitCode::from(2)
}

/// The cargo that started this program.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn build_guests(profile: Profile) -> Result<()> {
    guests::build_all(profile).map_err(|e| anyhow::anyhow!("{e}"))
}

/// Runs a command, which must succeed.
///
/// # Errors
/// A program that cannot be started, or that fails.
fn check(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// What a command prints, which must succeed.
///
/// # Errors
/// As [`check`], with the command's own error; or output that is no UTF-8.
fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program} prints no UTF-8"))
}
