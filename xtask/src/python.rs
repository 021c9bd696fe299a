// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Python packages: an environment with their tools, wheels as users get them, their tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::again::{Attempt, FailedTest};
use crate::check;
use crate::report::Test;
use crate::schedule::{Job, Outcome};
use crate::suite::Suite;

/// The folders of the packages.
pub(crate) const PACKAGES: [&str; 2] = ["python", "python/runtime"];

/// A Python environment with the packages' tools, below cargo's target folder.
struct Environment<'a> {
    root: &'a Path,
    target: &'a Path,
}

/// The jobs that build, lint and test the packages, in the background of the other tests. The wheels are built once the job
/// `build` has ended: both build into `target`.
pub(crate) fn jobs(suite: &Arc<Suite>, build: &str) -> Vec<Job> {
    let wanted =
        ["colony-sim-python", "colony-runtime-python"].iter().any(|name| suite.selection.contains(name));
    if !wanted {
        return Vec::new();
    }
    let wheels = suite.commands(WHEELS, true, wheels(suite)).after([TOOLS]).behind([build]).lock("cargo");
    // first of the background: tests wait for the wheels
    let mut jobs = vec![tools(suite), wheels.expected(100.0)];
    jobs.extend(PACKAGES.map(|package| tests(suite, package)));
    jobs
}

/// The job that makes the environment.
fn tools(suite: &Arc<Suite>) -> Job {
    let shared = suite.clone();
    let work = move || match environment(&shared).make() {
        Ok(commands) => shared.run_commands(TOOLS, true, commands),
        Err(e) => Outcome { failure: Some(format!("{e:#}")), ..Outcome::default() },
    };
    Job::new(TOOLS, work).background()
}

const TOOLS: &str = "Python tools";
const WHEELS: &str = "Python wheels";

impl Environment<'_> {
    fn folder(&self) -> PathBuf {
        self.target.join("python")
    }

    /// The path of a program of the environment.
    fn program(&self, name: &str) -> PathBuf {
        self.folder().join("bin").join(name)
    }

    /// A program of the environment.
    fn tool(&self, name: &str) -> Command {
        let mut tool = Command::new(self.program(name));
        tool.current_dir(self.root);
        tool
    }

    /// pip, which installs what follows.
    fn pip_install(&self) -> Command {
        let mut pip = self.tool("pip");
        pip.args(["install", "-q", "--disable-pip-version-check"]);
        pip
    }

    /// What the environment is made from: its own path, which its programs contain, the Python that makes it, and the list of
    /// tools.
    fn made_from(&self) -> Result<String> {
        let python =
            Command::new("python3").args(["-c", "import sys; print(sys.executable, sys.version)"]).output();
        let python = python.context("cannot start python3")?;
        let tools = fs::read_to_string(self.root.join("python/requirements.txt"))
            .context("python/requirements.txt")?;
        Ok(format!("{}\n{}{tools}", self.folder().display(), String::from_utf8_lossy(&python.stdout)))
    }

    /// The commands that make the environment; none if it is there. A file that is written last says what the environment was
    /// made from, so an interrupted run leaves none that the next one takes.
    fn make(&self) -> Result<Vec<Command>> {
        let (folder, made_from) = (self.folder(), self.made_from()?);
        let mark = folder.join("made-from");
        if fs::read_to_string(&mark).is_ok_and(|text| text == made_from) {
            return Ok(Vec::new());
        }
        let mut make = Command::new("sh");
        make.args(["-ec", r#"rm -rf "$1"; python3 -m venv "$1""#, "sh"]).arg(&folder);
        let mut install = self.pip_install();
        install.args(["-r", "python/requirements.txt"]);
        let mut finish = Command::new("sh");
        finish.args(["-ec", r#"printf %s "$1" >"$2""#, "sh", &made_from]).arg(&mark);
        Ok(vec![make, install, finish])
    }

    /// Builds the wheels of all packages into the folder `to`.
    fn wheels(&self, profile: &str, to: &Path) -> Vec<Command> {
        let wheel = |package: &str| {
            let mut maturin = self.tool("maturin");
            maturin.args(["build", "-q", "--locked", "--profile", profile, "--manifest-path"]);
            maturin.arg(format!("{package}/Cargo.toml")).arg("-o").arg(to);
            maturin.env("CARGO_TARGET_DIR", self.target);
            maturin
        };
        PACKAGES.into_iter().map(wheel).collect()
    }

    /// Installs the wheels of the folder `of` whose names begin with `name`.
    fn install(&self, of: &Path, name: &str) -> Command {
        let mut install = Command::new("sh");
        let script =
            r#"exec "$1" install -q --disable-pip-version-check --no-deps --force-reinstall "$2/$3"*.whl"#;
        install.args(["-ec", script, "sh"]).arg(self.folder().join("bin/pip")).arg(of).arg(name);
        install
    }
}

fn environment(suite: &Suite) -> Environment<'_> {
    Environment { root: &suite.root, target: &suite.target }
}

/// Builds wheels as users get them into `folder`.
///
/// # Errors
/// A tool that fails.
pub(crate) fn build_wheels(root: &Path, target: &Path, folder: &Path) -> Result<()> {
    let environment = Environment { root, target };
    let commands = environment.make()?.into_iter().chain(environment.wheels("release", folder));
    commands.into_iter().try_for_each(|mut command| check(&mut command))
}

/// An environment with the released form of the package `name` installed; returns its folder.
///
/// # Errors
/// A tool that fails.
pub(crate) fn release_environment(root: &Path, target: &Path, name: &str) -> Result<PathBuf> {
    let wheels = target.join("wheels-release");
    build_wheels(root, target, &wheels)?;
    let environment = Environment { root, target };
    check(&mut environment.install(&wheels, name))?;
    Ok(environment.folder())
}

fn wheels(suite: &Suite) -> Vec<Command> {
    let folder = suite.target.join("wheels");
    let mut empty = Command::new("rm");
    empty.arg("-rf").arg(&folder);
    let environment = environment(suite);
    let build = environment.wheels("dev", &folder);
    std::iter::once(empty).chain(build).chain([environment.install(&folder, "")]).collect()
}

/// Types and tests of one package.
fn tests(suite: &Arc<Suite>, package: &'static str) -> Job {
    let (shared, name) = (suite.clone(), format!("Python tests of {package}"));
    let label = name.clone();
    let work = move || {
        let in_package = |name: &str| {
            let mut tool = environment(&shared).tool(name);
            tool.current_dir(shared.root.join(package)).env("PYTHONDONTWRITEBYTECODE", "1");
            tool
        };
        let mut pytest = in_package("pytest");
        pytest.args(["-q", "-rpfEs", "--durations=0", "--no-header"]);
        let mut outcome = shared.run_commands(&label, false, vec![in_package("mypy"), pytest]);
        let log = shared.log_of(&label);
        match results(package, &log) {
            Ok(tests) => {
                outcome.detail = format!("{} tests", tests.len());
                let attempt = |test: &str| Attempt::Pytest {
                    pytest: environment(&shared).program("pytest"),
                    folder: shared.root.join(package),
                    test: test.to_owned(),
                };
                shared.record_failed(failed_tests(&label, package, &tests, &log, attempt));
                shared.count(tests);
            }
            Err(e) => outcome = Outcome { failure: outcome.failure.or(Some(format!("{e:#}"))), ..outcome },
        }
        outcome
    };
    Job::new(name, work).after([WHEELS]).cpus(1.0)
}

/// The tests of which pytest reports the results with `-rpfEs`, a line each: `PASSED tests/test_a.py::test_b`.
///
/// # Errors
/// A report of no test.
fn results(package: &str, log: &str) -> Result<Vec<Test>> {
    let read = |line: &str| {
        let (word, rest) = line.split_once(' ')?;
        let passed = match word {
            "PASSED" => true,
            "FAILED" | "ERROR" => false,
            _ => return None,
        };
        let name = rest.split(" - ").next().unwrap_or(rest).trim();
        name.contains("::").then(|| Test { name: format!("{package}::{name}"), seconds: 0.0, passed })
    };
    let tests: Vec<Test> = log.lines().filter_map(read).collect();
    if tests.is_empty() {
        bail!("pytest reports no test of {package}");
    }
    Ok(tests)
}

/// The failed tests of a package, unless pytest reports an error outside of a test, such as a file that it cannot load.
fn failed_tests(
    step: &str,
    package: &str,
    tests: &[Test],
    log: &str,
    attempt: impl Fn(&str) -> Attempt,
) -> Vec<FailedTest> {
    if log.lines().any(|line| line.starts_with("ERROR ")) {
        return Vec::new();
    }
    let failed = tests.iter().filter(|test| !test.passed).filter_map(|test| {
        let name = test.name.strip_prefix(&format!("{package}::"))?;
        let output = section(log, name.rsplit("::").next().unwrap_or(name));
        Some(FailedTest { step: step.to_owned(), name: test.name.clone(), output, attempt: attempt(name) })
    });
    failed.collect()
}

/// What pytest prints of a failed test, below a line such as `____ test_b ____`.
fn section(log: &str, test: &str) -> String {
    let is_head = |line: &str| line.starts_with("___") && line.ends_with("___");
    let name_of = |line: &str| line.trim_matches('_').trim().to_owned();
    let lines = log.lines().skip_while(|line| !(is_head(line) && name_of(line).ends_with(test)));
    let section =
        lines.enumerate().take_while(|(i, line)| *i == 0 || !(is_head(line) || line.starts_with("===")));
    section.map(|(_, line)| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_pytest_are_counted_by_their_lines() {
        let log = "....\n==== short test summary info ====\nPASSED tests/test_a.py::test_b[x - y]\n\
                   FAILED tests/test_a.py::test_c - assert 1 == 2\nSKIPPED [1] tests/test_a.py:3: no\n2 passed";
        let tests = results("python", log).expect("results");
        let names: Vec<(&str, bool)> = tests.iter().map(|t| (t.name.as_str(), t.passed)).collect();
        assert_eq!(
            names,
            [("python::tests/test_a.py::test_b[x", true), ("python::tests/test_a.py::test_c", false)]
        );
        assert!(results("python", "no tests ran").is_err());
    }

    #[test]
    fn a_failed_test_has_its_own_output_and_an_error_outside_of_tests_gets_no_second_attempt() {
        let log = "___ test_a ___\nassert 1\n___ Group.test_b[x] ___\nassert 2\nmore\n=== short test summary info ===\n\
                   FAILED tests/t.py::test_a - no\nFAILED tests/t.py::Group::test_b[x] - no\nPASSED tests/t.py::test_c\n";
        let attempt = |test: &str| Attempt::Pytest {
            pytest: "pytest".into(),
            folder: "python".into(),
            test: test.to_owned(),
        };
        let failed = |log: &str| {
            let tests = results("python", log).expect("results");
            failed_tests("Python tests of python", "python", &tests, log, attempt)
        };
        let [a, b] = &failed(log)[..] else { panic!("two tests failed") };
        assert_eq!(
            (a.name.as_str(), a.output.as_str()),
            ("python::tests/t.py::test_a", "___ test_a ___\nassert 1\n")
        );
        assert_eq!(b.output, "___ Group.test_b[x] ___\nassert 2\nmore\n");
        assert!(matches!(&b.attempt, Attempt::Pytest { test, .. } if test == "tests/t.py::Group::test_b[x]"));
        assert!(failed(&format!("{log}ERROR tests/u.py - ImportError\n")).is_empty());
    }
}
