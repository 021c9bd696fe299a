// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control system: a machine is booted, runs jobs, and is switched off; its processes are killed meanwhile.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use colony_node::task;
use colony_testing::browser;
use colony_vm::slots::Slots;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{folder, programs};

/// Longest wait for anything, beside any load.
const PATIENCE: Duration = Duration::from_secs(200);

/// A machine in a folder of its own, which is switched off at the end of the test.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    pub(crate) busybox: PathBuf,
    _slots: Slots,
}

impl Machine {
    /// `None`, with the reason printed, where virtual machines cannot be had.
    pub(crate) fn new() -> Option<Self> {
        let [busybox] = programs(["busybox"])?;
        // the nodes of a machine wait most of the time
        let slots = Slots::take(2).expect("slots");
        Some(Self { folder: folder(), busybox, _slots: slots })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn busybox(&self) -> &str {
        self.busybox.to_str().expect("a path")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("colony"));
        command.args(words).env("COLONY_MACHINE", self.path().join("m")).current_dir(self.path());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("colony runs")
    }

    /// The standard output of a command that succeeds.
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let output = self.output(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let mut words = words.to_vec();
        words.push("--json");
        serde_json::from_str(&self.done(&words)).expect("json")
    }

    /// The code and the errors of a command that fails.
    pub(crate) fn fails(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.output(words);
        assert!(!output.status.success(), "{words:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The words of a job that runs a script on this many processes.
    pub(crate) fn script<'a>(&'a self, kind: &'a str, processes: &'a str, text: &'a str) -> Vec<&'a str> {
        let busybox = self.busybox.to_str().expect("a path");
        vec!["job", kind, "--processes", processes, "--", busybox, "sh", "-c", text]
    }

    pub(crate) fn state(&self) -> String {
        self.json(&["machine", "status"])["partitions"][0]["state"].as_str().expect("a state").to_owned()
    }

    /// Process id of the process that owns the nodes.
    pub(crate) fn owner(&self) -> i32 {
        self.json(&["machine", "status"])["partitions"][0]["pid"].as_i64().expect("a process") as i32
    }

    /// Processes of this name that were started for this machine.
    pub(crate) fn processes(&self, name: &str) -> impl Iterator<Item = i32> {
        let folder = self.path().to_str().expect("a path").to_owned();
        let is_named = move |pid: &i32| is_named(*pid, name);
        task::processes().into_iter().filter(is_named).filter(move |pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&folder)
        })
    }

    /// Process id of the daemon: who holds the lock of the folder.
    pub(crate) fn daemon(&self) -> Option<i32> {
        self.processes("colony-control").next()
    }

    /// The descendants of the process that owns the nodes: emulators, among others.
    pub(crate) fn emulators(&self) -> Vec<i32> {
        task::tree(self.owner()).into_iter().filter(|pid| is_named(*pid, "qemu-system-x86_64")).collect()
    }

    pub(crate) fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}: {}", self.done(&["ras", "list"]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// As `wait`, without a command that would start the daemon again.
    pub(crate) fn wait_quietly(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn job(&self, id: &str) -> Value {
        self.json(&["job", "show", id])
    }

    /// Waits for the end of a job.
    pub(crate) fn ended(&self, id: &str) -> Value {
        self.wait("the job ends", || self.job(id)["state"] == "ended");
        self.job(id)
    }

    /// The kinds of all events so far.
    pub(crate) fn events(&self) -> Vec<String> {
        let all = self.json(&["ras", "list", "--limit", "1000"]);
        let codes =
            all.as_array().expect("a list").iter().map(|event| event["code"].as_str().expect("a code"));
        codes.map(str::to_owned).collect()
    }

    pub(crate) fn all_are(&self, state: &str) -> bool {
        self.json(&["machine", "nodes"]).as_array().expect("a list").iter().all(|node| node["state"] == state)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.output(&["machine", "down"]);
    }
}

/// Returns `true` if a process has this name, of which the kernel keeps 15 bytes.
pub(crate) fn is_named(pid: i32, name: &str) -> bool {
    task::name(pid).is_some_and(|own| own == name[..name.len().min(15)])
}

pub(crate) fn is_running(pid: i32) -> bool {
    task::stat(pid).is_ok_and(|stat| !stat.has_ended())
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("it runs");
}

#[test]
fn a_machine_is_booted_runs_jobs_and_is_switched_off() {
    let Some(machine) = Machine::new() else { return };
    let (code, text) = machine.fails(&["machine", "status"]);
    assert!(code == Some(2) && text.contains("colony machine up"), "{text}");
    let up = machine.json(&["machine", "up", "--shape", "4x2x2", "--pset", "8"]);
    assert_eq!(
        (&up["partitions"][0]["state"], &up["partitions"][0]["io_nodes"]),
        (&"ready".into(), &2.into())
    );
    let mut lines: Vec<String> = machine
        .done(&machine.script("run", "16", "echo $COLONY_RANK of $COLONY_TORUS_DIMS"))
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    let mut expected: Vec<String> = (0..16).map(|rank| format!("{rank} of 4,2,2")).collect();
    expected.sort();
    assert_eq!(lines, expected);
    let (code, text) = machine.fails(&machine.script("run", "2", "exit $((COLONY_RANK * 7))"));
    assert!(code == Some(7) && text.contains("rank 1 (node 1) exited with 7"), "{text}");
    let (code, text) = machine.fails(&["job", "run", "--", "/no/such/program"]);
    assert!(code == Some(1) && text.contains("there is no such program"), "{text}");
    for (words, said) in [
        (vec!["machine", "up", "--shape", "2x2x2"], "the machine is up"),
        (vec!["partition", "create", "--shape", "2x2x2"], "0 of 16 nodes are free"),
        (vec!["partition", "boot", "nowhere"], "no partition nowhere"),
        (vec!["partition", "remove", "R00-M0-N00-J00-4x2x2"], "free R00-M0-N00-J00-4x2x2"),
        (vec!["job", "run", "--partition", "nowhere", "--", "busybox"], "no partition nowhere"),
        (vec!["job", "show", "99"], "no job 99"),
        (vec!["job", "cancel", "1"], "job 1 has ended"),
    ] {
        let (code, text) = machine.fails(&words);
        assert!(code == Some(2) && text.contains(said), "{words:?}: {text}");
    }
    let (owner, daemon) = (machine.owner(), machine.daemon().expect("it runs"));
    let emulators = machine.emulators();
    assert_eq!(emulators.len(), 16);
    machine.done(&["machine", "down"]);
    machine
        .wait("all processes end", || !emulators.iter().chain([&owner, &daemon]).any(|pid| is_running(*pid)));
    assert!(machine.fails(&["machine", "status"]).1.contains("is off"));
    // what has been is known to the next machine
    machine.done(&["machine", "up", "--shape", "2x2x2", "--unpartitioned"]);
    assert_eq!(machine.job("2")["code"], 7);
    assert_eq!(machine.done(&["job", "output", "1"]).lines().count(), 16);
}

#[test]
fn partitions_run_jobs_beside_each_other_and_queue_their_own() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x4x2", "--unpartitioned"]);
    for name in ["a", "b"] {
        machine.done(&["partition", "create", "--name", name, "--shape", "2x2x2"]);
        machine.done(&["partition", "boot", name]);
    }
    let (code, text) = machine.fails(&["partition", "create", "--shape", "4x4x2"]);
    assert!(code == Some(2) && text.contains("16 of 32 nodes are free"), "{text}");
    let busybox = machine.busybox.to_str().expect("a path").to_owned();
    let submit = |partition: &str, words: &[&str]| {
        let mut all = vec!["job", "submit", "--partition", partition, "--processes", "1", "--", &busybox];
        all.extend(words);
        machine.done(&all).trim().to_owned()
    };
    let first = submit("a", &["sleep", "1000"]);
    let second = submit("a", &["touch", "second"]);
    let third = submit("a", &["touch", "third"]);
    let other = submit("b", &["true"]);
    assert_eq!(machine.ended(&other)["code"], 0, "b does not wait for a");
    assert_eq!(machine.job(&second)["state"], "queued");
    machine.done(&["job", "cancel", &second]);
    assert_eq!(machine.ended(&second)["code"], 143);
    machine.wait("the first job runs", || machine.job(&first)["state"] == "running");
    machine.done(&["job", "cancel", &first]);
    assert_eq!(machine.ended(&first)["code"], 143);
    assert_eq!(machine.ended(&third)["code"], 0);
    assert!(machine.path().join("third").exists() && !machine.path().join("second").exists());
}

/// Submits jobs of a line in a file each, and kills the daemon after each. `submit` is given a job's place and its script.
pub(crate) fn submit_and_kill_daemon(machine: &Machine, submit: impl Fn(u64, &str) -> String) -> Vec<String> {
    let kills: u64 = std::env::var("COLONY_CONTROL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let job = |n: u64| {
        let id = submit(n, &format!("echo x >> ran.{n}"));
        // at another place of the job's way each time
        std::thread::sleep(Duration::from_micros((n * 7919) % 40_000));
        if let Some(daemon) = machine.daemon() {
            send(daemon, Signal::SIGKILL);
        }
        id
    };
    (0..kills).map(job).collect()
}

/// Waits for the end of these jobs, each of which has written its line once.
pub(crate) fn check_that_each_ran_once(machine: &Machine, jobs: &[String]) {
    for (n, id) in jobs.iter().enumerate() {
        let ended = machine.ended(id);
        assert_eq!(ended["code"], 0, "{ended}");
        let ran = std::fs::read_to_string(machine.path().join(format!("ran.{n}"))).expect("it ran");
        assert_eq!(ran, "x\n", "job {id} ran once");
    }
}

#[test]
fn a_daemon_that_is_killed_finds_its_jobs_again_and_runs_each_once() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let owner = machine.owner();
    let jobs = submit_and_kill_daemon(&machine, |_, text| {
        machine.done(&machine.script("submit", "1", text)).trim().to_owned()
    });
    check_that_each_ran_once(&machine, &jobs);
    assert_eq!(machine.owner(), owner, "the nodes have stayed");
    assert!(machine.events().iter().any(|code| code == "partition-adopted"));
}

#[test]
fn a_command_that_waits_for_a_job_goes_on_when_the_daemon_is_killed() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let text = "echo one; while [ ! -e go ]; do :; done; echo two; exit 5";
    let mut command = machine.command(&machine.script("run", "1", text));
    let waits = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("colony runs");
    machine.wait("the job runs", || {
        machine
            .json(&["job", "list"])
            .as_array()
            .is_some_and(|jobs| jobs.iter().any(|job| job["state"] == "running"))
    });
    for _ in 0..2 {
        let killed = machine.daemon().expect("it runs");
        send(killed, Signal::SIGKILL);
        // for a moment, the one that was killed still answers
        let is_another = || machine.daemon().is_some_and(|daemon| daemon != killed);
        machine.wait("the command has started a daemon again", is_another);
    }
    std::fs::write(machine.path().join("go"), []).expect("written");
    let ended = waits.wait_with_output().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout),
        "one\ntwo\n",
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert_eq!(ended.status.code(), Some(5));
}

#[test]
fn a_machine_whose_partition_process_is_stopped_says_so_and_is_switched_off() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let (owner, emulators) = (machine.owner(), machine.emulators());
    send(owner, Signal::SIGSTOP);
    machine.wait("it is seen", || machine.state() == "lost");
    let status = machine.json(&["machine", "status"]);
    let partition = &status["partitions"][0];
    let why = partition["error"].as_str().unwrap_or_default();
    assert!(why.contains(&format!("kill -CONT {owner}")) && partition["nodes"]["lost"] == 8, "{status}");
    let job = machine.done(&machine.script("submit", "1", "echo x >> ran")).trim().to_owned();
    let shown = machine.done(&["job", "show", &job]);
    assert!(shown.contains("does not answer"), "{shown}");
    machine.wait("it is reported", || machine.events().contains(&"partition-service".to_owned()));
    send(owner, Signal::SIGCONT);
    assert_eq!(machine.ended(&job)["code"], 0);
    assert_eq!(machine.state(), "ready");
    send(owner, Signal::SIGSTOP);
    machine.done(&["machine", "down"]);
    machine
        .wait_quietly("all processes end", || !emulators.iter().chain([&owner]).any(|pid| is_running(*pid)));
}

#[test]
fn nodes_that_die_or_stop_are_reported_and_started_again() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    send(machine.emulators()[3], Signal::SIGKILL);
    machine.wait("its death is reported", || machine.events().contains(&"node-died".to_owned()));
    machine.wait("it is started again", || machine.all_are("ready"));
    // a stopped one is lost until it goes on
    let stopped = machine.emulators()[2];
    send(stopped, Signal::SIGSTOP);
    machine.wait("it is seen", || machine.events().contains(&"node-stopped".to_owned()));
    send(stopped, Signal::SIGCONT);
    machine.wait("it goes on", || machine.all_are("ready"));
    // in a job
    let busybox = machine.busybox.to_str().expect("a path");
    let id = machine.done(&["job", "submit", "--", busybox, "sleep", "1000"]).trim().to_owned();
    machine.wait("the job runs", || machine.all_are("busy") && machine.job(&id)["state"] == "running");
    send(machine.emulators()[5], Signal::SIGKILL);
    let ended = machine.ended(&id);
    let error = ended["error"].as_str().expect("an error");
    assert!(ended["code"] != 0 && error.contains("its emulator ended (signal SIGKILL)"), "{ended}");
    let all = machine.done(&machine.script("run", "8", "echo $COLONY_RANK"));
    assert_eq!(all.lines().count(), 8, "the next job has all nodes");
}

#[test]
fn dead_idle_nodes_fail_at_most_one_job() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    machine.emulators().into_iter().take(3).for_each(|pid| send(pid, Signal::SIGKILL));
    let jobs: Vec<String> = (0..5)
        .map(|job| {
            let text = format!("echo x >> ran.{job}.$COLONY_RANK");
            machine.done(&machine.script("submit", "8", &text)).trim().to_owned()
        })
        .collect();
    // one may begin before the deaths are known
    let failed: Vec<&String> = jobs.iter().filter(|id| machine.ended(id)["code"] != 0).collect();
    assert!(failed.len() <= 1, "{:?}", failed.iter().map(|id| machine.job(id)).collect::<Vec<_>>());
    assert!(failed.iter().all(|id| machine.job(id)["code"] == 255));
    for (job, id) in jobs.iter().enumerate() {
        for rank in 0..8 {
            let ran = std::fs::read_to_string(machine.path().join(format!("ran.{job}.{rank}")));
            let has_failed = failed.contains(&id);
            assert!(ran.map_or(has_failed, |text| text == "x\n"), "rank {rank} of job {job} ran once");
        }
    }
}

#[test]
fn a_job_that_may_run_again_does_when_its_node_dies() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let text = "[ -e again ] && exit; : > began.$COLONY_RANK; while :; do :; done";
    let words = ["job", "submit", "--requeue", "--processes", "8", "--", machine.busybox(), "sh", "-c", text];
    let id = machine.done(&words).trim().to_owned();
    let has_begun = |rank: u32| machine.path().join(format!("began.{rank}")).exists();
    machine.wait("all ranks run", || (0..8).all(has_begun));
    std::fs::write(machine.path().join("again"), []).expect("written");
    send(machine.emulators()[5], Signal::SIGKILL);
    let ended = machine.ended(&id);
    assert_eq!((&ended["code"], &ended["requeues"]), (&0.into(), &1.into()), "{ended}");
    assert!(machine.events().contains(&"job-requeued".to_owned()));
}

#[test]
fn an_io_node_that_is_killed_ends_its_job_and_is_reported_with_its_location() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--pset", "8"]);
    let busybox = machine.busybox.to_str().expect("a path");
    let id = machine.done(&["job", "submit", "--", busybox, "sleep", "1000"]).trim().to_owned();
    machine.wait("the job runs", || machine.all_are("busy") && machine.job(&id)["state"] == "running");
    let workers = || task::tree(machine.owner()).into_iter().filter(|pid| is_named(*pid, "ciod"));
    assert_eq!(workers().count(), 2, "one a pset");
    workers().take(1).for_each(|pid| send(pid, Signal::SIGKILL));
    let ended = machine.ended(&id);
    let error = ended["error"].as_str().expect("an error");
    assert!(ended["code"] != 0 && error.contains("the I/O node of pset"), "{ended}");
    machine.wait("it is reported", || machine.events().contains(&"io-node-failed".to_owned()));
    let all = machine.json(&["ras", "list", "--limit", "1000"]);
    let event = all.as_array().expect("a list").iter().find(|event| event["code"] == "io-node-failed");
    let location = event.and_then(|event| event["location"].as_str()).expect("a location");
    assert!(location.starts_with("R00-M0-N00-I"), "{location}");
    let all = machine.done(&machine.script("run", "16", "echo $COLONY_RANK"));
    assert_eq!(all.lines().count(), 16, "the next job has all nodes");
}

#[test]
fn a_partition_whose_process_is_killed_loses_its_job_and_boots_again() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let busybox = machine.busybox.to_str().expect("a path");
    let id = machine.done(&["job", "submit", "--", busybox, "sleep", "1000"]).trim().to_owned();
    machine.wait("the job runs", || machine.all_are("busy") && machine.job(&id)["state"] == "running");
    let (owner, emulators) = (machine.owner(), machine.emulators());
    // together with the daemon
    send(machine.daemon().expect("it runs"), Signal::SIGKILL);
    send(owner, Signal::SIGKILL);
    let ended = machine.ended(&id);
    assert!(ended["code"] == 255 && ended["error"].as_str().is_some_and(|e| e.contains("ended")), "{ended}");
    machine.wait("its emulators end", || !emulators.iter().any(|pid| is_running(*pid)));
    machine.wait("it boots again", || machine.state() == "ready");
    assert_ne!(machine.owner(), owner);
    assert_eq!(machine.done(&machine.script("run", "8", "echo $COLONY_RANK")).lines().count(), 8);
}

#[test]
fn the_web_page_shows_jobs_and_a_node_that_is_killed_as_they_happen() {
    let Some(machine) = Machine::new() else { return };
    let Some(browser) = browser::find() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2", "--listen", "127.0.0.1:0"]);
    let access = machine.json(&["machine", "web"]);
    let (token, network) = (access["token"].as_str().expect("a token"), &access["network"]);
    let link = format!("{}#token={token}", network["url"].as_str().expect("a network"));
    let shown = machine.done(&["machine", "web"]);
    assert!(shown.starts_with(&link) && shown.contains("SHA-256"), "{shown}");
    let mut page = browser::Page::open(browser, 1280, 900);
    page.go(&link);
    let cells =
        |state: &str| format!("document.querySelectorAll('[role=gridcell][data-is={state}]').length === 8");
    page.wait(&cells("ready"));
    let busybox = machine.busybox.to_str().expect("a path");
    let id = machine.done(&["job", "submit", "--", busybox, "sleep", "1000"]).trim().to_owned();
    page.wait(&cells("busy"));
    page.wait("document.querySelector('#jobs tbody .state').textContent === 'running'");
    machine.done(&["job", "cancel", &id]);
    page.wait("document.querySelector('#jobs tbody .state').textContent === 'ended with 143'");
    page.wait(&cells("ready"));
    send(machine.emulators()[3], Signal::SIGKILL);
    page.wait(
        "[...document.querySelectorAll('#events code')].some((code) => code.textContent === 'node-died')",
    );
    page.wait("document.getElementById('say').textContent.includes('node-died')");
    page.wait(&cells("ready"));
    // what the machine has opened ends with it
    machine.done(&["machine", "down"]);
    page.wait("document.body.dataset.link === 'gone'");
    machine.done(&["machine", "up", "--shape", "2x2x2", "--unpartitioned"]);
    let access = machine.json(&["machine", "web"]);
    assert!(access["network"].is_null() && access["token"] != token, "{access}");
    assert!(machine.done(&["machine", "web"]).contains("ssh -N -L 8080:"));
    assert_eq!(page.problems().iter().filter(|problem| !problem.contains("ERR_")).count(), 0);
}
