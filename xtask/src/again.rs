// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second attempt of tests that failed.
//!
//! A test that failed runs once more by itself after everything else. If it passes then, it is *unsteady*: the outcome depends on
//! what runs beside the test, or on chance. A run passes with a few unsteady tests and lists them with both outputs, because each
//! one is a fault to mend. Bazel and nextest call such tests flaky.
//!
//! No second attempt: a program that ended early, a Python test that fails outside of its own code, and tests that `budgets.toml`
//! declares as `steady`, whose first failure is a finding.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::libtest::{Run, TestProgram};
use crate::process;
use crate::schedule::{Ended, State};

/// The most unsteady tests of a run that passes.
pub(crate) const UNSTEADY_LIMIT: usize = 3;

/// The most failed tests that get a second attempt. More have a common cause, which a second attempt would only confirm.
pub(crate) const ATTEMPTS_LIMIT: usize = 10;

/// A failed test of a step that ran to its end.
#[derive(Clone, Debug)]
pub(crate) struct FailedTest {
    /// The step that ran it.
    pub(crate) step: String,
    /// Program and test, as `e2e::run::a_test`.
    pub(crate) name: String,
    /// The output of the first attempt.
    pub(crate) output: String,
    pub(crate) attempt: Attempt,
}

/// How to run a single test.
#[derive(Clone, Debug)]
pub(crate) enum Attempt {
    /// A test of a program, by its name there.
    Program(TestProgram, String),
    /// A test of a Python package.
    Pytest {
        /// The program `pytest`.
        pytest: PathBuf,
        /// The package's folder.
        folder: PathBuf,
        /// File and test, as `tests/test_a.py::test_b`.
        test: String,
    },
}

/// A test that failed at first and passed by itself, as in `unsteady.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Unsteady {
    /// Program and test, as `e2e::run::a_test`.
    pub(crate) name: String,
    /// The step of the run that the test is of.
    pub(crate) step: String,
    /// The output of the attempt that failed.
    pub(crate) first: String,
    /// The output of the attempt that passed.
    pub(crate) second: String,
}

/// The failed tests of a run, unless the program itself ended early.
pub(crate) fn failed_tests(program: &TestProgram, run: &Run) -> Vec<FailedTest> {
    if !run.results.complete {
        return Vec::new();
    }
    let failed = run.results.failed().map(|test| FailedTest {
        step: program.name.clone(),
        name: format!("{}::{}", program.name, test.name),
        output: test.failure.clone().unwrap_or_default(),
        attempt: Attempt::Program(program.clone(), test.name.clone()),
    });
    failed.collect()
}

impl FailedTest {
    /// Runs the test by itself, with the output in `log`. Returns the test if it passes.
    pub(crate) fn try_again(&self, log: &Path) -> Option<Unsteady> {
        self.attempt.passes(log).then(|| Unsteady {
            name: self.name.clone(),
            step: self.step.clone(),
            first: self.output.clone(),
            second: std::fs::read_to_string(log).unwrap_or_default(),
        })
    }
}

impl Attempt {
    /// Returns `true` if the test runs and passes.
    fn passes(&self, log: &Path) -> bool {
        match self {
            Self::Program(program, test) => {
                let program = TestProgram { tests: Some(vec![test.clone()]), ..program.clone() };
                let run = program.run(log);
                run.is_ok_and(|run| run.failure.is_none() && run.results.tests.len() == 1)
            }
            Self::Pytest { pytest, folder, test } => {
                let mut command = Command::new(pytest);
                command.args(["-q", "--no-header", test]).current_dir(folder);
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                process::run_logged(command, log).is_ok_and(|(status, _)| status.success())
            }
        }
    }
}

/// Marks steps as passed whose `failed` tests are all `unsteady`.
pub(crate) fn judge_steps(ended: &mut [Ended], failed: &[FailedTest], unsteady: &[Unsteady]) {
    let steps: BTreeSet<&str> = unsteady.iter().map(|test| test.step.as_str()).collect();
    for step in ended.iter_mut().filter(|step| steps.contains(step.name.as_str())) {
        let of_step = || failed.iter().filter(|test| test.step == step.name);
        if of_step().all(|test| unsteady.iter().any(|u| u.name == test.name)) {
            step.state = State::Passed;
            step.detail = format!("{}, {} unsteady", step.detail, of_step().count());
        }
    }
}

/// The part of the summary that lists unsteady tests with both outputs; empty if there are none.
pub(crate) fn summary(unsteady: &[Unsteady]) -> String {
    let one = |test: &Unsteady| {
        format!(
            "unsteady: {} failed, and passed by itself\n---- first attempt\n{}\n---- second attempt\n{}\n",
            test.name,
            test.first.trim_end(),
            test.second.trim_end()
        )
    };
    unsteady.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::process::Times;

    /// A program with two tests: `once` fails at the first run only, `always` fails at every run.
    fn program(folder: &Path) -> TestProgram {
        let script = r#"#!/bin/sh
event() { echo "{ \"type\": \"test\", \"name\": \"$1\", \"event\": \"$2\", \"exec_time\": 0.5, \"stdout\": \"seen $2\" }"; }
wanted() { [ "$1" != --exact ] || [ "$2" = "$3" ]; }
if wanted "$1" "$2" once; then if [ -e once ]; then event once ok; else touch once; event once failed; rc=101; fi; fi
if wanted "$1" "$2" always; then event always failed; rc=101; fi
echo '{ "type": "suite", "event": "ok" }'
exit ${rc:-0}
"#;
        let file = folder.join("program");
        std::fs::write(&file, script).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("our file");
        TestProgram {
            name: "program".into(),
            package: "package".into(),
            file,
            folder: folder.to_owned(),
            tests: None,
            environment: Vec::new(),
            threads: None,
        }
    }

    fn failed_step() -> Ended {
        let state = State::Failed("tests failed".into());
        Ended { name: "program".into(), state, times: Times::default(), detail: "2 tests".into() }
    }

    #[test]
    fn a_test_that_fails_once_is_unsteady_and_one_that_fails_always_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, log) = (program(folder.path()), folder.path().join("log"));
        let failed = failed_tests(&program, &program.run(&log).expect("it starts"));
        let names: Vec<&str> = failed.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["program::once", "program::always"]);
        let unsteady: Vec<Unsteady> = failed.iter().filter_map(|test| test.try_again(&log)).collect();
        let [once] = &unsteady[..] else { panic!("one of the two: {unsteady:?}") };
        assert_eq!((once.name.as_str(), once.first.as_str()), ("program::once", "seen failed"));
        assert!(once.second.contains("seen ok"), "{once:?}");
        assert!(summary(&unsteady).starts_with("unsteady: program::once failed, and passed by itself"));

        let mut steps = [failed_step()];
        judge_steps(&mut steps, &failed, &unsteady);
        assert_eq!(steps[0].state, failed_step().state, "one of its tests failed twice");
        judge_steps(&mut steps, &failed[..1], &unsteady);
        assert_eq!((&steps[0].state, steps[0].detail.as_str()), (&State::Passed, "2 tests, 1 unsteady"));
    }

    #[test]
    fn a_python_test_runs_again_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let pytest = folder.path().join("pytest");
        std::fs::write(&pytest, "#!/bin/sh\necho \"$*\"\n[ \"$3\" = tests/a.py::good ]\n").expect("a file");
        std::fs::set_permissions(&pytest, PermissionsExt::from_mode(0o755)).expect("our file");
        let failed = |test: &str| FailedTest {
            step: "Python tests of python".into(),
            name: format!("python::{test}"),
            output: "no".into(),
            attempt: Attempt::Pytest {
                pytest: pytest.clone(),
                folder: folder.path().to_owned(),
                test: test.to_owned(),
            },
        };
        let again = |name: &str| failed(name).try_again(&folder.path().join(name.replace('/', "-")));
        assert_eq!(again("tests/a.py::good").expect("it passes").second, "-q --no-header tests/a.py::good\n");
        assert_eq!(again("tests/a.py::bad"), None);
    }

    #[test]
    fn a_program_that_ended_early_gets_no_second_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = program(folder.path());
        let mut run = program.run(&folder.path().join("log")).expect("it starts");
        run.results.complete = false;
        assert!(failed_tests(&program, &run).is_empty());
    }
}
