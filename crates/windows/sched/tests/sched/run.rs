// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program run as the job class, with its proof.

use std::process::{Output, Stdio};

use colony_client::Backend;
use colony_node::class::Class;
use colony_node::task;
use colony_sched::proof::{ProofSource, WindowTimes};
use colony_sched::run::{Ending, RunReport};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::*;

/// Runs a program under `backend` in a process of its own.
fn start(backend: &str, command: &[String]) -> Owned {
    let words: Vec<&str> = ["run", backend].into_iter().chain(command.iter().map(String::as_str)).collect();
    let child = me(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Owned(child.expect("itself"))
}

fn finish(mut run: Owned) -> Output {
    let mut output = Output { status: run.0.wait().expect("ours"), stdout: Vec::new(), stderr: Vec::new() };
    let (mut out, mut err) = (run.0.stdout.take().expect("piped"), run.0.stderr.take().expect("piped"));
    std::io::Read::read_to_end(&mut out, &mut output.stdout).expect("readable");
    std::io::Read::read_to_end(&mut err, &mut output.stderr).expect("readable");
    output
}

fn report(run: Owned) -> RunReport {
    let output = finish(run);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("no report: {output:?}"));
    serde_json::from_str(last).expect("a report")
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

/// The victim spins for `spin_ms` beside bursts of 20 ms on the same CPU.
fn beside_noise(backend: &str, spin_ms: u64) -> RunReport {
    let noise_ms = (spin_ms + 2_000).to_string();
    let _noise = Owned(on_the_job_cpu(me(&["burst", "20", "180", &noise_ms])).spawn().expect("itself"));
    report(start(backend, &my_words(&["spin", &spin_ms.to_string()])))
}

fn share(times: &WindowTimes) -> f64 {
    times.stolen_ns as f64 / times.observed_ns.max(1) as f64
}

/// One run without the agent and one with it; whether that held the noise back.
fn noise_is_held_back() -> bool {
    let without = beside_noise("none", 4_000);
    let with = beside_noise("agent", 4_000);
    for (name, r) in [("none", &without), ("agent", &with)] {
        let ms = |t: &WindowTimes| (t.stolen_ns / 1000) as f64 / 1e3;
        eprintln!("{name}: stolen favored {} ms, regular {} ms", ms(&r.proof.favored), ms(&r.proof.regular));
    }
    assert_eq!((without.proof.source, with.proof.source), (ProofSource::Bpf, ProofSource::Bpf));
    let agent = with.agent.as_ref().expect("it ran");
    eprintln!("edges late {} ns in the median, {} at most", agent.lateness.p50_ns, agent.lateness.max_ns);
    eprintln!("with the agent: {:?}", with.proof.threads.iter().take(4).collect::<Vec<_>>());
    share(&without.proof.favored) >= 30.0 * share(&with.proof.favored)
        && with.proof.regular.stolen_ns > with.proof.favored.stolen_ns
}

#[test]
fn the_agent_takes_the_noise_out_of_the_favored_windows() {
    let Some(_cpu) = the_job_cpu().filter(|_| can_prove()) else { return };
    // another real-time program on this CPU would spoil a run: no agent is above all of them
    assert!((0..3).any(|_| noise_is_held_back()), "in none of three runs 30 times less was stolen");
}

#[test]
fn the_accounts_of_the_proof_add_up() {
    let Some(_cpu) = the_job_cpu().filter(|_| can_prove()) else { return };
    let r = beside_noise("agent", 1_500);
    let (f, g) = (r.proof.favored, r.proof.regular);
    let observed = f.observed_ns + g.observed_ns;
    assert!(observed >= r.wall_ns, "{observed} of {}", r.wall_ns);
    for t in [f, g] {
        let sum = t.job_ns + t.stolen_ns + t.contended_ns + t.waking_ns + t.filled_ns + t.idle_ns;
        assert_eq!(sum, t.observed_ns);
    }
    let irq = f.interrupts_ns + g.interrupts_ns;
    assert!(irq < f.job_ns + f.contended_ns + g.job_ns + g.contended_ns, "{:?}", r.proof);
    let duty = f.observed_ns as f64 / observed as f64;
    assert!((duty - r.windows.duty()).abs() < 0.1, "the windows are cut where they should be: {duty}");
    let named: u64 = r.proof.threads.iter().map(|t| t.favored_ns + t.regular_ns).sum();
    assert_eq!(named, f.stolen_ns + g.stolen_ns, "who stole is known: {:?}", r.proof);
}

#[test]
fn job_tasks_that_wait_for_each_other_are_not_stolen_from() {
    let Some(_cpu) = the_job_cpu().filter(|_| can_prove()) else { return };
    let spin = my_words(&["spin", "1000"]).join(" ");
    let one = report(start("none", &shell(&spin)));
    let two = report(start("none", &shell(&format!("{spin} & {spin} & wait"))));
    let contended = |r: &RunReport| r.proof.favored.contended_ns + r.proof.regular.contended_ns;
    assert!(contended(&two) > 10 * contended(&one), "{:?} against {:?}", two.proof, one.proof);
    assert!(contended(&two) > two.wall_ns / 10, "{:?}", two.proof);
}

#[test]
fn every_rank_of_an_mpi_program_is_in_the_job() {
    let Some(_cpu) = the_job_cpu() else { return };
    if std::process::Command::new("mpirun").arg("--version").output().is_err() {
        colony_testing::skip("there is no mpirun here (apt-get install openmpi-bin)");
        return;
    }
    let spin = my_words(&["spin", "700"]).join(" ");
    let mpirun = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2";
    let r = report(start("agent", &shell(&format!("{mpirun} {spin}"))));
    assert_eq!(r.ending, Ending::Exited(0), "{r:?}");
    assert!(r.left_running.is_empty(), "{:?}", r.left_running);
    let agent = r.agent.expect("it ran");
    assert!(agent.joined >= 3 && agent.errors == 0, "the launcher and two ranks: {agent:?}");
}

#[test]
fn the_exit_code_and_the_output_are_the_programs() {
    let Some(_cpu) = the_job_cpu() else { return };
    for backend in ["agent", "none"] {
        let r = report(start(backend, &shell("exit 7")));
        assert_eq!((r.ending, r.ending.code()), (Ending::Exited(7), 7));
        assert_eq!(r.backend, if backend == "agent" { Backend::Agent } else { Backend::None });
        let r = report(start(backend, &shell("kill -9 $$")));
        assert_eq!((r.ending, r.ending.code()), (Ending::Killed(9), 137));
    }
    let output = finish(start("agent", &["/no/such/program".to_owned()]));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("/no/such/program") && text.contains("installed"), "{text}");
}

#[test]
fn a_signal_to_the_run_goes_to_the_program() {
    let Some(_cpu) = the_job_cpu() else { return };
    for sent in [Signal::SIGTERM, Signal::SIGINT] {
        // where these tests run in the background of a shell, SIGINT is ignored by all that is started there
        let words = ["env", "--default-signal=INT", "sleep", "60"];
        let run = start("agent", &words.map(str::to_owned));
        let program =
            || task::children(run.pid()).into_iter().find(|&c| task::name(c).as_deref() == Some("sleep"));
        assert!(eventually(|| program().is_some()).is_some());
        kill(Pid::from_raw(run.pid()), sent).expect("ours");
        assert_eq!(report(run).ending, Ending::Killed(sent as i32));
    }
}

#[test]
fn orphans_stay_in_the_job_and_outlive_it_in_their_own_class() {
    let Some(_cpu) = the_job_cpu() else { return };
    let spin = my_words(&["spin", "30000"]).join(" ");
    // a daemon as daemons are made: its parent ends at once
    let script = format!("(setsid {spin} </dev/null >/dev/null 2>&1 & echo $! >&2) & sleep 1");
    let r = report(start("agent", &shell(&script)));
    assert_eq!(r.left_running.len(), 1, "{r:?}");
    let daemon = r.left_running[0];
    assert_eq!(class_of(daemon), Some(Class::Other(0)));
    let agent = r.agent.expect("it ran");
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("ours");
    assert!(agent.joined >= 2 && agent.switches > 0, "{agent:?}");
}

#[test]
fn a_killed_run_leaves_its_program_in_its_own_class_and_no_guardian() {
    let Some(_cpu) = the_job_cpu() else { return };
    let mut run = start("agent", &my_words(&["spin", "30000"]));
    let program = || {
        task::children(run.pid()).into_iter().find(|&c| task::name(c).as_deref() != Some("colony-guardian"))
    };
    assert!(eventually(|| program().is_some_and(|p| class_of(p) == Some(Class::Fifo(50)))).is_some());
    let (program, guardian) = (program().expect("just seen"), guardians_of(run.pid())[0]);
    run.0.kill().and_then(|()| run.0.wait()).expect("ours");
    assert!(eventually(|| class_of(program) == Some(Class::Other(0))).is_some());
    assert!(eventually(|| is_gone(guardian)).is_some());
    kill(Pid::from_raw(program), Signal::SIGKILL).expect("ours");
}
