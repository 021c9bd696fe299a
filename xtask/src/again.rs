// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second attempt of tests that failed.
//!
//! A test that failed runs once more by itself after everything else. If it passes then, it is *unsteady*: the outcome depends on
//! what runs beside the test, or on chance. A run passes with a few unsteady tests and lists them with both outputs, because each
//! one is a fault to mend. Bazel and nextest call such tests flaky.
//!
//! No second attempt: a program that ended early, and tests that `budgets.toml` declares as `steady`, whose first failure is a
//! finding.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::libtest::{Run, TestProgram};
use crate::schedule::{Ended, State};

/// The most unsteady tests of a run that passes.
pub(crate) const UNSTEADY_LIMIT: usize = 3;

/// The most failed tests that get a second attempt. More have a common cause, which a second attempt would only confirm.
pub(crate) const ATTEMPTS_LIMIT: usize = 10;

/// A test that failed in a program that ran to its end.
#[derive(Clone, Debug)]
pub(crate) struct FailedTest {
    /// The program as it ran, with all its tests.
    pub(crate) program: TestProgram,
    /// The name within the program.
    pub(crate) test: String,
    /// The output of the first attempt.
    pub(crate) output: String,
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
        program: program.clone(),
        test: test.name.clone(),
        output: test.failure.clone().unwrap_or_default(),
    });
    failed.collect()
}

impl FailedTest {
    /// Program and test, as `e2e::run::a_test`.
    pub(crate) fn name(&self) -> String {
        format!("{}::{}", self.program.name, self.test)
    }

    /// Runs the test by itself, with the output in `log`. Returns the test if it passes.
    pub(crate) fn try_again(&self, log: &Path) -> Option<Unsteady> {
        let program =
            TestProgram { filters: vec!["--exact".into(), self.test.clone()], ..self.program.clone() };
        let run = program.run(log).ok()?;
        let passes = run.failure.is_none() && run.results.tests.len() == 1;
        passes.then(|| Unsteady {
            name: self.name(),
            step: self.program.name.clone(),
            first: self.output.clone(),
            second: std::fs::read_to_string(log).unwrap_or_default(),
        })
    }
}

/// Marks steps as passed whose `failed` tests are all `unsteady`.
pub(crate) fn judge_steps(ended: &mut [Ended], failed: &[FailedTest], unsteady: &[Unsteady]) {
    let steps: BTreeSet<&str> = unsteady.iter().map(|test| test.step.as_str()).collect();
    for step in ended.iter_mut().filter(|step| steps.contains(step.name.as_str())) {
        let of_step = || failed.iter().filter(|test| test.program.name == step.name);
        if of_step().all(|test| unsteady.iter().any(|u| u.name == test.name())) {
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
            filters: vec!["--skip".into(), "nothing".into()],
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
        let names: Vec<String> = failed.iter().map(FailedTest::name).collect();
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
    fn a_program_that_ended_early_gets_no_second_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = program(folder.path());
        let mut run = program.run(&folder.path().join("log")).expect("it starts");
        run.results.complete = false;
        assert!(failed_tests(&program, &run).is_empty());
    }
}
