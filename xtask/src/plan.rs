// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test`: every check of a checkout, as jobs that run side by side.
//!
//! What tests need is built first. Then the test programs run, within the CPUs of the machine; lints, documentation and
//! the other steps that only compile take the processor time that the tests leave.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::changed::{self, Selection};
use crate::killed;
use crate::libtest::TestProgram;
use crate::options::Options;
use crate::parts;
use crate::process::Times;
use crate::programs::{self, Built};
use crate::python;
use crate::schedule::{self, Job, Outcome, State};
use crate::suite::Suite;

/// Features that tests and lints are built with.
const FEATURES: [&str; 2] = ["--features", "colony-bench/mpi,colony-balance/metis"];

/// Random inputs that each fuzzer gets beside its seeds.
const FUZZ_RUNS: u32 = 2000;

/// The job that runs the fuzzers.
const FUZZERS: &str = "fuzzers";

/// The job that builds the workspace and its tests.
const BUILD: &str = "build of the tests";

/// The job that builds what crates carry inside.
const GUESTS: &str = "build of the guests";

/// The job that builds static programs for compute nodes.
const STATIC: &str = "static programs";

/// The job that builds static programs that are not ours.
const OTHERS: &str = "programs of others";

/// The static programs of ours that tests of the first tier run.
const FIRST_TIER_STATIC: [&str; 2] = ["colony-conform", "colony-extremes"];

/// The static programs of others that tests of the first tier run.
const FIRST_TIER_OTHERS: [&str; 3] = ["busybox", "lua", "lua-musl"];

/// The job that fetches the kernel of virtual nodes.
const KERNEL: &str = "kernel of virtual nodes";

/// Test programs that start virtual nodes with that kernel.
const WITH_VIRTUAL_NODES: [&str; 5] = ["vm", "cnk", "e2e-on-nodes", "boot-colony-vm", "clock"];

/// The job that lints the workspace.
const LINTS: &str = "lints";

/// The tests of the runtime whose ranks exchange messages over MPI.
const OVER_MPI: &str = "runtime-over-mpi";

/// One cargo at a time builds into `target`; a second one would only wait.
const CARGO: &str = "cargo";

/// Runs the tests. Returns `true` if all passed.
///
/// # Errors
/// A checkout that cannot be read, or a folder that cannot be written.
pub(crate) fn run(options: Options) -> Result<bool> {
    let root = guests::root();
    let (selection, files) = match &options.changed {
        None => (Selection::All, Vec::new()),
        Some(commit) => changed::selection(&root, commit.as_deref())?,
    };
    if let Selection::Some(names) = &selection {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        eprintln!("{} files have changed, so these packages are tested: {}", files.len(), names.join(", "));
    }
    let suite = Arc::new(Suite::new(root, options, selection)?);
    let began = Instant::now();
    let mut ended = schedule::run_all(jobs(&suite), cpus(), |ended| suite.tell(ended, began));
    suite.try_failed_again(&mut ended);
    let cleared = suite.run.end();
    let passed = suite.finish(&ended, began.elapsed())?;
    cleared?;
    Ok(passed)
}

/// The CPUs that steps share.
pub(crate) fn cpus() -> f64 {
    std::thread::available_parallelism()
        .map_or(1.0, |n| f64::from(u32::try_from(n.get()).unwrap_or(u32::MAX)))
}

/// Builds the test programs and what they start. Returns those that the suite's options choose.
///
/// # Errors
/// A build that fails, or options that choose no test.
pub(crate) fn build_programs(suite: &Arc<Suite>) -> Result<Vec<TestProgram>> {
    let chosen = Arc::new(Mutex::new(Vec::new()));
    let keep = chosen.clone();
    let build = build(suite, move |suite, built| {
        let programs = chosen_programs(suite, built.tests)?;
        let run_static = programs.iter().any(|program| needs_static(suite, program));
        *keep.lock().unwrap_or_else(PoisonError::into_inner) = programs;
        Ok(if run_static { static_programs(suite).into() } else { Vec::new() })
    });
    let began = Instant::now();
    let jobs = vec![guests(suite), build.after([GUESTS])];
    let ended = schedule::run_all(jobs, cpus(), |ended| suite.tell(ended, began));
    let failed = ended.iter().find(|step| step.state != State::Passed);
    ensure!(failed.is_none(), "{} failed", failed.map_or("", |step| &step.name));
    Ok(std::mem::take(&mut *chosen.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// The jobs that run test programs. What the programs start must have been built before.
pub(crate) fn test_jobs_alone(suite: &Arc<Suite>, programs: &[TestProgram]) -> Vec<Job> {
    programs.iter().map(|program| suite.program(program.clone())).collect()
}

/// The jobs that are known before the build.
fn jobs(suite: &Arc<Suite>) -> Vec<Job> {
    if suite.options.programs == [killed::STEP] {
        // its runs build what they test
        return vec![killed::job(suite)];
    }
    let build = build(suite, jobs_of_build).after([GUESTS]);
    if suite.options.is_narrow() {
        return vec![guests(suite), build];
    }
    let mut jobs = vec![guests(suite)];
    jobs.extend(checks(suite));
    if suite.options.quick {
        jobs.push(build);
        return jobs;
    }
    jobs.extend(static_programs(suite));
    jobs.push(build.behind([STATIC]));
    jobs.push(suite.commands("documentation", true, vec![documentation(suite)]).behind([LINTS]).lock(CARGO));
    jobs.extend(python::jobs(suite, BUILD));
    of_run(suite, jobs)
}

/// The checks of sources that run no test.
fn checks(suite: &Arc<Suite>) -> Vec<Job> {
    let mut clippy = suite.compile(&["clippy", "--locked", "--workspace", "--all-targets"]);
    clippy.args(left_out(suite)).args(FEATURES).args(["--", "-D", "warnings"]);
    let mut jobs = vec![
        suite.commands("format", true, formats(suite)),
        suite.commands("lints of the kernel", true, kernel(suite)).after([GUESTS]).behind([BUILD]),
        suite.commands(LINTS, true, vec![clippy]).after([GUESTS]).behind([BUILD]).lock(CARGO),
    ];
    if has_command("cargo-deny") {
        jobs.push(suite.commands("licences and advisories", true, deny(suite)));
    }
    jobs
}

/// Removes the jobs that do not belong to this run, and the waits for them.
fn of_run(suite: &Suite, jobs: Vec<Job>) -> Vec<Job> {
    let mut jobs: Vec<Job> = jobs.into_iter().filter(|job| suite.has_step(&job.name)).collect();
    for job in &mut jobs {
        job.behind.retain(|name| suite.has_step(name));
    }
    jobs
}

/// The job that builds what crates carry inside.
fn guests(suite: &Arc<Suite>) -> Job {
    let guests = suite.cargo(&["run", "--quiet", "--locked", "-p", "guests"]);
    suite.commands(GUESTS, false, vec![guests]).lock(CARGO)
}

fn has_command(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The main workspace and the kernel's.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "kernel/cnk/Cargo.toml"];

fn formats(suite: &Suite) -> Vec<Command> {
    let format = |manifest: &&str| {
        let mut format = suite.cargo(&["fmt", "--all", "--manifest-path", manifest]);
        // rustfmt colours what it writes to a file, too
        format.args(["--", "--check", "--color", "never"]);
        format
    };
    MANIFESTS.iter().map(format).collect()
}

fn deny(suite: &Suite) -> Vec<Command> {
    let deny = |manifest: &&str| {
        suite.cargo(&["deny", "--manifest-path", manifest, "--config", "deny.toml", "--locked", "check"])
    };
    MANIFESTS.iter().map(deny).collect()
}

/// Lints of the compute node kernel, which is built with flags of its own.
fn kernel(suite: &Suite) -> Vec<Command> {
    let mut clippy = suite.cargo(&["clippy", "--locked", "--release", "--bins", "--", "-D", "warnings"]);
    clippy.current_dir(suite.root.join("kernel/cnk"));
    vec![clippy]
}

fn documentation(suite: &Suite) -> Command {
    // With the examples, features are those that the lints have, so no dependency is checked again.
    let mut doc =
        suite.cargo(&["doc", "--locked", "--workspace", "--no-deps", "--lib", "--bins", "--examples"]);
    doc.args(FEATURES).env("RUSTDOCFLAGS", "-D warnings");
    doc
}

/// The job that builds the workspace. `more` returns the jobs that run what was built.
fn build(
    suite: &Arc<Suite>,
    more: impl FnOnce(&Arc<Suite>, Built) -> Result<Vec<Job>> + Send + 'static,
) -> Job {
    let shared = suite.clone();
    let work = move || {
        let built = build_workspace(&shared).and_then(|(built, times)| {
            let detail = format!("{} test programs", built.tests.len());
            let more = of_run(&shared, more(&shared, built)?);
            Ok(Outcome { failure: None, times, detail, more })
        });
        built.unwrap_or_else(|e| Outcome { failure: Some(format!("{e:#}")), ..Outcome::default() })
    };
    Job::new(BUILD, work).lock(CARGO)
}

/// Words for cargo that leave out packages that this run does not need: the fuzzers are linked with a library in C++.
fn left_out(suite: &Suite) -> &'static [&'static str] {
    if suite.has_step(FUZZERS) { &[] } else { &["--exclude", "colony-fuzz"] }
}

fn build_workspace(suite: &Suite) -> Result<(Built, Times)> {
    if suite.options.quick {
        // The default members: with --workspace and --bins, cargo would build the fuzzers as test programs, which never end.
        let mut cargo = suite.cargo(&["test", "--no-run", "--lib", "--bins", "--locked"]);
        cargo.args(FEATURES);
        return programs::build(cargo);
    }
    let cargo = |words: &[&str]| {
        let mut cargo = suite.compile(words);
        cargo.args(["--locked", "--workspace"]).args(left_out(suite)).args(FEATURES);
        cargo
    };
    let mut times = Times::default();
    let mut build = |command: Command| {
        let (built, more) = programs::build(command)?;
        times += more;
        Ok::<_, anyhow::Error>(built)
    };
    // First: the build after it puts the examples without MPI back in their place.
    let over_mpi = over_mpi(suite, &mut build)?;
    let mut built = build(cargo(&["build", "--bins", "--examples"]))?;
    built.extend(build(cargo(&["test", "--no-run"]))?);
    built.tests.extend(over_mpi);
    Ok((built, times))
}

/// The tests of the runtime whose ranks exchange messages over MPI, and the examples that they start, in a folder of their
/// own: no other program is to be linked with MPI. With the features of the whole workspace, only the runtime and its
/// programs are compiled for it.
fn over_mpi(suite: &Suite, build: &mut impl FnMut(Command) -> Result<Built>) -> Result<Option<TestProgram>> {
    if !suite.selection.contains("colony-runtime") || !suite.has_step(OVER_MPI) {
        return Ok(None);
    }
    let features = format!("{},colony-runtime/mpi", FEATURES[1]);
    let mut cargo = |words: &[&str]| {
        let mut cargo = suite.compile(words);
        cargo.args(["--locked", "--workspace", "--features", &features]).args(left_out(suite));
        build(cargo)
    };
    let examples = cargo(&["build", "--examples"])?;
    let tests = cargo(&["test", "--no-run", "--test", "runtime"])?;
    let folder = suite.target.join("over-mpi");
    let copy = |from: &Path, to: PathBuf| {
        std::fs::create_dir_all(to.parent().unwrap_or(&folder)).context("cannot create a folder")?;
        guests::replace(from, &to, None).with_context(|| format!("cannot write {}", to.display()))?;
        Ok::<_, anyhow::Error>(to)
    };
    for (name, file) in &examples.programs {
        copy(file, folder.join("examples").join(name))?;
    }
    let program = tests.tests.into_iter().find(|test| test.name == "runtime");
    let mut program = program.context("there is no test program `runtime`")?;
    program.file = copy(&program.file, folder.join("deps/runtime"))?;
    program.name = OVER_MPI.into();
    let mut tests = program.list()?;
    tests.retain(|test| ["mpirun::", "storm::", "processes::"].iter().any(|part| test.contains(part)));
    program.tests = Some(tests);
    Ok(Some(program))
}

/// The jobs that the build makes possible.
fn jobs_of_build(suite: &Arc<Suite>, built: Built) -> Result<Vec<Job>> {
    let programs = chosen_programs(suite, built.tests)?;
    let mut jobs = test_jobs(suite, &programs);
    if suite.options.quick {
        return Ok(jobs);
    }
    if programs.iter().any(has_virtual_nodes) {
        jobs.insert(0, kernel_of_nodes(suite, &built.programs)?);
    }
    if suite.options.is_narrow() {
        if programs.iter().any(|program| needs_static(suite, program)) {
            jobs.extend(static_programs(suite));
        }
        return Ok(jobs);
    }
    let fuzzers =
        built.programs.into_iter().filter(|(name, _)| suite.root.join("fuzz/seeds").join(name).is_dir());
    jobs.push(fuzz(suite, fuzzers.collect()));
    jobs.push(killed::job(suite));
    jobs.push(doc_tests(suite));
    Ok(jobs)
}

/// The programs whose tests this run has.
fn chosen_programs(suite: &Suite, built: Vec<TestProgram>) -> Result<Vec<TestProgram>> {
    let built = built.into_iter().filter(|program| suite.selection.contains(&program.package)).collect();
    let chosen = parts::choose(built, &suite.budgets, &suite.options)?;
    suite.record_inventory(chosen.inventory);
    Ok(chosen.programs)
}

/// Tests on compute nodes, and pages of the book, run static programs.
fn needs_static(suite: &Suite, program: &TestProgram) -> bool {
    ["cnk", "e2e"].contains(&suite.budgets.whole_of(&program.name))
}

fn has_virtual_nodes(program: &TestProgram) -> bool {
    WITH_VIRTUAL_NODES.contains(&program.name.as_str())
}

/// The job that fetches the kernel of virtual nodes before the tests: a download that fails is one error with a remedy, and not one in
/// each test.
fn kernel_of_nodes(suite: &Arc<Suite>, programs: &[(String, PathBuf)]) -> Result<Job> {
    let colony = programs.iter().find(|(name, _)| name == "colony");
    let (_, colony) = colony.context("cargo has built no program `colony`")?;
    let mut fetch = Command::new(colony);
    fetch.args(["vm", "kernels", "--fetch"]).current_dir(&suite.root);
    Ok(suite.commands(KERNEL, false, vec![fetch]))
}

/// The jobs that run test programs.
fn test_jobs(suite: &Arc<Suite>, programs: &[TestProgram]) -> Vec<Job> {
    let mut jobs = test_jobs_alone(suite, programs);
    for (job, program) in jobs.iter_mut().zip(programs) {
        if needs_static(suite, program) && !suite.options.quick {
            job.after.extend([STATIC.to_owned(), OTHERS.to_owned()]);
        }
        if has_virtual_nodes(program) && !suite.options.quick {
            job.after.push(KERNEL.to_owned());
        }
    }
    jobs
}

/// The jobs that build static programs for compute nodes: all of them, if the run may have tests of the second tier.
fn static_programs(suite: &Arc<Suite>) -> [Job; 2] {
    let all = suite.options.all || suite.options.is_narrow();
    let some = |names: &'static [&'static str]| if all { &[] } else { names };
    let mut others = Command::new(suite.root.join("images/programs.sh"));
    others.arg(suite.target.join("static")).args(some(&FIRST_TIER_OTHERS)).current_dir(&suite.root);
    let mut ours = suite.own(&["static"]);
    ours.args(some(&FIRST_TIER_STATIC));
    [
        suite.commands(STATIC, false, vec![ours]).after([GUESTS]).lock(CARGO),
        suite.commands(OTHERS, false, vec![others]),
    ]
}

/// Each fuzzer with its seeds and some inputs at random. The stable toolchain has no sanitizer and no coverage.
fn fuzz(suite: &Arc<Suite>, fuzzers: Vec<(String, PathBuf)>) -> Job {
    let fuzz = |(name, file): &(String, PathBuf)| {
        let mut fuzzer = Command::new(file);
        fuzzer.arg(format!("-runs={FUZZ_RUNS}")).arg("-seed=1").current_dir(&suite.root);
        fuzzer.arg(format!("-artifact_prefix={}/", suite.target.display()));
        fuzzer.arg(suite.root.join("fuzz/seeds").join(name));
        fuzzer
    };
    suite.commands(FUZZERS, false, fuzzers.iter().map(fuzz).collect())
}

/// Examples in the documentation of libraries.
fn doc_tests(suite: &Arc<Suite>) -> Job {
    let mut cargo = suite.cargo(&["test", "--locked", "--workspace", "--doc"]);
    cargo.args(FEATURES);
    suite.commands("examples of the documentation", true, vec![cargo]).behind([LINTS]).lock(CARGO)
}
