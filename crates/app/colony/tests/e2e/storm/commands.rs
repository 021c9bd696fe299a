// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of a storm, their processes, and their jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use colony_node::class::Class;
use colony_node::cpu;
use colony_node::task;
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::node::{Node, differences};
use super::of_task;
use crate::common::{error, program};

/// The environment variable by which processes of a round are recognized.
const MARK: &str = "COLONY_TEST_STORM";
/// Seconds for which a job computes: longer than a round.
const JOB_S: &str = "60";
/// The longest time in which commands end.
const END: Duration = Duration::from_secs(60);

/// A way of changing the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `colonyd`, and a job that joins it.
    Daemon,
    /// `colony run` with windows.
    Windows,
    /// `colony run` with a spare core, with or without windows.
    SpareCore,
    /// `colony run` on large pages.
    Pages,
    /// `colony tune apply`.
    Apply,
    /// `colony tune apply`, and at once `colony tune revert`.
    ApplyAndRevert,
}

impl Kind {
    /// Two to five different kinds, in any order. Of the two that apply settings, one at most.
    pub(super) fn some(random: &mut Rng) -> Vec<Self> {
        let settings = if random.bool() { Self::Apply } else { Self::ApplyAndRevert };
        let mut kinds = vec![Self::Daemon, Self::Windows, Self::SpareCore, Self::Pages, settings];
        random.shuffle(&mut kinds);
        kinds.truncate(random.usize(2..=5));
        kinds
    }
}

/// Builds the job that the commands run.
pub(super) fn job(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures/members.c");
    let path = folder.join("members");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-o"]).args([&path, &source]).arg("-lpthread");
    let out = compiler.output().expect("cc is there");
    assert!(out.status.success(), "{}", error(&out));
    path
}

/// A command that runs.
pub(super) struct Command(Child);

impl Command {
    /// Sends a signal to it. Returns `true` if this kills it.
    pub(super) fn end(&mut self, signal: Signal) -> bool {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return false;
        }
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).is_ok() && signal == Signal::SIGKILL
    }
}

/// Commands that run at the same time.
pub(super) struct Round {
    folder: PathBuf,
    job: PathBuf,
    mark: String,
    cpu: String,
    pub(super) commands: Vec<Command>,
    /// Jobs that the test itself has started.
    jobs: Vec<Child>,
}

impl Round {
    pub(super) fn new(folder: &Path, job: &Path, number: u32, cpu: String) -> Self {
        let mark = format!("{MARK}={}-{number}", std::process::id());
        Self {
            folder: folder.to_owned(),
            job: job.to_owned(),
            mark,
            cpu,
            commands: Vec::new(),
            jobs: Vec::new(),
        }
    }

    fn start(&self, program: &Path, args: &[&str]) -> Child {
        let (name, value) = self.mark.split_once('=').expect("a variable");
        let mut command = std::process::Command::new(program);
        command.args(args).env(name, value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    }

    /// The name of the round's transaction of settings.
    fn transaction(&self) -> String {
        self.mark.replace([' ', '='], "-").to_lowercase()
    }

    /// Starts a command of this kind.
    pub(super) fn command(&mut self, kind: Kind, random: &mut Rng) -> Command {
        let colony = program();
        let job = self.job.to_str().expect("plain").to_owned();
        let period = format!("{}ms", random.choice([10, 20, 50, 100]).expect("some"));
        let windows = ["--period", &period, "--duty", "80%"];
        let run = |args: &[&str]| self.start(&colony, &[&["run"], args, &["--", &job, JOB_S]].concat());
        let cpus = cpu::usable().expect("linux");
        let spare = random.choice([cpus.first(), cpus.iter().last()]).flatten().expect("a CPU");
        let (spare, backend) = (format!("{spare}-{spare}"), if random.bool() { "agent" } else { "none" });
        let name = self.transaction();
        let child = match kind {
            Kind::Daemon => return self.daemon(&period),
            Kind::Windows => run(&[&["--backend", "agent", "--cpus", &self.cpu], &windows[..]].concat()),
            Kind::SpareCore => {
                run(&[&["--backend", backend, "--spare-cores", &spare], &windows[..]].concat())
            }
            Kind::Pages => run(&["--backend", "none", "--pages", "huge"]),
            Kind::Apply => self.start(&colony, &["tune", "apply", "--name", &name, "--keep-going"]),
            Kind::ApplyAndRevert => {
                let both = "\"$0\" tune apply --name \"$1\" --keep-going; exec \"$0\" tune revert \"$1\"";
                self.start(Path::new("sh"), &["-c", both, colony.to_str().expect("plain"), &name])
            }
        };
        Command(child)
    }

    /// Starts `colonyd`, and a job that joins it once its files are there.
    fn daemon(&mut self, period: &str) -> Command {
        let mount = self.folder.join("colony");
        let config = self.folder.join("colonyd.toml");
        let text = format!(
            "period = \"{period}\"\nduty_cycle = \"80%\"\ncpus = \"{}\"\nbackend = \"agent\"\n",
            self.cpu
        );
        fs::write(&config, text).expect("a file");
        let daemon = program().with_file_name("colonyd");
        let path = |path: &Path| path.to_str().expect("plain").to_owned();
        let child = self.start(&daemon, &["--mount", &path(&mount), "--config", &path(&config)]);
        let since = Instant::now();
        while !mount.join("job").exists() && since.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let job = self.start(&self.job.clone(), &[JOB_S]);
        // a daemon that is not ready yet has a job less
        let _ = fs::write(mount.join("job"), job.id().to_string());
        self.jobs.push(job);
        Command(child)
    }

    /// Processes of the round that have not ended.
    fn processes(&self) -> Vec<i32> {
        let has_mark = |pid: &i32| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|&b| b == 0).any(|variable| variable == self.mark.as_bytes())
        };
        // a guard has no environment, and the path of the mount among its arguments
        let is_guard = |pid: &i32| {
            let folder = self.folder.as_os_str().as_encoded_bytes();
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.windows(folder.len()).any(|part| part == folder)
        };
        let lives = |pid: &i32| task::stat(*pid).is_ok_and(|stat| !stat.has_ended());
        task::processes().into_iter().filter(|pid| has_mark(pid) || is_guard(pid)).filter(lives).collect()
    }

    /// Processes of the round that are Colony's.
    pub(super) fn our_processes(&self) -> Vec<i32> {
        let is_ours = |pid: &i32| {
            let file = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            file.file_name().is_some_and(|name| name == "colony" || name == "colonyd")
        };
        self.processes().into_iter().filter(is_ours).collect()
    }

    /// Waits for all commands. Jobs may go on.
    pub(super) fn wait_for_ends(&mut self) {
        let since = Instant::now();
        while self.commands.iter_mut().any(|command| matches!(command.0.try_wait(), Ok(None))) {
            assert!(since.elapsed() < END, "a command does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reverts the transaction of settings, if it is in effect or was interrupted: an administrator would.
    pub(super) fn revert(&self) {
        let revert = ["tune", "revert", &self.transaction()];
        let out = std::process::Command::new(program()).args(revert).output().expect("runs");
        let is_reverted = out.status.success() || error(&out).contains("no transaction is named");
        assert!(is_reverted, "{}", error(&out));
    }

    /// All that is not as before, in words.
    pub(super) fn differences(&self, before: &Node) -> Vec<String> {
        let mut found: Vec<String> =
            self.our_processes().iter().map(|pid| format!("process {pid} lives")).collect();
        found.extend(
            self.processes().into_iter().flat_map(task::threads).filter_map(|tid| self.of_member(tid)),
        );
        found.extend(differences(before, &Node::now(&self.folder)));
        found
    }

    /// What is wrong with a task of a job.
    fn of_member(&self, tid: i32) -> Option<String> {
        let name = task::name(tid)?;
        let own = match name.as_str() {
            "nice-5" => Class::Other(5),
            "batch" => Class::Batch(0),
            "members" | "threads" | "forks" | "short" => Class::Other(0),
            _ => return None,
        };
        let (_, class, cpus) = of_task(tid)?;
        // CPUs that a program was given for good (`--cpus`) are its own
        let is_bound = cpus != cpu::usable().ok()? && cpus.to_string() != self.cpu;
        (class != own || is_bound).then(|| format!("{name} {tid} of a job: {class} on CPU {cpus}"))
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let commands = self.commands.iter_mut().map(|command| &mut command.0);
        commands.chain(&mut self.jobs).for_each(|child| drop(child.wait()));
    }
}
