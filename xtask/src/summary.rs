// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a run: the summary, and the files with its results.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::again;
use crate::changed::Selection;
use crate::figures::{FIGURES, RunFigures};
use crate::report;
use crate::schedule::{Ended, State};
use crate::suite::{Suite, lock};
use crate::tier::Tier;

/// Tests that may be skipped in continuous integration.
const ALLOWED_SKIPS: &str = "crates/testbed/testing/skips.txt";

impl Suite {
    /// Prints the summary and writes `results.json`, `junit.xml` and `unsteady.json`. Returns `true` if everything passed.
    ///
    /// # Errors
    /// Results that cannot be written.
    pub(crate) fn finish(&self, ended: &[Ended], wall: Duration) -> Result<bool> {
        let tests = lock(&self.tests);
        let json = serde_json::to_string_pretty(&*tests).context("results.json")?;
        fs::write(self.folder.join("results.json"), json).context("cannot write results.json")?;
        fs::write(self.folder.join("junit.xml"), report::junit(&tests)).context("cannot write junit.xml")?;
        for warning in self.over_budget().into_iter().chain(self.compare_figures(ended)?) {
            eprintln!("warning: {warning}");
        }
        eprintln!("\n{}\n{}", report::steps(ended, wall), report::slowest(&tests));
        let unsteady = lock(&self.unsteady);
        let json = serde_json::to_string_pretty(&*unsteady).context("unsteady.json")?;
        fs::write(self.folder.join("unsteady.json"), json).context("cannot write unsteady.json")?;
        eprint!("{}", again::summary(&unsteady));
        let mut failures: Vec<String> = ended.iter().filter_map(failure).collect();
        if unsteady.len() > again::UNSTEADY_LIMIT {
            failures.push(format!(
                "{} tests are unsteady, and {} may be",
                unsteady.len(),
                again::UNSTEADY_LIMIT
            ));
        }
        failures.extend(self.unknown_entries(ended));
        failures.extend(self.forbidden_skips()?);
        for failure in &failures {
            eprintln!("failed: {failure}");
        }
        let failed = tests.iter().filter(|test| !test.passed).count();
        eprintln!("{} unsteady, {} skipped or in part", unsteady.len(), self.skipped_lines().len());
        eprintln!("{}", self.tiers());
        println!("{} passed, {failed} failed", tests.len() - failed);
        Ok(failures.is_empty())
    }

    /// The line of the summary with the number of tests in each tier, and the steps that this run leaves out.
    fn tiers(&self) -> String {
        let inventory = lock(&self.inventory);
        let (first, second) = (inventory.count(Tier::First), inventory.count(Tier::Second));
        let counts = format!("first tier: {first} tests; second tier: {second} tests");
        let steps: Vec<&str> =
            self.budgets.second_tier.iter().flat_map(|d| &d.steps).map(String::as_str).collect();
        match self.options.all {
            true => counts,
            false if steps.is_empty() => format!("{counts}, with --all only"),
            false => format!("{counts} and {}, with --all only", steps.join(", ")),
        }
    }

    /// Programs that took more of the processor than their budgets allow.
    fn over_budget(&self) -> Vec<String> {
        let calibrated = *lock(&self.calibrated);
        let ran = lock(&self.ran);
        ran.iter().filter_map(|(name, cpu)| self.budgets.excess(name, *cpu, calibrated)).collect()
    }

    /// Writes the figures of a whole run into `figures.toml`, and into that of the checkout if that was asked for. Returns what has
    /// grown since the last recorded run.
    fn compare_figures(&self, ended: &[Ended]) -> Result<Vec<String>> {
        if !self.is_whole() {
            return Ok(Vec::new());
        }
        let inventory = lock(&self.inventory);
        let programs = ended.iter().filter(|step| inventory.steps().any(|name| name == step.name));
        let run = RunFigures::from_steps(programs, *lock(&self.calibrated));
        let grown = self.figures.grown(&run, self.options.all);
        let figures = self.figures.with_run(run, self.options.all);
        figures.write(&self.folder.join("figures.toml"))?;
        if self.options.record {
            figures.write(&self.root.join(FIGURES))?;
        }
        Ok(grown)
    }

    /// Returns `true` if the run includes its whole tier.
    fn is_whole(&self) -> bool {
        !self.options.quick && !self.options.is_narrow() && self.selection == Selection::All
    }

    /// Entries of `budgets.toml` about programs, tests and steps that do not exist.
    fn unknown_entries(&self, ended: &[Ended]) -> Vec<String> {
        if !self.is_whole() || ended.iter().any(|e| matches!(e.state, State::NotRun(_))) {
            return Vec::new();
        }
        let inventory = lock(&self.inventory);
        let programs: Vec<&str> = inventory.steps().collect();
        let unknown = self.budgets.unknown(&programs).filter(|name| self.has_step(name));
        let mut unknown: Vec<String> = unknown.map(str::to_owned).collect();
        unknown.extend(inventory.unknown_tests(&self.budgets.second_tier));
        let steps = self.budgets.second_tier.iter().flat_map(|d| &d.steps).filter(|name| self.has_step(name));
        unknown.extend(steps.filter(|name| !ended.iter().any(|e| e.name == **name)).cloned());
        let error =
            |name| format!("xtask/budgets.toml has {name}, and there is no such test, program or step");
        unknown.into_iter().map(error).collect()
    }

    /// The records of skipped tests, each once.
    fn skipped_lines(&self) -> Vec<String> {
        let records = fs::read_to_string(self.skips()).unwrap_or_default();
        let lines: std::collections::BTreeSet<&str> = records.lines().collect();
        lines.into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn forbidden_skips(&self) -> Result<Option<String>> {
        let lines = self.skipped_lines();
        if !lines.is_empty() {
            eprintln!("skipped, or in part:\n{}\n", lines.join("\n"));
        }
        let allowed = fs::read_to_string(self.root.join(ALLOWED_SKIPS)).context(ALLOWED_SKIPS)?;
        let forbidden = report::skips_not_allowed(&lines.join("\n"), &allowed);
        let names: Vec<String> = forbidden.into_iter().collect();
        Ok((!names.is_empty() && !self.options.allow_skip).then(|| {
            format!("tests were skipped: {}. Provide what they need, or give --allow-skip", names.join(", "))
        }))
    }
}

/// A line of the summary for a step that did not pass.
fn failure(ended: &Ended) -> Option<String> {
    match &ended.state {
        State::Passed => None,
        State::Failed(why) => Some(format!("{}: {}", ended.name, why.lines().next().unwrap_or_default())),
        State::NotRun(culprit) => Some(format!("{} was not run: {culprit} failed", ended.name)),
    }
}
