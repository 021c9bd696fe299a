// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x bench`: each benchmark with the programs that it compares.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use guests::{Profile, target_folder};

use crate::{build_guests, cargo, check, python, statics};

/// Runs benchmarks: those of `words[0]` if that is the name of some, otherwise criterion's, with `words` as filters.
///
/// # Errors
/// A build or a benchmark that fails.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    match words {
        ["sim", rest @ ..] => targets("colony-sim", "targets", rest),
        ["balance", rest @ ..] => targets("colony-balance", "targets", rest),
        ["logging", rest @ ..] => targets("colony-runtime", "logging", rest),
        ["runtime", rest @ ..] => runtime(rest),
        ["fship", rest @ ..] => function_shipping(rest),
        rest => criterion(rest),
    }
}

fn in_checkout(words: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.args(words).current_dir(guests::root());
    cargo
}

/// A benchmark that prints its targets.
fn targets(package: &str, bench: &str, rest: &[&str]) -> Result<()> {
    check(in_checkout(&["bench", "--locked", "-p", package, "--bench", bench, "--"]).args(rest))
}

/// The runtime beside plain MPI in C and charm4py.
fn runtime(rest: &[&str]) -> Result<()> {
    let root = guests::root();
    let package = ["--locked", "--release", "-p", "colony-runtime", "--features", "mpi"];
    let native = ["--example", "stencil", "--", "-C", "target-cpu=native"];
    check(in_checkout(&["rustc"]).args(package).args(native))?;
    let examples = target_folder().join("release/examples");
    std::fs::copy(examples.join("stencil"), examples.join("stencil-native"))
        .context("cannot copy the stencil")?;
    check(in_checkout(&["build"]).args(package).arg("--examples"))?;
    let environment = python::release_environment(&root, &target_folder(), "colony_runtime")?;
    let mut pip = Command::new(environment.join("bin/pip"));
    if check(pip.args(["install", "-q", "--disable-pip-version-check", "charm4py==1.1"])).is_err() {
        eprintln!("charm4py cannot be installed, so it is not compared");
    }
    let mut bench =
        in_checkout(&["bench", "--locked", "-p", "colony-runtime", "--features", "mpi", "--bench"]);
    check(bench.args(["runtime", "--"]).args(rest).env("COMPARE_PYTHON", environment.join("bin/python")))
}

/// System calls on a compute node and on Linux, the I/O daemon's scale, and the start of nodes.
fn function_shipping(rest: &[&str]) -> Result<()> {
    statics::build(&target_folder().join("static"), Profile::Release, &[])?;
    build_guests(Profile::Release)?;
    check(&mut in_checkout(&["build", "--locked", "--release", "-p", "colony-ciod", "-p", "colony-nodes"]))?;
    targets("colony-nodes", "fship", rest)?;
    check(&mut in_checkout(&["bench", "--locked", "-p", "colony-nodes", "--bench", "boot"]))?;
    check(&mut in_checkout(&[
        "bench",
        "--locked",
        "-p",
        "colony-ciod",
        "--bench",
        "fship",
        "--bench",
        "scale",
    ]))
}

fn criterion(rest: &[&str]) -> Result<()> {
    let crates = ["bench", "--locked", "-p", "colony-time", "-p", "colony-measure", "-p", "colony-trace"];
    check(in_checkout(&crates).args(rest))?;
    let mut colony = Command::new(target_folder().join("release/colony"));
    if check(colony.args(["bench", "allreduce", "-n", "2", "--compare-c"])).is_err() {
        bail!("the comparison with MPI in C failed; ./x build makes the programs that it needs");
    }
    Ok(())
}
