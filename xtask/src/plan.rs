// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test`: every check of a checkout, as jobs that run side by side.
//!
//! What tests need is built first. Then the test programs run, within the CPUs of the machine; lints, documentation and
//! the other steps that only compile take the processor time that the tests leave.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::budget::Budgets;
use crate::changed::{self, Selection};
use crate::libtest::TestProgram;
use crate::options::Options;
use crate::process::Times;
use crate::programs::{self, Built};
use crate::python;
use crate::schedule::{self, Job, Outcome};
use crate::suite::Suite;

/// Features that tests and lints are built with.
const FEATURES: [&str; 2] = ["--features", "colony-bench/mpi,colony-balance/metis"];

/// Random inputs that each fuzzer gets beside its seeds.
const FUZZ_RUNS: u32 = 2000;

/// The job that builds the workspace and its tests.
const BUILD: &str = "build of the tests";

/// The job that builds what crates carry inside.
const GUESTS: &str = "build of the guests";

/// The job that builds static programs for compute nodes.
const STATIC: &str = "static programs";

/// The job that builds static programs that are not ours.
const OTHERS: &str = "programs of others";

/// The job that lints the workspace.
const LINTS: &str = "lints";

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
    let cpus = std::thread::available_parallelism()
        .map_or(1.0, |n| f64::from(u32::try_from(n.get()).unwrap_or(u32::MAX)));
    let began = Instant::now();
    let mut ended = schedule::run_all(jobs(&suite), cpus, |ended| suite.tell(ended, began));
    suite.try_failed_again(&mut ended);
    suite.finish(&ended, began.elapsed())
}

/// The jobs that are known before the build.
fn jobs(suite: &Arc<Suite>) -> Vec<Job> {
    let mut clippy = suite.compile(&["clippy", "--locked", "--workspace", "--all-targets"]);
    clippy.args(FEATURES).args(["--", "-D", "warnings"]);
    let guests = suite.cargo(&["run", "--quiet", "--locked", "-p", "guests"]);
    let mut jobs = vec![
        suite.commands(GUESTS, false, vec![guests]).lock(CARGO),
        suite.commands("format", true, formats(suite)),
        suite.commands("lints of the kernel", true, kernel(suite)).after([GUESTS]).behind([BUILD]),
        suite.commands(LINTS, true, vec![clippy]).after([GUESTS]).behind([BUILD]).lock(CARGO),
    ];
    if has_command("cargo-deny") {
        jobs.push(suite.commands("licences and advisories", true, deny(suite)));
    }
    if suite.options.quick {
        jobs.push(build(suite).after([GUESTS]));
        return jobs;
    }
    let target = suite.target.join("static");
    let mut others = Command::new(suite.root.join("images/programs.sh"));
    others.arg(&target).current_dir(&suite.root);
    jobs.extend([
        suite.commands(STATIC, false, vec![own(suite, &["static"])]).after([GUESTS]).lock(CARGO),
        suite.commands(OTHERS, false, vec![others]),
        build(suite).after([GUESTS]).behind([STATIC]),
        suite.commands("documentation", true, vec![documentation(suite)]).behind([LINTS]).lock(CARGO),
    ]);
    jobs.extend(python::jobs(suite, BUILD));
    jobs
}

/// This program, with another command.
fn own(suite: &Suite, words: &[&str]) -> Command {
    let mut xtask = Command::new(std::env::current_exe().unwrap_or_else(|_| "xtask".into()));
    xtask.args(words).current_dir(&suite.root);
    xtask
}

fn has_command(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The main workspace and the kernel's.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "kernel/cnk/Cargo.toml"];

fn formats(suite: &Suite) -> Vec<Command> {
    let format = |manifest: &&str| suite.cargo(&["fmt", "--all", "--manifest-path", manifest, "--check"]);
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

/// The build of the workspace, after which the test programs are known.
fn build(suite: &Arc<Suite>) -> Job {
    let shared = suite.clone();
    let work = move || match build_workspace(&shared) {
        Ok((built, times)) => {
            let detail = format!("{} test programs", built.tests.len());
            Outcome { failure: None, times, detail, more: jobs_of_build(&shared, built) }
        }
        Err(e) => Outcome { failure: Some(format!("{e:#}")), ..Outcome::default() },
    };
    Job::new(BUILD, work).lock(CARGO)
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
        cargo.args(["--locked", "--workspace"]).args(FEATURES);
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
    if !suite.selection.contains("colony-runtime") {
        return Ok(None);
    }
    let features = format!("{},colony-runtime/mpi", FEATURES[1]);
    let mut cargo = |words: &[&str]| {
        let mut cargo = suite.compile(words);
        cargo.args(["--locked", "--workspace", "--features", &features]);
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
    program.name = "runtime-over-mpi".into();
    program.filters = ["mpirun::", "storm::", "processes::"].map(str::to_owned).to_vec();
    Ok(Some(program))
}

/// The jobs that the build makes possible.
fn jobs_of_build(suite: &Arc<Suite>, built: Built) -> Vec<Job> {
    // Tests on compute nodes, and pages of the book, run these programs.
    let needs_static = ["cnk", "e2e"];
    let mut jobs: Vec<Job> = Vec::new();
    for program in
        with_names_of_their_own(built.tests).into_iter().filter(|p| suite.selection.contains(&p.package))
    {
        let after = needs_static.contains(&program.name.as_str()) && !suite.options.quick;
        for part in parts(&suite.budgets, program) {
            let job = suite.program(part);
            jobs.push(if after { job.after([STATIC, OTHERS]) } else { job });
        }
    }
    if suite.options.quick {
        return jobs;
    }
    let fuzzers =
        built.programs.into_iter().filter(|(name, _)| suite.root.join("fuzz/seeds").join(name).is_dir());
    jobs.push(fuzz(suite, fuzzers.collect()));
    jobs.push(doc_tests(suite));
    jobs
}

/// The test program without the tests that `budgets.toml` runs on their own, and each such part.
fn parts(budgets: &Budgets, mut program: TestProgram) -> Vec<TestProgram> {
    let part = |(name, tests): (&str, &[String])| TestProgram {
        name: name.to_owned(),
        filters: tests.to_owned(),
        ..program.clone()
    };
    let mut parts: Vec<TestProgram> = budgets.parts(&program.name).map(part).collect();
    let others = parts.iter().flat_map(|part| &part.filters);
    program.filters.extend(others.flat_map(|test| ["--skip".to_owned(), test.clone()]));
    parts.push(program);
    parts
}

/// Adds the package to the name of a program whose name another one has, too.
fn with_names_of_their_own(mut programs: Vec<TestProgram>) -> Vec<TestProgram> {
    let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    for program in &mut programs {
        if names.iter().filter(|name| **name == program.name).count() > 1 {
            program.name = format!("{}-{}", program.name, program.package);
        }
    }
    programs
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
    suite.commands("fuzzers", false, fuzzers.iter().map(fuzz).collect())
}

/// Examples in the documentation of libraries.
fn doc_tests(suite: &Arc<Suite>) -> Job {
    let mut cargo = suite.cargo(&["test", "--locked", "--workspace", "--doc"]);
    cargo.args(FEATURES);
    suite.commands("examples of the documentation", true, vec![cargo]).behind([LINTS]).lock(CARGO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_a_program_with_parts_runs_in_one_of_them() {
        let file = "calibration_ms = 1.0\n[program.on-nodes]\nof = \"all\"\ntests = [\"vm::\", \"cnk::\"]\n\
                    cpu_s = 1.0\nwall_s = 1.0\n";
        let budgets = Budgets::parse(file).expect("a file");
        let program = TestProgram {
            name: "all".into(),
            package: "colony".into(),
            file: "/t/all".into(),
            folder: "/c".into(),
            filters: Vec::new(),
            environment: Vec::new(),
            threads: None,
        };
        let other = TestProgram { name: "other".into(), ..program.clone() };
        let [part, rest] = &parts(&budgets, program)[..] else { panic!("a part and the rest") };
        assert_eq!((part.name.as_str(), rest.name.as_str()), ("on-nodes", "all"));
        assert_eq!(part.filters, ["vm::", "cnk::"]);
        assert_eq!(rest.filters, ["--skip", "vm::", "--skip", "cnk::"]);
        assert_eq!(parts(&budgets, other.clone()), [other]);
    }
}
