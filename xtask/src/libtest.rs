// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test programs of Rust's test harness, read by their JSON events.
//!
//! The events and the times of single tests are unstable; the harness of a stable toolchain has them with
//! `RUSTC_BOOTSTRAP=1`. Only test programs get that variable: it would change what cargo builds.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::process::{self, Times};
use crate::runs;

/// A program is stopped if none of its tests ends for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(900);

/// Output that a child of a test holds open after the program has ended is read for this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A built test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// Name as in SPECIFICATION.md: that of the library or of the file, such as `colony_sim` or `e2e`.
    pub(crate) name: String,
    /// The package it is of.
    pub(crate) package: String,
    pub(crate) file: PathBuf,
    /// The package's folder, where the program starts.
    pub(crate) folder: PathBuf,
    /// Names of the tests to run; all if absent.
    pub(crate) tests: Option<Vec<String>>,
    /// Added to the environment.
    pub(crate) environment: Vec<(String, String)>,
    /// Tests at a time; as many as there are CPUs if absent.
    pub(crate) threads: Option<usize>,
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestResult {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// What a failed test has printed; `None` if it passed.
    pub(crate) failure: Option<String>,
}

/// All that a program has reported.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) tests: Vec<TestResult>,
    pub(crate) ignored: usize,
    /// Tests that have begun and not ended.
    pub(crate) running: BTreeSet<String>,
    /// The harness has reported the end of all tests.
    pub(crate) complete: bool,
}

/// An event of the harness, as far as it is read.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    event: String,
    name: Option<String>,
    exec_time: Option<f64>,
    stdout: Option<String>,
    message: Option<String>,
}

impl Results {
    /// Reads a line of the program's output. Returns `false` if the line is none of the harness, such as text of a
    /// process that a test has started.
    pub(crate) fn read_line(&mut self, line: &str) -> bool {
        // Text without an end of line may stand before an event.
        let Some(start) = line.find("{ \"type\": ") else { return false };
        let Ok(event) = serde_json::from_str::<Event>(&line[start..]) else { return false };
        match (event.kind.as_str(), event.event.as_str(), event.name) {
            ("test", "started", Some(name)) => {
                self.running.insert(name);
            }
            ("test", "ok", Some(name)) => self.end(name, event.exec_time, None),
            ("test", "failed", Some(name)) => {
                let text = [event.message, event.stdout].into_iter().flatten().collect::<Vec<_>>().join("\n");
                self.end(name, event.exec_time, Some(text));
            }
            ("test", "ignored", Some(name)) => {
                self.running.remove(&name);
                self.ignored += 1;
            }
            ("suite", "ok" | "failed", _) => self.complete = true,
            _ => {}
        }
        true
    }

    fn end(&mut self, name: String, seconds: Option<f64>, failure: Option<String>) {
        self.running.remove(&name);
        self.tests.push(TestResult { name, seconds: seconds.unwrap_or_default(), failure });
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = &TestResult> {
        self.tests.iter().filter(|test| test.failure.is_some())
    }
}

/// How a run of a program ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) results: Results,
    pub(crate) times: Times,
    /// Why the program as a whole failed, if it did.
    pub(crate) failure: Option<String>,
}

impl TestProgram {
    /// Sets a variable of the tests, unless this program has it from its own environment.
    pub(crate) fn set_default(&mut self, variable: &str, value: &str) {
        if std::env::var_os(variable).is_none() {
            self.environment.push((variable.to_owned(), value.to_owned()));
        }
    }

    /// The command that runs the tests, without the words that ask for events.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder);
        if let Some(tests) = &self.tests {
            command.arg("--exact").args(tests);
        }
        // cargo sets these for a test program; those of this program are those of xtask
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // No variable: processes that a test starts would inherit it.
        command.args(self.threads.map(|threads| format!("--test-threads={threads}")));
        command
    }

    /// The names of all tests of the program.
    ///
    /// # Errors
    /// A program that cannot be started, or that prints no list.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        let all = Self { tests: None, ..self.clone() };
        let text = crate::output_of(all.command().args(["--list", "--format", "terse"]))?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Runs the tests, and writes all output into `log`.
    ///
    /// # Errors
    /// A program that cannot be started, or a log that cannot be written.
    pub(crate) fn run(&self, log: &Path) -> Result<Run> {
        self.run_bounded(log, STALL_TIMEOUT)
    }

    fn run_bounded(&self, log: &Path, stall_timeout: Duration) -> Result<Run> {
        let mut log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let (read_end, write_end) = std::io::pipe().context("cannot make a pipe")?;
        let errors = write_end.try_clone().context("cannot duplicate a file descriptor")?;
        let began = Instant::now();
        let mut command = self.command();
        command.args(["-Z", "unstable-options", "--format", "json", "--report-time"]);
        command.env("RUSTC_BOOTSTRAP", "1").stdin(Stdio::null()).stdout(write_end).stderr(errors);
        runs::end_with_this(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.file.display()))?;
        // The command owns the writing ends.
        drop(command);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(read_end).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let (pid, (sender, end)) = (child.id(), mpsc::channel());
        std::thread::spawn(move || sender.send(process::wait_for_end(pid)));
        let mut results = Results::default();
        let mut stalled = None;
        let mut last_progress = Instant::now();
        loop {
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    let before = results.tests.len();
                    results.read_line(&line);
                    if results.tests.len() > before {
                        last_progress = Instant::now();
                    }
                    writeln!(log, "{line}").context("cannot write a log")?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if end.try_recv().is_ok() {
                        break;
                    }
                    if last_progress.elapsed() > stall_timeout && stalled.is_none() {
                        let running: Vec<&str> = results.running.iter().map(String::as_str).collect();
                        stalled = Some(format!(
                            "no test has ended for {} s; the program was stopped in: {}",
                            stall_timeout.as_secs(),
                            running.join(", ")
                        ));
                        child.kill().context("cannot stop a program")?;
                    }
                }
            }
        }
        let (status, times) = process::reap(&mut child, began).context("cannot wait for a program")?;
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            results.read_line(&line);
            writeln!(log, "{line}").context("cannot write a log")?;
        }
        let failed = results.failed().count();
        let failure = stalled.or_else(|| match failed {
            _ if !results.complete => Some(format!(
                "the program ended early ({status}), in: {}",
                results.running.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            )),
            0 if status.success() => None,
            0 => Some(format!("the program ended with {status} although no test failed")),
            _ => Some(format!("{failed} tests failed")),
        });
        Ok(Run { results, times, failure })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn events_of_the_harness_are_read_and_other_text_is_not() {
        let mut results = Results::default();
        let lines = [
            r#"{ "type": "suite", "event": "started", "test_count": 4 }"#,
            r#"{ "type": "test", "event": "started", "name": "a::good" }"#,
            r#"{ "type": "test", "event": "started", "name": "bad" }"#,
            r#"{ "type": "test", "event": "started", "name": "late" }"#,
            r#"text of a child{ "type": "test", "name": "a::good", "event": "ok", "exec_time": 0.25 }"#,
            r#"{ "type": "test", "name": "bad", "event": "failed", "exec_time": 1.5, "stdout": "left: 1\n" }"#,
            r#"{ "type": "test", "name": "slow", "event": "ignored" }"#,
        ];
        assert!(lines.iter().all(|line| results.read_line(line)));
        assert!(!results.read_line("a process prints { \"type\": \"test\" and no more"));
        assert!(!results.read_line("running 4 tests"));
        let ended: Vec<(&str, f64, bool)> =
            results.tests.iter().map(|t| (t.name.as_str(), t.seconds, t.failure.is_some())).collect();
        assert_eq!(ended, [("a::good", 0.25, false), ("bad", 1.5, true)]);
        assert_eq!((results.ignored, results.complete), (1, false));
        assert_eq!(results.running, BTreeSet::from(["late".to_owned()]));
        assert!(results.read_line(r#"{ "type": "suite", "event": "failed", "passed": 1, "failed": 1 }"#));
        assert!(results.complete);
    }

    /// A program of this shell script, which stands in for a test program.
    fn program(folder: &Path, script: &str) -> TestProgram {
        let file = folder.join("program");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("our file");
        TestProgram {
            name: "program".into(),
            package: "package".into(),
            file,
            folder: folder.to_owned(),
            tests: Some(vec!["part".into()]),
            environment: vec![("VARIABLE".into(), "value".into())],
            threads: None,
        }
    }

    const BEGIN: &str = r#"echo '{ "type": "test", "event": "started", "name": "t" }'"#;
    const OK: &str = r#"echo '{ "type": "test", "name": "t", "event": "ok", "exec_time": 0.5 }'"#;
    const END: &str = r#"echo '{ "type": "suite", "event": "ok", "passed": 1 }'"#;

    #[test]
    fn a_program_passes_only_if_the_harness_reports_the_end_and_the_exit_code_agrees() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |script: &str| {
            program(folder.path(), script).run(&folder.path().join("log")).expect("it starts").failure
        };
        assert_eq!(run(&format!("{BEGIN}; {OK}; {END}")), None);
        assert!(run(&format!("{BEGIN}; {OK}; {END}; exit 7")).is_some_and(|f| f.contains("exit status: 7")));
        assert!(run(&format!("{BEGIN}; kill -9 $$")).is_some_and(|f| f.contains("early") && f.contains("t")));
        assert!(run("exit 0").is_some_and(|f| f.contains("early")), "no event at all");
    }

    #[test]
    fn arguments_environment_and_log_are_the_programs() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let script = format!("echo $2 $VARIABLE $PWD $CARGO_PKG_NAME >&2; {END}");
        let run = program(folder.path(), &script).run(&log).expect("it starts");
        assert_eq!(run.failure, None);
        let text = std::fs::read_to_string(&log).expect("a log");
        assert!(text.starts_with(&format!("part value {} package\n", folder.path().display())), "{text}");
    }

    #[test]
    fn the_tests_of_a_program_are_listed_and_its_benchmarks_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = |script: &str| program(folder.path(), script).list();
        let list = r#"[ "$*" = "--list --format terse" ] && printf 'a::one: test\nb: benchmark\nc: test\n'"#;
        assert_eq!(program(list).expect("a list"), ["a::one", "c"]);
        assert!(program("exit 1").is_err());
    }

    #[test]
    fn a_program_whose_tests_do_not_end_is_stopped_and_names_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = program(folder.path(), &format!("{BEGIN}; exec sleep 600"));
        let run =
            program.run_bounded(&folder.path().join("log"), Duration::from_millis(300)).expect("it starts");
        assert!(run.failure.is_some_and(|f| f.contains("stopped in: t")));
    }

    #[test]
    fn a_child_that_keeps_the_output_open_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = program(folder.path(), &format!("{BEGIN}; {OK}; {END}; sleep 60 &"))
            .run(&folder.path().join("log"))
            .expect("it starts");
        assert_eq!((run.failure, run.results.tests.len()), (None, 1));
    }
}
