// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks whose host has a warning in its health file are evacuated, and readmitted when the host is healthy again.
//!
//! Each rank of a job has a health file of its own here. What the ranks print is what the tests wait for.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::example;

/// A job that runs until it is killed. Its objects check every message, and migrate at random.
struct Job {
    launcher: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
    folder: TempDir,
}

impl Job {
    fn start(ranks: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!(
            "echo $$ > {folder}/pid.$COLONY_JOB_RANK\nCOLONY_HEALTH={folder}/health.$COLONY_JOB_RANK exec {program} \
             --messages 1000000000000 --migrate 10",
            folder = folder.path().display(),
            program = example("delivery").display()
        );
        let mut command = Command::new(example("run"));
        command.arg(ranks.to_string()).args(["/bin/sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let job = Self::of(command, folder);
        // files that are there from the beginning are looked at most often
        (0..ranks).for_each(|rank| job.replace(rank, &healthy()));
        job
    }

    fn of(mut command: Command, folder: TempDir) -> Self {
        let mut launcher = command.spawn().expect("the launcher starts");
        let lines = BufReader::new(launcher.stderr.take().expect("a pipe")).lines();
        Self { launcher, lines, folder }
    }

    /// The health file of a rank.
    fn file(&self, rank: u32) -> PathBuf {
        self.folder.path().join(format!("health.{rank}"))
    }

    /// Replaces a health file, as `colonyd` does.
    fn replace(&self, rank: u32, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, self.file(rank))).expect("room");
    }

    /// The next line of the ranks. The job's end is a failure of the test.
    fn line(&mut self) -> String {
        self.lines.next().expect("the job runs on").expect("text")
    }

    /// Waits for a line with this beginning; others must be of `others`.
    fn wait(&mut self, begin: &str, others: &[&str]) -> String {
        loop {
            let line = self.line();
            if line.starts_with(begin) {
                return line;
            }
            assert!(others.iter().any(|other| line.starts_with(other)), "{line}");
        }
    }

    /// Sends a signal to a rank, and waits until the rank has got it.
    fn signal(&self, rank: u32, signal: Signal) {
        let text = std::fs::read_to_string(self.folder.path().join(format!("pid.{rank}"))).expect("it runs");
        let pid: i32 = text.trim().parse().expect("a number");
        kill(Pid::from_raw(pid), signal).expect("it runs");
        let is_pending = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("a field");
            u64::from_str_radix(pending.trim(), 16).expect("a mask") >> (signal as i32 - 1) & 1 == 1
        };
        while is_pending() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

fn healthy() -> String {
    r#"{"schema": "colony.health/1", "state": "healthy"}"#.to_owned()
}

fn warning(text: &str) -> String {
    format!(
        r#"{{"schema": "colony.health/1", "state": "warning", "reasons": [{{"source": "edac", "text": "{text}"}}]}}"#
    )
}

/// The objects that a line of an evacuated PE counts.
fn objects(line: &str) -> u32 {
    let count = line.split("evacuated: ").nth(1).and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn a_warning_evacuates_a_rank_and_its_end_readmits_it() {
    let mut job = Job::start(3);
    let may_fail = "warning: the host of rank 1 may fail (edac: mc0 fails): its objects migrate";
    let mut times = Vec::new();
    // objects come back at random once the rank is readmitted: the next warning has them migrate again
    let mut with_objects = 0;
    while with_objects < 3 {
        let since = Instant::now();
        job.replace(1, &warning("mc0 fails"));
        assert_eq!(job.line(), may_fail);
        let empty = job.line();
        times.push(since.elapsed().as_secs_f64() * 1e3);
        assert!(empty.starts_with("PE 1 evacuated: ") && empty.ends_with(" ms (edac: mc0 fails)"), "{empty}");
        with_objects += u32::from(objects(&empty) > 0);
        job.replace(1, &healthy());
        assert_eq!(job.line(), "the host of rank 1 is healthy again: it is readmitted");
        // a PE that is busy may not see a request that is replaced by the next
        assert_eq!(job.line(), "PE 1 readmitted");
    }
    // the first look may have found no file, and be followed by a long pause
    println!("milliseconds from the warning to the empty PE: {times:.1?}");
    assert!(job.launcher.try_wait().expect("ours").is_none(), "the program runs on");
}

#[test]
fn the_end_of_a_warning_does_not_readmit_a_rank_that_an_administrator_has_evacuated() {
    let mut job = Job::start(2);
    for is_first in [true, false] {
        let [begin, end] = ["warning: the host of rank 1 may fail", "the host of rank 1 is healthy again"];
        if is_first {
            // a line of the rank says that it has begun, and handles signals
            job.replace(1, &warning("a"));
            job.wait("PE 1 evacuated", &[begin]);
            job.replace(1, &healthy());
            job.wait("PE 1 readmitted", &[end]);
            job.signal(1, Signal::SIGUSR1);
            let line = job.wait("PE 1 evacuated", &[]);
            assert!(line.ends_with(" ms"), "no warning is the reason: {line}");
            job.replace(1, &warning("b"));
            assert!(job.wait(begin, &[]).ends_with("it is evacuated already"));
        } else {
            job.signal(1, Signal::SIGUSR2);
            job.wait("PE 1 readmitted", &[]);
            job.replace(1, &warning("c"));
            job.wait("PE 1 evacuated", &[begin]);
            job.signal(1, Signal::SIGUSR1);
        }
        job.replace(1, &healthy());
        let line = job.wait(end, &[]);
        assert!(line.ends_with("it stays as the administrator's signal has asked"), "{line}");
    }
    assert!(job.launcher.try_wait().expect("ours").is_none(), "the program runs on");
}

#[test]
fn a_file_that_cannot_be_used_is_reported_once_and_changes_nothing() {
    let mut job = Job::start(2);
    let ignores = "warning: rank 1 ignores the health of its host: ";
    job.replace(1, "{\"schema\": \"colony.health/1\"");
    assert!(job.wait(ignores, &[]).contains("is no health file"), "the first is reported");
    // the rank sees some of these at least, and reports none
    for text in ["", "[]", "{\"schema\": \"other/2\"}", &"x".repeat(70_000)] {
        job.replace(1, text);
    }
    job.replace(1, &warning("a"));
    job.wait("PE 1 evacuated: ", &["warning: the host of rank 1 may fail (edac: a)"]);
    // nor does a file that is missing, or a pipe, readmit the rank
    std::fs::remove_file(job.file(1)).expect("ours");
    nix::unistd::mkfifo(&job.file(1), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    job.replace(0, &warning("b"));
    job.wait("warning: the host of rank 0 may fail (edac: b)", &[]);
    job.replace(1, &healthy());
    // the only rank that is present gets the objects of the other
    let lines = ["the host of rank 1 is healthy again: it is readmitted", "PE 1 readmitted"];
    job.wait("PE 0 evacuated: ", &lines);
}

#[test]
fn if_all_hosts_warn_the_program_runs_on_where_it_is() {
    let mut job = Job::start(2);
    (0..2).for_each(|rank| job.replace(rank, &warning("a")));
    let warned = "warning: the host of rank ";
    // a PE whose warning comes first may be empty before the second
    let mut seen = 0;
    while seen < 2 {
        let line = job.line();
        assert!(line.starts_with(warned) || line.starts_with("PE "), "{line}");
        seen += u32::from(line.starts_with(warned));
    }
    job.replace(0, &healthy());
    job.wait("the host of rank 0 is healthy again: it is readmitted", &["PE "]);
    // objects that had nowhere to go can leave now
    job.replace(0, &warning("b"));
    job.replace(1, &healthy());
    job.wait("the host of rank 1 is healthy again: it is readmitted", &["PE ", warned]);
    assert!(job.launcher.try_wait().expect("ours").is_none(), "the program runs on");
}

#[test]
fn a_job_of_one_rank_and_one_that_is_told_so_do_not_watch() {
    for (ranks, value) in [(1, None), (2, Some("none"))] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("health");
        std::fs::write(&file, warning("a")).expect("room");
        let mut command = Command::new(example("run"));
        command.arg(ranks.to_string()).arg(example("ring")).arg("1000").stdin(Stdio::null());
        let value = value.map_or_else(|| file.display().to_string(), str::to_owned);
        let output = command.env("COLONY_HEALTH", value).output().expect("the launcher starts");
        assert!(output.status.success());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!errors.contains("host of rank"), "{errors}");
    }
}
