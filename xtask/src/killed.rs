// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of `./x test` that are killed, each at another moment, and the runs after them, which must pass.
//!
//! Tests change the scheduling of this machine, mount file systems, and start emulators and daemons. If a user or a build server
//! kills a run, the run cannot undo its changes. They must neither fail nor skip a test of the next run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::process;
use crate::runs;
use crate::schedule::{Job, Outcome};
use crate::suite::{NODE, Suite};

/// The name of the step.
pub(crate) const STEP: &str = "killed runs";

/// Programs whose runs are killed, and how long each has tested by then.
const KILLED: [(&str, Duration); 5] = [
    ("sched", Duration::from_secs(4)),
    ("daemon", Duration::from_secs(3)),
    ("cnk", Duration::from_secs(20)),
    ("sched", Duration::from_secs(11)),
    ("e2e", Duration::from_secs(17)),
];

/// Programs that must pass afterwards, without a skip.
const NEXT: [&str; 2] = ["sched", "daemon"];

/// The line that a run prints when its tests are built.
const BUILT: &str = "build of the tests";

/// The longest time until the tests of a run begin.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1800);

/// The job that kills runs. Nothing that uses this machine's scheduling runs beside it.
pub(crate) fn job(suite: &Arc<Suite>) -> Job {
    let shared = suite.clone();
    let work = move || {
        let began = Instant::now();
        let failure = kill_runs(&shared).err().map(|e| format!("{e:#}"));
        let times = process::Times { wall: began.elapsed(), ..process::Times::default() };
        Outcome { failure, times, detail: format!("{} runs were killed", KILLED.len()), more: Vec::new() }
    };
    Job::new(STEP, work).lock(NODE)
}

fn kill_runs(suite: &Suite) -> Result<()> {
    for (number, (program, after)) in KILLED.iter().enumerate() {
        let log = suite.folder.join(format!("killed-{number}-{program}.log"));
        let mut run = start(suite, program, &log)?;
        wait_until_tests_begin(&mut run, &log, &results(suite).join(format!("{program}.log")))?;
        std::thread::sleep(*after);
        run.kill().context("cannot kill a run")?;
        run.wait().context("cannot wait for a run")?;
    }
    for program in NEXT {
        let log = suite.folder.join(format!("after-kills-{program}.log"));
        let status = start(suite, program, &log)?.wait().context("cannot wait for a run")?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        ensure!(
            status.success() && text.contains("0 unsteady, 0 skipped"),
            "tests of {program} fail or are skipped after runs were killed\n{text}"
        );
    }
    Ok(())
}

/// The folder of results of the runs.
fn results(suite: &Suite) -> PathBuf {
    suite.folder.with_extension("killed")
}

/// A run of one program, with results in a folder of its own.
fn start(suite: &Suite, program: &str, log: &Path) -> Result<Child> {
    let mut command: Command = suite.own(&["test", "--program", program, "--results"]);
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = output.try_clone().context("cannot duplicate a file descriptor")?;
    command.arg(results(suite)).envs(suite.run.environment());
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    runs::end_with_this(&mut command);
    command.spawn().context("cannot start a run")
}

/// Waits until the run has built everything, and then until the program's own log is there.
fn wait_until_tests_begin(run: &mut Child, log: &Path, of_program: &Path) -> Result<()> {
    let since = Instant::now();
    while !(fs::read_to_string(log).unwrap_or_default().contains(BUILT) && of_program.exists()) {
        let ended = run.try_wait().context("cannot wait for a run")?;
        let late = since.elapsed() > BUILD_TIMEOUT;
        ensure!(
            ended.is_none() && !late,
            "a run that was to be killed has ended, or has not begun its tests: {}",
            fs::read_to_string(log).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
