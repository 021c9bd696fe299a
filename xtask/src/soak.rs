// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x soak` runs every test several times while busy loops keep the CPUs busy, and counts the failures of each test.
//!
//! No second attempts: a test that fails once in the rounds is listed with its count. The rounds run as `./x test` does, side by
//! side and with the same locks, so what a test meets here it can meet in any run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::changed::Selection;
use crate::options::Soak;
use crate::plan;
use crate::report::Test;
use crate::schedule::{self, State};
use crate::suite::{Suite, lock};

/// The table lists every failed test, and this many of the slowest.
const SLOWEST: usize = 10;

/// A test in all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    /// Program and test, as `e2e::run::a_test`; a program alone if the program ended before its tests.
    name: String,
    runs: usize,
    failed: usize,
    /// The shortest, the median and the longest duration.
    seconds: [f64; 3],
}

/// Builds the tests, runs them so many times, and prints the table. Returns `true` if none failed.
///
/// # Errors
/// A checkout that cannot be read, a build that fails, or results that cannot be written.
pub(crate) fn run(soak: Soak) -> Result<bool> {
    let suite = Arc::new(Suite::new(guests::root(), soak.tests.clone(), Selection::All)?);
    let passed = run_rounds(&suite, &soak);
    let cleared = suite.run.end();
    let passed = passed?;
    cleared?;
    Ok(passed)
}

fn run_rounds(suite: &Arc<Suite>, soak: &Soak) -> Result<bool> {
    let programs = plan::build_programs(suite)?;
    let busy = BusyLoops::start(soak.busy);
    let began = Instant::now();
    for round in 1..=soak.times {
        let jobs = plan::test_jobs_alone(suite, &programs);
        let ended = schedule::run_all(jobs, plan::cpus(), |step| suite.tell(step, began));
        let failed: Vec<&str> =
            ended.iter().filter(|e| e.state != State::Passed).map(|e| e.name.as_str()).collect();
        for step in &failed {
            suite.keep_log(step, &format!("round {round}"))?;
        }
        eprintln!("round {round} of {}: {} of {} steps failed\n", soak.times, failed.len(), ended.len());
        // after each round: an interrupted soak keeps its rounds
        write(&rows(&lock(&suite.tests)), &suite.folder.join("soak.json"))?;
    }
    drop(busy);
    let rows = rows(&lock(&suite.tests));
    print!("{}", table(&rows, soak.times, soak.busy));
    Ok(rows.iter().all(|row| row.failed == 0))
}

fn write(rows: &[Row], file: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(rows).context("soak.json")?;
    fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))
}

/// The tests of all rounds, a row each: those that failed most often first, then the slowest.
fn rows(tests: &[Test]) -> Vec<Row> {
    let mut by_name: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
    for test in tests {
        by_name.entry(&test.name).or_default().push(test);
    }
    let row = |(name, runs): (&str, Vec<&Test>)| {
        let mut seconds: Vec<f64> = runs.iter().map(|test| test.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let at = |i: usize| seconds.get(i).copied().unwrap_or_default();
        Row {
            name: name.to_owned(),
            runs: runs.len(),
            failed: runs.iter().filter(|test| !test.passed).count(),
            seconds: [at(0), at((seconds.len() - 1) / 2), at(seconds.len() - 1)],
        }
    };
    let mut rows: Vec<Row> = by_name.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.failed.cmp(&a.failed).then(b.seconds[1].total_cmp(&a.seconds[1])));
    rows
}

/// The failed tests and the slowest ones, as text.
fn table(rows: &[Row], times: usize, busy: usize) -> String {
    let failed = rows.iter().filter(|row| row.failed > 0).count();
    let mut text =
        format!("{:>6} {:>5} {:>9} {:>9} {:>9}\n", "failed", "runs", "least s", "median s", "most s");
    for row in rows.iter().take(failed + SLOWEST) {
        let [least, median, most] = row.seconds;
        let _ = writeln!(
            text,
            "{:>6} {:>5} {least:>9.2} {median:>9.2} {most:>9.2}  {}",
            row.failed, row.runs, row.name
        );
    }
    let _ = writeln!(
        text,
        "{} tests, {times} times each, beside {busy} busy loops: {failed} failed at least once",
        rows.len()
    );
    text
}

/// Threads that keep CPUs busy until this value is dropped.
struct BusyLoops {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyLoops {
    fn start(count: usize) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let ends = ends.clone();
            std::thread::spawn(move || while !ends.load(Ordering::Relaxed) {})
        };
        Self { threads: (0..count).map(spin).collect(), ends }
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A loop cannot panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, seconds: f64, passed: bool) -> Test {
        Test { name: name.into(), seconds, passed }
    }

    #[test]
    fn a_test_that_failed_in_any_round_stands_first_with_its_count() {
        let rounds = [
            test("a", 3.0, true),
            test("b", 1.0, false),
            test("a", 5.0, true),
            test("b", 2.0, true),
            test("a", 4.0, true),
            test("b", 3.0, false),
        ];
        let rows = rows(&rounds);
        let b = Row { name: "b".into(), runs: 3, failed: 2, seconds: [1.0, 2.0, 3.0] };
        let a = Row { name: "a".into(), runs: 3, failed: 0, seconds: [3.0, 4.0, 5.0] };
        assert_eq!(rows, [b, a]);
        let text = table(&rows, 3, 2);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["2", "3", "1.00", "2.00", "3.00", "b"]);
        assert!(
            text.ends_with("2 tests, 3 times each, beside 2 busy loops: 1 failed at least once\n"),
            "{text}"
        );
    }

    #[test]
    fn busy_loops_end_with_their_owner() {
        let loops = BusyLoops::start(2);
        assert_eq!(loops.threads.len(), 2);
        drop(loops);
    }
}
