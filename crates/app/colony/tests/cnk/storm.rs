// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kill storms on a machine: its processes are killed and stopped at random times while jobs run. Every job ends, none runs
//! twice, and nothing is left. `./x storm` makes longer ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use colony_node::task::{self, TaskId};
use colony_testing::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::control::{Machine, is_named};

/// Strikes of a round of jobs, at most one less.
const STRIKES: u64 = 4;
/// Longest time between two strikes.
const CALM: Duration = Duration::from_millis(1500);
/// Processes of the largest job: one a node.
const NODES: u64 = 16;

/// A machine under strikes.
struct Storm {
    machine: Machine,
    random: Random,
    /// All processes of the machine that were ever seen.
    seen: BTreeSet<(i32, u64)>,
    strikes: Vec<String>,
}

impl Storm {
    /// The processes of the machine: its daemon, the owner of its nodes, the boot process, emulators, I/O nodes.
    fn look(&mut self) -> Vec<i32> {
        let owners = self.machine.processes("colony-partition");
        let mut all: Vec<i32> = owners.flat_map(task::tree).chain(self.machine.daemon()).collect();
        all.sort_unstable();
        all.dedup();
        self.seen
            .extend(all.iter().filter_map(|pid| TaskId::of(*pid).ok()).map(|id| (id.tid, id.start_ticks)));
        all
    }

    /// Kills one or two processes, or stops one for a while.
    fn strike(&mut self) {
        let all = self.look();
        let signal = if self.random.below(5) == 0 { Signal::SIGSTOP } else { Signal::SIGKILL };
        let mut victims: Vec<i32> =
            (0..=self.random.below(2)).filter_map(|_| self.random.one_of(&all).copied()).collect();
        // most processes are emulators: the others get their share
        if self.random.below(3) == 0 {
            let others: Vec<i32> =
                all.into_iter().filter(|pid| !is_named(*pid, "qemu-system-x86_64")).collect();
            victims.extend(self.random.one_of(&others));
        }
        let name = |pid: &i32| task::name(*pid).unwrap_or_default();
        let names: Vec<String> = victims.iter().map(name).collect();
        self.strikes.push(format!("{} {}", signal.as_str(), names.join(" and ")));
        // one may have ended by now
        let send = |pid: &i32, signal| kill(Pid::from_raw(*pid), signal).is_ok();
        victims.retain(|pid| send(pid, signal));
        if signal == Signal::SIGSTOP {
            std::thread::sleep(self.random.up_to(CALM));
            victims.retain(|pid| send(pid, Signal::SIGCONT));
        }
    }

    fn submit(&mut self, number: usize) -> (u64, String) {
        let processes = self.random.below(NODES) + 1;
        let turns = self.random.below(30_000);
        // what each process has done once is seen in its file
        let text = format!(
            "echo x >> ran.{number}.$COLONY_RANK; n=0; while [ $n -lt {turns} ]; do n=$((n+1)); done"
        );
        let processes_word = processes.to_string();
        let words = self.machine.script("submit", &processes_word, &text);
        let mut id = None;
        // a partition that has failed takes no jobs until it is repaired
        self.machine.wait("a job is taken", || {
            let output = self.machine.output(&words);
            let errors = String::from_utf8_lossy(&output.stderr);
            let folder = self.machine.path().join("m");
            assert!(
                output.status.success() || errors.contains("is not booted"),
                "{errors}{:?} {:#?}",
                files(&folder),
                self.strikes
            );
            id = output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            self.repair();
            id.is_some()
        });
        (processes, id.expect("it was taken"))
    }

    /// Repairs as an operator would: boots a partition again that has failed for good, and gives jobs to drained nodes again.
    fn repair(&self) {
        let machine = self.machine.json(&["machine", "status"]);
        for drain in machine["drains"].as_array().into_iter().flatten() {
            let _ = self.machine.output(&["machine", "undrain", drain["location"].as_str().expect("text")]);
        }
        let partition = &machine["partitions"][0];
        let (state, is_owned) = (partition["state"].as_str(), !partition["pid"].is_null());
        let word = match state {
            Some("failed") if is_owned => "free",
            Some("failed" | "free") if !is_owned => "boot",
            _ => return,
        };
        let name = partition["name"].as_str().expect("a name");
        // it may be booting by now
        let _ = self.machine.output(&["partition", word, name]);
    }

    /// No process ran twice; all of them once if the job says that it succeeded.
    fn check(&self, number: usize, processes: u64, id: &str) {
        let job = self.machine.job(id);
        let ran: Vec<Option<String>> = (0..processes)
            .map(|rank| {
                std::fs::read_to_string(self.machine.path().join(format!("ran.{number}.{rank}"))).ok()
            })
            .collect();
        assert!(ran.iter().flatten().all(|text| text.is_empty() || text == "x\n"), "{job}: {ran:?}");
        if job["code"] == 0 {
            assert!(ran.iter().all(|text| text.as_deref() == Some("x\n")), "{job}: {ran:?}");
        } else {
            assert!(job["error"].as_str().is_some_and(|error| !error.is_empty()), "{job}");
        }
    }
}

/// The names in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn storm(jobs: usize, seed: u64) {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--pset", "8"]);
    let mut storm = Storm { machine, random: Random::new(seed), seen: BTreeSet::new(), strikes: Vec::new() };
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < jobs {
        // some wait in the queue while others run
        for _ in 0..=storm.random.below(3) {
            let (processes, id) = storm.submit(all.len());
            all.push((processes, id));
        }
        // in some of the rounds, nothing fails
        for _ in 0..storm.random.below(STRIKES) {
            let calm = storm.random.up_to(CALM);
            std::thread::sleep(calm);
            storm.strike();
            storm.repair();
        }
        // a look at a machine whose daemon was killed starts it again
        for (_, id) in &all {
            storm.machine.wait("the job ends", || {
                storm.repair();
                storm.machine.job(id)["state"] == "ended"
            });
        }
    }
    for (number, (processes, id)) in all.iter().enumerate() {
        storm.check(number, *processes, id);
    }
    storm.machine.wait("all nodes are ready", || {
        storm.repair();
        storm.machine.all_are("ready")
    });
    let whole = storm.machine.done(&storm.machine.script("run", "16", "echo $COLONY_RANK"));
    assert_eq!(whole.lines().count(), 16, "the next job has all nodes");
    let succeeded = all.iter().filter(|(_, id)| storm.machine.job(id)["code"] == 0).count();
    storm.look();
    storm.machine.done(&["machine", "down"]);
    let is_left = |&(tid, start_ticks): &(i32, u64)| TaskId { tid, start_ticks }.lives();
    storm.machine.wait("all processes end", || !storm.seen.iter().any(is_left));
    let folder = storm.machine.path().join("m");
    // a database that was not closed has its log beside it, and room for its last changes is reserved where the disk has plenty
    let may_be_there = |name: &str| name.starts_with("machine.db-") || name == "reserve";
    let files_left: Vec<String> = files(&folder).into_iter().filter(|name| !may_be_there(name)).collect();
    assert_eq!(files_left, ["jobs", "lock", "log", "machine.db", "partitions"]);
    assert_eq!(files(&folder.join("partitions")).len(), 1);
    eprintln!(
        "{} strikes in {:.0} s; {} processes of the machine; {} jobs succeeded, {} failed with an error",
        storm.strikes.len(),
        began.elapsed().as_secs_f64(),
        storm.seen.len(),
        succeeded,
        all.len() - succeeded
    );
}

#[test]
fn no_job_hangs_or_runs_twice_and_nothing_is_left_when_processes_are_killed_at_random() {
    storm(6, 17);
}

#[test]
#[ignore = "takes minutes: ./x storm"]
fn a_long_storm_on_a_machine() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    storm(number("STORM_JOBS", 50) as usize, number("STORM_SEED", 1));
}
