// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job, and killed processes, leave the node as it was.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use colony_testing::is_gone;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::*;

fn kill_9(pid: i32) {
    // it may have ended meanwhile
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Threads of a process that have not ended.
fn threads(pid: i32) -> Vec<i32> {
    task::threads(pid).into_iter().filter(|&t| task::stat(t).is_ok_and(|s| !s.has_ended())).collect()
}

#[test]
fn a_name_that_is_not_utf8_does_not_hide_a_task() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = Owned(on_the_job_cpu(me(&["rename", "500", "30000"])).spawn().expect("itself"));
    let agent = agent_for(victim.pid());
    let renamed = || std::fs::read(format!("/proc/{}/comm", victim.pid())).is_ok_and(|n| n == b"\xff\xfe\n");
    assert!(eventually(renamed).is_some());
    assert!(is_switched(victim.pid()) && is_switched(victim.pid()), "it stays a member");
    stop(agent);
    assert_eq!(class_of(victim.pid()), Some(Class::Other(0)));
}

#[test]
fn a_process_whose_first_thread_has_ended_stays_a_member_and_is_restored() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = Owned(on_the_job_cpu(me(&["leaderless", "500", "30000"])).spawn().expect("itself"));
    let agent = agent_for(victim.pid());
    assert!(eventually(|| task::stat(victim.pid()).is_ok_and(|s| s.has_ended())).is_some());
    let left = threads(victim.pid());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(is_switched(left[0]) && is_switched(left[0]), "it stays a member");
    stop(agent);
    assert_eq!(class_of(left[0]), Some(Class::Other(0)));
}

#[test]
fn a_real_time_class_a_user_cannot_have_is_not_its_own() {
    use std::os::unix::process::CommandExt;
    let Some(_cpu) = the_job_cpu() else { return };
    let mut spin = Command::new("sh");
    spin.args(["-c", "while :; do :; done"]).uid(65534).gid(65534);
    let victim = Owned(on_the_job_cpu(spin).spawn().expect("sh"));
    class::set(victim.pid(), Class::Fifo(50)).expect("privileged");
    let agent = agent_for(victim.pid());
    assert!(eventually(|| class_of(victim.pid()) == Some(Class::Idle)).is_some());
    stop(agent);
    assert_eq!(class_of(victim.pid()), Some(Class::Other(0)));
}

#[test]
fn a_member_that_leaves_the_jobs_cpus_is_not_favored_there() {
    let Some(_cpu) = the_job_cpu() else { return };
    let reserved: CpuSet = cpu::usable().expect("linux").without(&last_cpu());
    let first = reserved.first().expect("two CPUs").to_string();
    // it leaves again whenever it is brought back
    let victim = Owned(on_the_job_cpu(me(&["escape", &first, "30000"])).spawn().expect("itself"));
    let agent = agent_for(victim.pid());
    let away = || cpu::affinity(victim.pid()).is_ok_and(|a| a == reserved);
    assert!(eventually(away).is_some(), "it does leave");
    let never_favored = || {
        (0..100).all(|_| {
            std::thread::sleep(Duration::from_millis(3));
            class_of(victim.pid()) != Some(Class::Fifo(50))
        })
    };
    assert!(eventually(never_favored).is_some(), "it is not favored any more");
    let said = stop(agent);
    assert!(said.contains("left the job's CPUs"), "{said}");
}

#[test]
fn a_task_once_bound_elsewhere_is_brought_back_and_stays_favored() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = spinner(Class::Other(0));
    let agent = agent_for(victim.pid());
    assert!(is_switched(victim.pid()));
    let all = cpu::usable().expect("linux");
    cpu::bind(victim.pid(), &all).expect("privileged");
    assert!(eventually(|| cpu::affinity(victim.pid()).is_ok_and(|a| a == last_cpu())).is_some());
    assert!(is_switched(victim.pid()) && is_switched(victim.pid()));
    stop(agent);
    assert_eq!(cpu::affinity(victim.pid()).expect("alive"), all, "as it had chosen");
}

#[test]
fn a_program_keeps_the_class_that_it_sets_for_itself() {
    let Some(_cpu) = the_job_cpu() else { return };
    for chosen in [Class::Other(7), Class::Batch(4), Class::Other(0)] {
        let victim = spinner(Class::Other(2));
        let agent = agent_for(victim.pid());
        assert!(is_switched(victim.pid()));
        let nice = if let Class::Other(n) | Class::Batch(n) = chosen { n } else { 0 };
        class::set_nice(victim.pid(), nice).expect("privileged");
        if matches!(chosen, Class::Batch(_)) {
            class::set(victim.pid(), chosen).expect("privileged");
        }
        // an edge has passed
        assert!(is_switched(victim.pid()) && is_switched(victim.pid()));
        stop(agent);
        assert_eq!(class_of(victim.pid()), Some(chosen));
    }
}

#[test]
fn a_class_that_a_program_has_set_is_kept_whenever_the_agent_is_killed() {
    let Some(_cpu) = the_job_cpu() else { return };
    // before an edge has passed, and before and after the next scan
    for wait_ms in [0, 2, 5, 10, 20, 40, 80, 160, 320, 640] {
        let victim = spinner(Class::Other(2));
        let agent = agent_for(victim.pid());
        assert!(is_switched(victim.pid()));
        let guardians = guardians_of(agent.pid());
        class::set(victim.pid(), Class::Batch(2)).expect("privileged");
        std::thread::sleep(Duration::from_millis(wait_ms));
        kill_9(agent.pid());
        assert!(eventually(|| guardians.iter().all(|&guardian| crate::common::is_gone(guardian))).is_some());
        assert_eq!(class_of(victim.pid()), Some(Class::Batch(2)), "after {wait_ms} ms");
    }
}

#[test]
fn children_of_a_niced_parent_have_its_nice_value_in_whatever_window_they_are_forked() {
    let Some(_cpu) = the_job_cpu() else { return };
    let parent = Owned(on_the_job_cpu(me(&["fork", "6", "30000"])).spawn().expect("itself"));
    class::set(parent.pid(), Class::Other(6)).expect("privileged");
    let agent = agent_for(parent.pid());
    assert!(eventually(|| task::children(parent.pid()).len() == 6).is_some());
    let children = task::children(parent.pid());
    assert!(children.iter().all(|&c| is_switched(c)));
    stop(agent);
    let classes: BTreeSet<String> = children.iter().filter_map(|&c| Some(class_of(c)?.to_string())).collect();
    children.into_iter().for_each(kill_9);
    assert_eq!(classes, [Class::Other(6).to_string()].into());
}

#[test]
fn a_child_that_loses_its_parent_at_once_is_a_member_and_is_restored() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = Owned(on_the_job_cpu(me(&["orphans", "40", "3000"])).spawn().expect("itself"));
    let agent = agent_for(victim.pid());
    if !kernel_tells(&agent) {
        return;
    }
    // orphans are forked in favored and regular windows
    assert!(eventually(|| orphans(victim.pid()).len() >= 40).is_some(), "{:?}", orphans(victim.pid()));
    let children = orphans(victim.pid());
    assert!(is_switched(children[0]) && is_switched(children[39]), "they are members");
    stop(agent);
    let classes: BTreeSet<String> = children.iter().filter_map(|&c| Some(class_of(c)?.to_string())).collect();
    let gathered = children.iter().filter(|c| in_a_group(**c)).count();
    children.into_iter().for_each(kill_9);
    assert_eq!(classes, [Class::Other(0).to_string()].into());
    assert_eq!(gathered, 0, "and in no group any more");
}

/// The processes that fixture `orphans` of process `pid` has left behind: it names them.
fn orphans(pid: i32) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").expect("linux");
    let numbers = numbers.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|p| {
            std::fs::read(format!("/proc/{p}/cmdline"))
                .is_ok_and(|l| l.ends_with(format!("\0orphan-of\0{pid}\0").as_bytes()))
        })
        .filter(|&p| task::stat(p).is_ok_and(|s| !s.has_ended()))
        .collect()
}

fn in_a_group(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|g| g.contains("colony-job."))
}

#[test]
fn job_tasks_that_share_a_cpu_take_turns_in_favored_windows() {
    let Some(_cpu) = the_job_cpu() else { return };
    let parent = Owned(on_the_job_cpu(me(&["fork", "3", "60000"])).spawn().expect("itself"));
    let _agent = agent_for(parent.pid());
    assert!(eventually(|| task::children(parent.pid()).len() == 3).is_some());
    let children = task::children(parent.pid());
    assert!(children.iter().all(|&c| eventually(|| class_of(c) == Some(Class::Idle)).is_some()));
    let ran = || children.iter().map(|&c| task::run_and_delay_ns(c).map_or(0, |(ran, _)| ran));
    let fair = || {
        let before: Vec<u64> = ran().collect();
        // 25 windows: without turns one task has all of their favored parts
        std::thread::sleep(Duration::from_millis(2500));
        let had: Vec<u64> = ran().zip(&before).map(|(now, then)| now - then).collect();
        eprintln!("ran, ns: {had:?}");
        had.iter().min() > had.iter().max().map(|m| m / 3).as_ref()
    };
    assert!((0..3).any(|_| fair()), "in none of three looks");
    children.into_iter().for_each(kill_9);
}

fn has_a_group(agent: &Owned) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.pid())).expect("alive");
    groups.contains(&format!("name=colony-undo:/colony-undo.{}.", agent.pid()))
}

/// Returns `true` if the kernel reports the death of our last process: `agent` is then in a control group of its own. A node
/// that cannot have a release agent is a skip; a process that has none on another node is a failure.
fn kernel_tells(agent: &Owned) -> bool {
    if has_a_group(agent) {
        return true;
    }
    let out = me(&["arm"]).output().expect("itself");
    match String::from_utf8_lossy(&out.stdout).trim().strip_prefix("never: ") {
        Some(fact) => colony_testing::skip(fact),
        None => panic!("{} has no release agent, and this node can have one: {out:?}", agent.pid()),
    }
    false
}

/// The kernel frees the control groups of the last program while the next one starts, and refuses new ones until then.
#[test]
fn each_of_many_programs_that_start_one_after_another_has_a_release_agent() {
    let Some(_cpu) = the_job_cpu() else { return };
    for time in 0..60 {
        let out = me(&["arm"]).output().expect("itself");
        let said = String::from_utf8_lossy(&out.stdout);
        if let Some(fact) = said.trim().strip_prefix("never: ") {
            return colony_testing::skip(fact);
        }
        assert_eq!(said.trim(), "armed", "program {time}: {out:?}");
    }
}

/// The number of running release agents.
fn release_agents() -> usize {
    let processes =
        std::fs::read_dir("/proc").expect("linux").filter_map(|e| Some(e.ok()?.path().join("cmdline")));
    let lines = processes.filter_map(|p| std::fs::read(p).ok());
    lines.filter(|l| l.split(|&b| b == 0).nth(1).is_some_and(|a| a.starts_with(b"/colony-undo."))).count()
}

/// Undo files that name process `pid`.
fn undo_files(pid: i32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/colony-undo") else { return Vec::new() };
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.filter(|n| n.starts_with(&format!("{pid}."))).collect()
}

/// The victims are as they were, and no undo file of agent `pid` is left.
fn is_undone(agent: i32, victims: &[(i32, Class)]) -> bool {
    victims.iter().all(|&(tid, own)| class_of(tid) == Some(own)) && undo_files(agent).is_empty()
}

#[test]
fn agent_and_guardian_killed_at_once_leave_nothing() {
    let Some(_cpu) = the_job_cpu() else { return };
    for guardian_first in [true, false] {
        let victim = spinner(Class::Other(5));
        let mut agent = agent_for(victim.pid());
        if !kernel_tells(&agent) {
            return;
        }
        assert!(eventually(|| class_of(victim.pid()) == Some(Class::Fifo(50))).is_some());
        let mut both = [guardians_of(agent.pid())[0], agent.pid()];
        if !guardian_first {
            both.reverse();
        }
        both.into_iter().for_each(kill_9);
        agent.0.wait().expect("ours");
        let own = [(victim.pid(), Class::Other(5))];
        assert!(eventually(|| is_undone(agent.pid(), &own)).is_some(), "{:?}", class_of(victim.pid()));
    }
}

/// Root may start a program in a folder that a user can write to, such as a build. What the user puts there later is never run as
/// root, and the death of all processes is undone without the file.
#[test]
fn a_program_that_a_user_replaces_or_removes_is_not_what_the_kernel_starts() {
    let Some(_cpu) = the_job_cpu() else { return };
    for replaced in [true, false] {
        let folder = tempfile::tempdir().expect("temp dir");
        let (theirs, mark) = (folder.path().join("theirs"), folder.path().join("mark"));
        std::fs::copy("/proc/self/exe", &theirs).expect("room for a copy");
        std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).expect("root may");
        let victim = spinner(Class::Other(5));
        let mut command = Command::new(&theirs);
        command.args([FIXTURE, "agent", &victim.pid().to_string()]);
        let mut agent = wait_until_ready(command);
        if !kernel_tells(&agent) {
            return;
        }
        assert!(eventually(|| class_of(victim.pid()) == Some(Class::Fifo(50))).is_some());
        std::fs::remove_file(&theirs).expect("there");
        if replaced {
            use std::os::unix::fs::OpenOptionsExt;
            let mut script = std::fs::OpenOptions::new();
            let mut script = script.write(true).create_new(true).mode(0o755).open(&theirs).expect("a file");
            let text = format!("#!/bin/sh\nid > {}\n", mark.display());
            std::io::Write::write_all(&mut script, text.as_bytes()).expect("written");
        }
        let ours: Vec<i32> = guardians_of(agent.pid()).into_iter().chain([agent.pid()]).collect();
        ours.into_iter().for_each(kill_9);
        agent.0.wait().expect("ours");
        let own = [(victim.pid(), Class::Other(5))];
        assert!(eventually(|| is_undone(agent.pid(), &own)).is_some(), "{:?}", class_of(victim.pid()));
        assert!(!mark.exists(), "root ran the user's file: {:?}", std::fs::read_to_string(&mark));
    }
}

#[test]
fn changes_of_a_killed_daemon_are_undone_by_a_program_that_is_no_daemon() {
    let Some(_cpu) = the_job_cpu() else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let mount = folder.path().join("colony");
    let victim = Owned(me(&["spin", "30000"]).spawn().expect("itself"));
    let had = cpu::affinity(victim.pid()).expect("alive");
    let path = mount.to_str().expect("text");
    let mut daemon = wait_until_ready(me(&["change", &victim.pid().to_string(), path]));
    if !kernel_tells(&daemon) {
        return;
    }
    let has = |cpus: &CpuSet| cpu::affinity(victim.pid()).is_ok_and(|now| now == *cpus);
    assert!(has(&last_cpu()) && mount.is_dir() && !undo_files(daemon.pid()).is_empty());
    kill_9(daemon.pid());
    daemon.0.wait().expect("ours");
    let undone = || has(&had) && is_gone(&mount) && undo_files(daemon.pid()).is_empty();
    assert!(eventually(undone).is_some(), "{:?}, {}", cpu::affinity(victim.pid()), is_gone(&mount));
}

/// How often a storm kills: as `COLONY_KILLS` says, else `few` times.
fn kills(few: u32) -> u32 {
    std::env::var("COLONY_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// Numbers below their argument, other ones in each process.
fn random_numbers() -> impl FnMut(usize) -> usize {
    let mut random = std::process::id().wrapping_mul(2_654_435_761);
    move |n| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % n
    }
}

/// `COLONY_KILLS` sets how often; docs/coordinate.md says what was seen with 1000.
#[test]
fn whatever_is_killed_in_whatever_order_nothing_is_left() {
    let (times, mut next) = (kills(12), random_numbers());
    let mut longest = [Duration::ZERO; 2];
    for time in 0..times {
        // not for the whole test: others may have their turn
        let Some(_cpu) = the_job_cpu() else { return };
        let victims = [spinner(Class::Other(5)), spinner(Class::Batch(3))];
        let own = [(victims[0].pid(), Class::Other(5)), (victims[1].pid(), Class::Batch(3))];
        let mut agent = agents_for(&[victims[0].pid(), victims[1].pid()]);
        if time == 0 && !kernel_tells(&agent) {
            return;
        }
        assert!(eventually(|| class_of(victims[0].pid()) != Some(own[0].1)).is_some());
        std::thread::sleep(Duration::from_millis(next(120) as u64));
        // one of ours, or two, in any order; then the agent, if it lives, dies a while later
        for _ in 0..=next(2) {
            let guardians = guardians_of(agent.pid());
            let all: Vec<i32> = guardians.into_iter().chain([agent.pid()]).collect();
            kill_9(all[next(all.len())]);
            std::thread::sleep(Duration::from_micros((next(3) * next(3000)) as u64));
        }
        std::thread::sleep(Duration::from_millis(next(30) as u64));
        kill_9(agent.pid());
        agent.0.wait().expect("ours");
        let since = std::time::Instant::now();
        let restored = eventually(|| own.iter().all(|&(tid, own)| class_of(tid) == Some(own)));
        let undone = eventually(|| is_undone(agent.pid(), &own)).map(|_| since.elapsed());
        let (Some(restored), Some(undone)) = (restored, undone) else {
            let now: Vec<_> = own.iter().map(|(tid, _)| class_of(*tid)).collect();
            panic!("kill {time}: {now:?}, {:?}", undo_files(agent.pid()));
        };
        longest = [longest[0].max(restored), longest[1].max(undone)];
    }
    // a release agent ends soon, whatever the kernel does with its group
    assert!(eventually(|| release_agents() == 0).is_some(), "{} release agents", release_agents());
    let [restored, undone] = longest;
    eprintln!("{times} times killed: tasks restored after {restored:?} at most, all undone after {undone:?}");
}

/// A daemon that binds a task, and a reservation that moves it, must not take what the other gave for the task's own.
#[test]
fn a_daemon_and_a_reservation_that_end_in_any_order_give_a_task_its_own_cpus_back() {
    let Some(_cpu) = the_job_cpu() else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let spare = cpu::usable().expect("linux").without(&last_cpu());
    for (daemon_starts, daemon_ends) in [(true, true), (true, false), (false, true), (false, false)] {
        let victim = Owned(me(&["spin", "60000"]).spawn().expect("itself"));
        let has = |cpus: &CpuSet| cpu::affinity(victim.pid()).is_ok_and(|now| now == *cpus);
        let had = cpu::affinity(victim.pid()).expect("alive");
        let mount = folder.path().join("colony");
        let (pid, path) = (victim.pid().to_string(), mount.to_str().expect("text").to_owned());
        let daemon = || wait_until_ready(me(&["change", &pid, &path]));
        let reservation = || wait_until_ready(me(&["reserve", "1"]));
        let (daemon, reservation) = if daemon_starts {
            let daemon = daemon();
            assert!(has(&last_cpu()));
            (daemon, reservation())
        } else {
            let reservation = reservation();
            assert!(has(&spare), "{:?}", cpu::affinity(victim.pid()));
            (daemon(), reservation)
        };
        let (first, second) = if daemon_ends { (daemon, reservation) } else { (reservation, daemon) };
        for process in [first, second] {
            assert_eq!(stop(process).trim(), "ended");
        }
        assert!(has(&had), "{daemon_starts}, {daemon_ends}: {:?}", cpu::affinity(victim.pid()));
    }
}

/// Processes of a kind that changes the node, and their helpers, which undo that.
fn family(process: &Owned) -> Vec<i32> {
    let mut all = task::tree(process.pid());
    all.sort_unstable();
    all
}

/// Several kinds of changes at once, of which any process is stopped or killed. `COLONY_KILLS` sets how often;
/// docs/coordinate.md says what was seen with 1000.
#[test]
fn kinds_that_change_the_same_task_are_killed_at_once_and_nothing_is_left() {
    let (times, mut next) = (kills(6), random_numbers());
    let folder = tempfile::tempdir().expect("temp dir");
    let (mut longest, mut without_groups) = (Duration::ZERO, 0);
    for time in 0..times {
        let Some(_cpu) = the_job_cpu() else { return };
        let mount = folder.path().join(format!("colony-{time}"));
        let victim = spinner(Class::Batch(3));
        let bystander = Owned(me(&["spin", "60000"]).spawn().expect("itself"));
        let own = |tid: i32| (cpu::affinity(tid).ok(), class_of(tid));
        let before = [victim.pid(), bystander.pid()].map(own);
        let bound = bystander.pid().to_string();
        let start = |kind: usize| match kind {
            0 => wait_until_ready(me(&["change", &bound, mount.to_str().expect("text")])),
            1 => wait_until_ready(me(&["reserve", "1"])),
            _ => agent_for(victim.pid()),
        };
        let first = next(3);
        let mut kinds = [0, 1, 2].map(|n| start((first + n) % 3));
        if !kinds.iter().all(has_a_group) {
            without_groups += 1;
            // the hierarchy of a test before this one may be about to go
            if without_groups > 3 && !kinds.iter().all(kernel_tells) {
                return;
            }
            continue;
        }
        std::thread::sleep(Duration::from_millis(next(60) as u64));
        // some helpers first, stopped before they are killed now and then; then every kind, in any order
        let helpers =
            |kind: &Owned| family(kind).into_iter().filter(|&pid| pid != kind.pid()).collect::<Vec<_>>();
        let mut doomed: Vec<i32> = kinds.iter().flat_map(helpers).filter(|_| next(2) == 0).collect();
        doomed.extend(kinds.iter().map(Owned::pid));
        let first = next(doomed.len());
        doomed.rotate_left(first);
        for pid in doomed {
            if next(3) == 0 {
                let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
                std::thread::sleep(Duration::from_millis(next(20) as u64));
            }
            kill_9(pid);
        }
        kinds.iter_mut().for_each(|kind| drop(kind.0.wait()));
        let files = || kinds.iter().flat_map(|kind| undo_files(kind.pid())).collect::<Vec<_>>();
        let now = || [victim.pid(), bystander.pid()].map(own);
        let since = std::time::Instant::now();
        let undone = eventually(|| now() == before && files().is_empty() && is_gone(&mount));
        assert!(undone.is_some(), "kill {time}: {before:?}, now {:?}, {:?}", now(), files());
        longest = longest.max(since.elapsed());
    }
    eprintln!("{times} times killed: all undone after {longest:?} at most");
}
