// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent beside a real job: classes are switched, and whatever dies, they are put back.

use colony_node::class::Class;
use colony_node::task;
use std::sync::Arc;

use colony_client::AgentStats;
use colony_sched::agent::{Agent, AgentConfig};
use colony_sched::job::Job;
use colony_sched::proof::{Observer, ProofSource, WindowTimes};
use colony_time::clock::Clock;
use colony_time::{DutyCycle, Windows};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::*;

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("ours");
}

#[test]
fn an_agent_that_stops_puts_every_task_back_with_its_nice_value() {
    let Some(_cpu) = the_job_cpu() else { return };
    for own in [Class::Other(7), Class::Batch(3), Class::Fifo(10)] {
        let victim = spinner(own);
        let agent = agent_for(victim.pid());
        assert!((0..3).all(|_| is_switched(victim.pid())), "edge after edge");
        let guardian = guardians_of(agent.pid());
        assert_eq!(guardian.len(), 1);
        let stats: AgentStats = serde_json::from_str(&stop(agent)).expect("its statistics");
        assert_eq!(class_of(victim.pid()), Some(own));
        assert!(eventually(|| is_gone(guardian[0])).is_some());
        assert!(stats.edges > 0 && stats.switches > 0 && stats.errors == 0, "{stats:?}");
        assert_eq!(stats.lateness.count, stats.edges, "no edge is lost from the histogram");
        assert_eq!((stats.tasks, stats.guardian_restarts, stats.stopped), (1, 0, None));
    }
}

#[test]
fn a_killed_agent_leaves_tasks_in_their_own_class_and_nothing_else() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = spinner(Class::Other(5));
    let mut agent = agent_for(victim.pid());
    assert!(is_switched(victim.pid()));
    let guardian = guardians_of(agent.pid())[0];
    assert!(eventually(|| class_of(victim.pid()) == Some(Class::Fifo(50))).is_some());
    signal(agent.pid(), Signal::SIGKILL);
    let took = eventually(|| class_of(victim.pid()) == Some(Class::Other(5))).expect("put back");
    eprintln!("put back {took:?} after the kill");
    agent.0.wait().expect("ours");
    assert!(eventually(|| is_gone(guardian)).is_some(), "the guardian ends itself");
}

#[test]
fn a_killed_agent_that_cannot_run_to_its_end_is_noticed_all_the_same() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = spinner(Class::Other(5));
    // nothing of the agent may run but on the CPU on which the job spins
    let words = ["agent", &victim.pid().to_string()];
    let mut agent = wait_until_ready(on_the_job_cpu(me(&words)));
    assert!(is_switched(victim.pid()));
    assert!(eventually(|| class_of(victim.pid()) == Some(Class::Fifo(50))).is_some());
    signal(agent.pid(), Signal::SIGKILL);
    let took = eventually(|| class_of(victim.pid()) == Some(Class::Other(5))).expect("put back");
    eprintln!("put back {took:?} after the kill");
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
    agent.0.wait().expect("ours");
}

#[test]
fn an_agent_killed_while_its_job_forks_leaves_no_child_behind() {
    let Some(_cpu) = the_job_cpu() else { return };
    let parent = Owned(on_the_job_cpu(me(&["fork", "8", "30000"])).spawn().expect("itself"));
    let mut agent = agent_for(parent.pid());
    assert!(eventually(|| task::children(parent.pid()).len() >= 4).is_some());
    signal(agent.pid(), Signal::SIGKILL);
    agent.0.wait().expect("ours");
    let own = |pid: &i32| class_of(*pid) == Some(Class::Other(0));
    let all = || task::tree(parent.pid());
    assert!(eventually(|| all().iter().all(own)).is_some());
    assert!(eventually(|| task::children(parent.pid()).len() == 8).is_some(), "it goes on forking");
    let children = task::children(parent.pid());
    assert!(children.iter().all(own), "what is forked later is ordinary");
    children.into_iter().for_each(|c| signal(c, Signal::SIGKILL));
}

#[test]
fn a_killed_guardian_is_replaced_and_the_new_one_works() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = spinner(Class::Other(2));
    let mut agent = agent_for(victim.pid());
    assert!(is_switched(victim.pid()));
    let first = guardians_of(agent.pid())[0];
    signal(first, Signal::SIGKILL);
    let other = || guardians_of(agent.pid()).into_iter().find(|&g| g != first);
    assert!(eventually(|| other().is_some()).is_some());
    let second = other().expect("just seen");
    assert!(is_switched(victim.pid()), "the job stays scheduled");
    signal(agent.pid(), Signal::SIGKILL);
    agent.0.wait().expect("ours");
    assert!(eventually(|| class_of(victim.pid()) == Some(Class::Other(2))).is_some());
    assert!(eventually(|| is_gone(second)).is_some());
}

#[test]
fn an_agent_that_is_stopped_does_not_keep_the_job_favored() {
    let Some(_cpu) = the_job_cpu() else { return };
    let victim = spinner(Class::Other(0));
    let agent = agent_for(victim.pid());
    assert!(is_switched(victim.pid()));
    signal(agent.pid(), Signal::SIGSTOP);
    assert!(eventually(|| class_of(victim.pid()) == Some(Class::Other(0))).is_some());
    signal(agent.pid(), Signal::SIGCONT);
    assert!(is_switched(victim.pid()), "it takes up its work again");
}

#[test]
fn a_killed_job_leaves_the_agent_without_tasks() {
    let Some(_cpu) = the_job_cpu() else { return };
    let mut victim = spinner(Class::Other(0));
    let agent = agent_for(victim.pid());
    assert!(is_switched(victim.pid()));
    signal(victim.pid(), Signal::SIGKILL);
    victim.0.wait().expect("ours");
    std::thread::sleep(std::time::Duration::from_millis(150));
    let stats: AgentStats = serde_json::from_str(&stop(agent)).expect("its statistics");
    assert_eq!((stats.tasks, stats.errors, stats.stopped), (0, 0, None));
}

#[test]
fn children_join_within_a_period_and_no_child_keeps_fifo_by_inheritance() {
    let Some(_cpu) = the_job_cpu() else { return };
    let parent = Owned(on_the_job_cpu(me(&["fork", "3", "30000"])).spawn().expect("itself"));
    let agent = agent_for(parent.pid());
    assert!(eventually(|| task::children(parent.pid()).len() == 3).is_some());
    let children = task::children(parent.pid());
    assert!(children.iter().all(|&c| is_switched(c)));
    drop(agent);
    let own = |pid: &i32| class_of(*pid) == Some(Class::Other(0));
    assert!(eventually(|| children.iter().all(own)).is_some());
    children.into_iter().for_each(|c| signal(c, Signal::SIGKILL));
}

#[test]
fn new_windows_hold_at_once_however_long_the_old_ones_are() {
    in_own_process("agent::new_windows_hold_at_once_however_long_the_old_ones_are", || {
        let Some(_cpu) = the_job_cpu() else { return };
        let victim = spinner(Class::Other(0));
        let job = Arc::new(Job::new());
        job.add(victim.pid()).expect("alive");
        let hour = |duty| Windows::new(Windows::MAX_PERIOD_NS, duty, Clock::Tai.now_ns()).expect("valid");
        let favored = hour(DutyCycle::Ppm(900_000));
        let agent = Agent::start(AgentConfig::new(favored, last_cpu()), job).expect("privileged");
        assert!(eventually(|| class_of(victim.pid()) == Some(Class::Fifo(50))).is_some());
        let now_regular = Windows::new(Windows::MAX_PERIOD_NS, DutyCycle::Ppm(500_000), {
            Clock::Tai.now_ns() - (Windows::MAX_PERIOD_NS / 2) as i64 - 1
        });
        agent.set_windows(now_regular.expect("valid"));
        assert!(eventually(|| class_of(victim.pid()) == Some(Class::Idle)).is_some());
        agent.set_windows(windows());
        assert!(is_switched(victim.pid()) && is_switched(victim.pid()));
        let stats = agent.stop();
        assert_eq!(class_of(victim.pid()), Some(Class::Other(0)));
        assert_eq!(stats.stopped, None);
    });
}

#[test]
fn without_bpf_the_proof_still_tells_the_windows_apart() {
    in_own_process("agent::without_bpf_the_proof_still_tells_the_windows_apart", || {
        let Some(_cpu) = the_job_cpu() else { return };
        let victim = spinner(Class::Other(0));
        let _noise = Owned(on_the_job_cpu(me(&["burst", "20", "80", "10000"])).spawn().expect("itself"));
        let job = Arc::new(Job::new());
        job.add(victim.pid()).expect("alive");
        let observer = Observer::by_schedstat(windows(), &last_cpu(), Arc::clone(&job), "this is a test");
        let agent = Agent::start(AgentConfig::new(windows(), last_cpu()), job).expect("privileged");
        std::thread::sleep(std::time::Duration::from_secs(2));
        let proof = observer.proof();
        drop(agent);
        assert_eq!(proof.source, ProofSource::Schedstat);
        assert!(proof.notes.iter().any(|n| n.contains("this is a test")), "{:?}", proof.notes);
        // shares of the time observed: favored windows are longer, and what a late read counts for the wrong window with them
        let share = |part: u64, window: &WindowTimes| part as f64 / window.observed_ns as f64;
        let (favored, regular) = (&proof.favored, &proof.regular);
        assert!(share(regular.stolen_ns, regular) > share(favored.stolen_ns, favored), "{proof:?}");
        assert!(share(favored.job_ns, favored) > share(regular.job_ns, regular), "{proof:?}");
        assert!(favored.observed_ns > regular.observed_ns, "{proof:?}");
    });
}

#[test]
fn wrong_priorities_and_cpus_are_refused_before_anything_starts() {
    let job = || Arc::new(Job::new());
    let wrong = |favored, agent| AgentConfig {
        favored_priority: favored,
        agent_priority: agent,
        ..AgentConfig::new(windows(), last_cpu())
    };
    for (favored, agent) in [(0, 60), (50, 50), (60, 50), (50, 100)] {
        let error = Agent::start(wrong(favored, agent), job()).expect_err("impossible");
        assert!(error.is_wrong_use(), "{error}");
    }
    let nowhere = AgentConfig::new(windows(), "1000".parse().expect("a list"));
    assert!(Agent::start(nowhere, job()).expect_err("no such CPU").is_wrong_use());
    assert!(Job::new().add(i32::MAX).is_err());
}
