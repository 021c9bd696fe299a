// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that change this node, several at a time, of whose processes any are stopped or killed: nothing of what they have changed
//! stays.

mod commands;
mod node;

use std::path::Path;
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Owned, alone, is_root, last_cpu};
use commands::{Command, Kind, Round};
use node::Node;

/// The time after which what is not undone yet is printed: on an idle node, all is undone by then (docs/coordinate.md).
const USUAL: Duration = Duration::from_secs(2);

/// The longest time in which what was killed may be undone, on a busy node.
const LONGEST: Duration = Duration::from_secs(30);

/// Kills without `COLONY_KILLS`.
const KILLS: u32 = 12;

/// Tasks of others, each with a class or an affinity that it has to keep.
fn bystanders() -> Vec<Owned> {
    let sleeper = |change: &dyn Fn(i32)| {
        let task = Owned(std::process::Command::new("sleep").arg("100000").spawn().expect("sleep"));
        change(task.0.id().cast_signed());
        task
    };
    let usable = cpu::usable().expect("linux");
    let only = |cpu: Option<usize>| -> CpuSet { cpu.into_iter().collect() };
    let first = only(usable.first());
    let last: CpuSet = only(usable.iter().last());
    let set = |own: Class| move |pid: i32| class::set(pid, own).expect("root may");
    let bind = |cpus: CpuSet| move |pid: i32| cpu::bind(pid, &cpus).expect("usable");
    let mut all = vec![
        sleeper(&|_| ()),
        sleeper(&bind(first)),
        sleeper(&bind(last)),
        sleeper(&set(Class::Other(5))),
        sleeper(&set(Class::Batch(0))),
        sleeper(&set(Class::Fifo(10))),
    ];
    // one that starts others all the time
    let mut forks = std::process::Command::new("sh");
    all.push(Owned(forks.args(["-c", "while :; do sleep 0.03; done"]).spawn().expect("sh")));
    all
}

/// Kills some processes of the commands, a few of them stopped before. Returns how many were killed.
fn kill_some(round: &Round, random: &mut Rng) -> u32 {
    let mut killed = 0;
    for _ in 0..random.u32(1..=3) {
        let Some(&pid) = random.choice(&round.our_processes()) else { break };
        if random.f32() < 0.3 {
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            pause(random, 150);
        }
        // it may have ended just now
        killed += u32::from(kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        pause(random, 100);
    }
    killed
}

/// Ends the commands that are left, in order or by kills, or kills all their processes at once. Returns how many were killed.
fn end_all(round: &mut Round, random: &mut Rng) -> u32 {
    let mut killed = 0;
    let how = random.u32(0..4);
    if how == 0 {
        for pid in round.our_processes() {
            killed += u32::from(kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        }
    }
    random.shuffle(&mut round.commands);
    for command in &mut round.commands {
        let in_order = how == 1 || (how == 2 && random.bool());
        killed += u32::from(command.end(if in_order { Signal::SIGTERM } else { Signal::SIGKILL }));
        pause(random, 50);
    }
    killed
}

/// Waits for up to `most_ms`.
fn pause(random: &mut Rng, most_ms: u64) {
    std::thread::sleep(Duration::from_millis(random.u64(0..=most_ms)));
}

/// The number in an environment variable.
fn number(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// `COLONY_KILLS` and `STORM_SEED` set how many processes are killed, and which.
#[test]
fn commands_that_change_the_node_leave_it_as_it_was_whatever_is_killed() {
    if !is_root() {
        return;
    }
    if cpu::usable().expect("linux").len() < 2 {
        return colony_testing::skip("spare cores need two CPUs");
    }
    let (kills, seed) = (number("COLONY_KILLS", KILLS), number("STORM_SEED", 1));
    let mut random = Rng::with_seed(seed.into());
    let folder = tempfile::tempdir().expect("temp dir");
    let job = commands::job(folder.path());
    let _alone = alone();
    let _bystanders = bystanders();
    let (mut killed, mut rounds, mut longest) = (0, 0, Duration::ZERO);
    while killed < kills {
        rounds += 1;
        let (kinds, ours, took) = one_round(folder.path(), &job, rounds, &mut random);
        killed += ours;
        longest = longest.max(took);
        if kills > KILLS {
            eprintln!("round {rounds}: {kinds:?}, {ours} killed, as before after {took:.1?}");
        }
    }
    eprintln!("{killed} processes killed in {rounds} rounds: all as before after {longest:.1?} at most");
}

/// Starts some commands, kills and ends them, and waits until the node is as before. Returns how many processes were killed, and how long
/// the last of the changes stayed.
fn one_round(folder: &Path, job: &Path, number: u32, random: &mut Rng) -> (Vec<Kind>, u32, Duration) {
    let before = Node::now(folder);
    let kinds = Kind::some(random);
    let mut round = Round::new(folder, job, number, last_cpu());
    for &kind in &kinds {
        let command: Command = round.command(kind, random);
        round.commands.push(command);
        pause(random, 200);
    }
    pause(random, 1000);
    let killed = kill_some(&round, random) + end_all(&mut round, random);
    round.wait_for_ends();
    // on a busy node, the kernel takes its time to change the CPUs of its workers
    round.revert();
    let since = Instant::now();
    let mut left = round.differences(&before);
    let mut is_late = false;
    while !left.is_empty() && since.elapsed() < LONGEST {
        if since.elapsed() > USUAL && !std::mem::replace(&mut is_late, true) {
            eprintln!(
                "round {number}: {} differences after {USUAL:?}, as {:#?}",
                left.len(),
                &left[..left.len().min(4)]
            );
        }
        std::thread::sleep(Duration::from_millis(50));
        left = round.differences(&before);
    }
    assert!(left.is_empty(), "round {number}: {kinds:?}, {killed} killed: {left:#?}");
    (kinds, killed, since.elapsed())
}

/// What of a task must not change.
fn of_task(tid: i32) -> Option<(task::TaskId, Class, CpuSet)> {
    let id = task::TaskId::of(tid).ok()?;
    Some((id, class::get(tid).ok()?, cpu::affinity(tid).ok()?))
}
