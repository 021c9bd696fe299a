// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the jobs of one `./x test` share: folders, options, budgets, and the results that the summary is made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use colony_testing::machine::MachineLock;

use crate::again::{self, FailedTest, Unsteady};
use crate::budget::{self, Budgets};
use crate::changed::Selection;
use crate::figures::{FIGURES, Figures};
use crate::libtest::TestProgram;
use crate::options::Options;
use crate::process::{self, Times};
use crate::report::{self, Test};
use crate::runs::OwnRun;
use crate::schedule::{Ended, Job, Outcome, State};
use crate::tier::{Inventory, Tier};

/// Lines of a failed step's log that are shown.
const TAIL_LINES: usize = 60;

/// The lock of programs that change or measure the scheduling of this machine.
pub(crate) const NODE: &str = "node";

/// Virtual CPUs of tests for each CPU of this machine.
const EMULATORS_A_CPU: usize = 2;

/// The shared state of a run.
pub(crate) struct Suite {
    pub(crate) root: PathBuf,
    /// `target`, which every cargo of the run builds into.
    pub(crate) target: PathBuf,
    /// Logs and results of this run.
    pub(crate) folder: PathBuf,
    /// Keeps other runs out of `folder`, and knows what this one leaves.
    pub(crate) run: OwnRun,
    pub(crate) options: Options,
    pub(crate) selection: Selection,
    pub(crate) budgets: Budgets,
    /// The figures of the last recorded runs.
    pub(crate) figures: Figures,
    /// All tests that were built.
    pub(crate) inventory: Mutex<Inventory>,
    pub(crate) tests: Mutex<Vec<Test>>,
    /// Failed tests that may pass by themselves.
    failed: Mutex<Vec<FailedTest>>,
    /// Those that did.
    pub(crate) unsteady: Mutex<Vec<Unsteady>>,
    /// Test programs that ran, and the processor time of each.
    pub(crate) ran: Mutex<Vec<(String, Duration)>>,
    /// Times of the calibration loop; the slowest counts.
    pub(crate) calibrated: Mutex<Duration>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Suite {
    /// A run in the checkout `root`, with its logs in a new folder `target/test`, or the one that the options name. Waits for the
    /// end of another run with that folder.
    ///
    /// # Errors
    /// A folder that cannot be made, what an earlier run has left and cannot be removed, or `budgets.toml` that cannot be read.
    pub(crate) fn new(root: PathBuf, options: Options, selection: Selection) -> Result<Self> {
        let target = guests::target_folder();
        let folder = options.results.as_ref().map_or_else(|| target.join("test"), |folder| root.join(folder));
        let run = OwnRun::begin(&folder)?;
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let budgets = fs::read_to_string(root.join("xtask/budgets.toml")).context("xtask/budgets.toml")?;
        Ok(Self {
            budgets: Budgets::parse(&budgets)?,
            figures: Figures::read(&root.join(FIGURES))?,
            root,
            target,
            folder,
            run,
            options,
            selection,
            inventory: Mutex::default(),
            tests: Mutex::default(),
            failed: Mutex::default(),
            unsteady: Mutex::default(),
            ran: Mutex::default(),
            calibrated: Mutex::new(budget::calibration()),
        })
    }

    /// Returns `true` if a step of this name belongs to the run: it is of the first tier, or both tiers or this step is asked for.
    pub(crate) fn has_step(&self, name: &str) -> bool {
        self.budgets.tier_of_step(name) == Tier::First || self.options.all || self.options.names(name)
    }

    /// Notes which tests there are.
    pub(crate) fn record_inventory(&self, inventory: Inventory) {
        *lock(&self.inventory) = inventory;
    }

    /// cargo, in the root of the checkout.
    pub(crate) fn cargo(&self, words: &[&str]) -> Command {
        let mut cargo = crate::cargo();
        cargo.args(words).current_dir(&self.root).envs(self.run.environment());
        cargo
    }

    /// This program, with another command.
    pub(crate) fn own(&self, words: &[&str]) -> Command {
        // not by its path: cargo may have built another program there meanwhile
        let mut xtask = Command::new("/proc/self/exe");
        xtask.args(words).current_dir(&self.root);
        xtask
    }

    /// cargo with a command that compiles: its durations by package are written to `target/cargo-timings`.
    pub(crate) fn compile(&self, words: &[&str]) -> Command {
        let mut cargo = self.cargo(words);
        cargo.arg("--timings");
        cargo
    }

    fn log(&self, name: &str) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() || c == '_' { c } else { '-' };
        self.folder.join(format!("{}.log", name.chars().map(plain).collect::<String>()))
    }

    /// The file that tests record their skips in.
    pub(crate) fn skips(&self) -> PathBuf {
        self.folder.join("skips")
    }

    /// A job that runs commands one after another, up to the first that fails. In the background, with a low priority.
    pub(crate) fn commands(self: &Arc<Self>, name: &str, background: bool, commands: Vec<Command>) -> Job {
        let (suite, label) = (self.clone(), name.to_owned());
        let job = Job::new(name, move || suite.run_commands(&label, background, commands));
        if background { job.background() } else { job }
    }

    pub(crate) fn run_commands(&self, name: &str, background: bool, commands: Vec<Command>) -> Outcome {
        let mut outcome = Outcome::default();
        for mut command in commands {
            command.envs(self.run.environment());
            let command = if background { with_low_priority(&command) } else { command };
            match process::run_logged(command, &self.log(name)) {
                Ok((status, times)) => {
                    outcome.times.wall += times.wall;
                    outcome.times.cpu += times.cpu;
                    if !status.success() {
                        outcome.failure = Some(format!("{status}\n{}", tail(&self.log(name))));
                        break;
                    }
                }
                Err(e) => {
                    outcome.failure = Some(format!("{e:#}"));
                    break;
                }
            }
        }
        outcome
    }

    /// A job that runs a test program, as `budgets.toml` says.
    pub(crate) fn program(self: &Arc<Self>, mut program: TestProgram) -> Job {
        let budget = self.budgets.of(&program.name);
        program.environment.extend(self.run.environment());
        program.environment.push(("COLONY_SKIPS".into(), self.skips().to_string_lossy().into_owned()));
        // Several programs need the published figures.
        let simulated = self.folder.join("simulated");
        program.environment.push(("COLONY_SIMULATED".into(), simulated.to_string_lossy().into_owned()));
        // The same random cases in every run: a change is judged by its effect, not by luck.
        program.set_default("PROPTEST_RNG_SEED", "1");
        // Emulators wait most of the time, and no test measures by them but in counted time.
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        program.set_default("COLONY_VM_SLOTS", &(EMULATORS_A_CPU * cpus).to_string());
        program.threads = budget.threads;
        let (suite, name) = (self.clone(), program.name.clone());
        let mut job = Job::new(name, move || suite.run_program(&program)).cpus(budget.cpus());
        job.expected_s = budget.wall_s;
        job.locks = budget.locks;
        job
    }

    /// This machine's scheduling, for a program that shares it with no other.
    fn scheduling_for(&self, program: &str) -> Result<Option<MachineLock>> {
        let wants = self.budgets.of(program).locks.iter().any(|lock| lock == NODE);
        wants.then(|| self.run.scheduling(program)).transpose()
    }

    fn run_program(&self, program: &TestProgram) -> Outcome {
        let run = self.scheduling_for(&program.name);
        let run = match run.and_then(|_alone| program.run(&self.log(&program.name))) {
            Ok(run) => run,
            Err(e) => return Outcome { failure: Some(format!("{e:#}")), ..Outcome::default() },
        };
        {
            let mut calibrated = lock(&self.calibrated);
            *calibrated = (*calibrated).max(budget::calibration());
        }
        lock(&self.ran).push((program.name.clone(), run.times.cpu));
        let of_program = |test: &crate::libtest::TestResult| Test {
            name: format!("{}::{}", program.name, test.name),
            seconds: test.seconds,
            passed: test.failure.is_none(),
        };
        lock(&self.tests).extend(run.results.tests.iter().map(of_program));
        if run.failure.is_some() && run.results.failed().next().is_none() {
            let seconds = run.times.wall.as_secs_f64();
            lock(&self.tests).push(Test { name: program.name.clone(), seconds, passed: false });
        }
        lock(&self.failed).extend(again::failed_tests(program, &run));
        let failure = run.failure.map(|why| {
            let outputs = run.results.failed().map(|test| {
                format!(
                    "\n---- {}::{}\n{}",
                    program.name,
                    test.name,
                    test.failure.as_deref().unwrap_or_default()
                )
            });
            let outputs: String = outputs.collect();
            if outputs.is_empty() {
                format!("{why}\n{}", tail(&self.log(&program.name)))
            } else {
                why + &outputs
            }
        });
        let ignored = match run.results.ignored {
            0 => String::new(),
            n => format!(", {n} ignored"),
        };
        Outcome {
            failure,
            times: run.times,
            detail: format!("{} tests{ignored}", run.results.tests.len()),
            more: Vec::new(),
        }
    }

    /// Runs failed tests once more, one at a time with nothing beside them, and marks steps as passed whose tests all pass then.
    pub(crate) fn try_failed_again(&self, ended: &mut [Ended]) {
        let failed = std::mem::take(&mut *lock(&self.failed));
        if failed.len() > again::ATTEMPTS_LIMIT {
            eprintln!("{} tests failed, so none gets a second attempt\n", failed.len());
            return;
        }
        let mut unsteady = Vec::new();
        for test in failed.iter().filter(|test| !self.budgets.must_be_steady(&test.name)) {
            eprintln!("second attempt: {}", test.name);
            let _alone = match self.scheduling_for(&test.step) {
                Ok(alone) => alone,
                Err(e) => {
                    eprintln!("no second attempt: {e:#}");
                    continue;
                }
            };
            unsteady.extend(test.try_again(&self.log(&format!("again-{}", test.name))));
        }
        again::judge_steps(ended, &failed, &unsteady);
        for test in lock(&self.tests).iter_mut() {
            test.passed |= unsteady.iter().any(|u| u.name == test.name);
        }
        *lock(&self.unsteady) = unsteady;
    }

    /// Counts tests of a step that is no test program of Rust, such as pytest.
    pub(crate) fn count(&self, tests: impl IntoIterator<Item = Test>) {
        lock(&self.tests).extend(tests);
    }

    /// Notes failed tests that may pass by themselves.
    pub(crate) fn record_failed(&self, failed: impl IntoIterator<Item = FailedTest>) {
        lock(&self.failed).extend(failed);
    }

    /// Keeps the log of a step that will run again, under a name with `mark`.
    ///
    /// # Errors
    /// A log that cannot be renamed.
    pub(crate) fn keep_log(&self, step: &str, mark: &str) -> Result<()> {
        let (log, kept) = (self.log(step), self.log(&format!("{step} {mark}")));
        fs::rename(&log, &kept).with_context(|| format!("cannot rename {}", log.display()))
    }

    /// The log of a step.
    pub(crate) fn log_of(&self, name: &str) -> String {
        fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    /// Reports the end of a step on standard error.
    pub(crate) fn tell(&self, ended: &Ended, began: Instant) {
        eprintln!("{:>6.0}  {}", began.elapsed().as_secs_f64(), report::line(ended));
        if let State::Failed(why) = &ended.state {
            eprintln!("{why}\nthe whole log: {}\n", self.log(&ended.name).display());
        }
    }
}

/// The same command, at the lowest priority.
fn with_low_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.arg("-n19").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Sums of two steps that the summary shows as one.
impl std::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(folder: &Path) -> Arc<Suite> {
        let root = guests::root();
        let budgets = Budgets::parse("calibration_ms = 100.0").expect("budgets");
        Arc::new(Suite {
            root,
            target: folder.to_owned(),
            folder: folder.to_owned(),
            run: OwnRun::begin(&folder.join("results")).expect("a run"),
            options: Options::default(),
            selection: Selection::All,
            budgets,
            figures: Figures::default(),
            inventory: Mutex::default(),
            tests: Mutex::default(),
            failed: Mutex::default(),
            unsteady: Mutex::default(),
            ran: Mutex::default(),
            calibrated: Mutex::default(),
        })
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failed_command_ends_its_step_and_shows_the_end_of_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let suite = suite(folder.path());
        let script = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; exit 4";
        let outcome = suite.run_commands("a step", false, vec![shell(script), shell("echo went on")]);
        let why = outcome.failure.expect("it fails");
        assert!(why.starts_with("exit status: 4") && why.contains("line 99"), "{why}");
        assert!(!why.contains("line 39\n") && !suite.log_of("a step").contains("went on"), "{why}");
    }

    #[test]
    fn a_background_command_keeps_its_environment_and_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let suite = suite(folder.path());
        let mut command = shell("echo $VARIABLE $PWD $(nice)");
        command.env("VARIABLE", "value").current_dir(folder.path());
        assert_eq!(suite.run_commands("step", true, vec![command]).failure, None);
        let folder = folder.path().canonicalize().expect("a folder");
        assert_eq!(suite.log_of("step"), format!("value {} 19\n", folder.display()));
    }

    #[test]
    fn a_program_that_is_missing_is_a_failure_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let outcome =
            suite(folder.path()).run_commands("step", false, vec![Command::new("/no/such/program")]);
        assert!(outcome.failure.is_some_and(|why| why.contains("/no/such/program")));
    }

    #[test]
    fn a_skipped_test_that_is_not_listed_fails_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let suite = suite(folder.path());
        assert_eq!(suite.forbidden_skips().expect("readable"), None);
        fs::write(suite.skips(), "e2e::a no moon\ne2e::a no moon\n").expect("a file");
        assert!(suite.forbidden_skips().expect("readable").is_some_and(|why| why.contains("e2e::a")));
    }
}
