// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run`, as a user runs it: the program's own ending, the proof, and nothing left behind.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use colony_node::class::{self, Class};
use colony_node::topology::{DomainKind, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    Owned, Public, alone, colony, error, failed, fails, is_plain, is_root, last_cpu, program, until,
};

/// Runs a job with the report on the last line; the report.
fn report(args: &[&str]) -> Value {
    let out = colony().args(["run", "--json"]).args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", error(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    serde_json::from_str(text.lines().last().expect("a line")).expect("the report is the last line")
}

/// `colony run` of a shell script that first tells its process number in `file`.
fn started(args: &[&str], file: &Path, script: &str) -> (Owned, i32) {
    let script = format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}'; {script}", file.display());
    let mut run = Command::new(program());
    run.arg("run").args(args).args(["--", "sh", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = Owned(run.spawn().expect("starts"));
    until("the program", || file.exists());
    (run, std::fs::read_to_string(file).expect("there").trim().parse().expect("a number"))
}

#[test]
fn the_exit_code_is_the_programs() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15), ("kill -9 $$", 128 + 9)]
    {
        let out = colony().args(["run", "--", "sh", "-c", script]).output().expect("runs");
        assert_eq!(out.status.code(), Some(code), "{script}: {}", error(&out));
        is_plain(&error(&out));
    }
}

#[test]
fn the_programs_output_is_its_own_and_the_report_comes_after_it() {
    let run = |more: &[&str]| {
        let args = ["--", "sh", "-c", "echo out; echo err >&2; cat"];
        colony().arg("run").args(more).args(args).write_stdin("in\n").output().expect("runs")
    };
    let out = run(&[]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "out\nin\n");
    assert!(error(&out).starts_with("err\n") && error(&out).contains("windows: period 100 ms"), "{out:?}");
    let out = run(&["--json"]);
    let text = String::from_utf8(out.stdout).expect("text");
    let last = text.strip_prefix("out\nin\n").expect("the program's own first");
    let report: Value = serde_json::from_str(last).expect("one JSON document");
    assert_eq!(report["schema"], "colony.run/1");
    assert_eq!(report["ending"]["exited"], 0);
}

#[test]
fn the_exit_code_is_the_programs_whatever_becomes_of_our_output() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("linux");
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    let run = |more: &[&str], out: Stdio, err: Stdio| {
        let mut run = Command::new(program());
        // the program itself writes nothing
        run.arg("run").args(["--backend", "none"]).args(more).args(["--", "sh", "-c", "exit 7"]);
        run.stdout(out).stderr(err).env("COLONY_LOG", "trace").status().expect("starts").code()
    };
    assert_eq!(run(&[], Stdio::null(), full().into()), Some(7));
    assert_eq!(run(&[], Stdio::null(), closed().into()), Some(7));
    assert_eq!(run(&["--json"], full().into(), Stdio::null()), Some(7));
    assert_eq!(run(&["--json"], closed().into(), full().into()), Some(7));
    // a reader that has gone wants no message
    let mut unread = Command::new(program());
    unread.args(["run", "--backend", "none", "--json", "--", "sh", "-c", "exit 7"]);
    let out = unread.stdout(closed()).stderr(Stdio::piped()).spawn().and_then(|run| run.wait_with_output());
    let out = out.expect("starts");
    assert_eq!((out.status.code(), error(&out).as_str()), (Some(7), ""));
    let dir = tempfile::tempdir().expect("temp dir");
    let gone = dir.path().join("gone");
    std::fs::create_dir(&gone).expect("ours");
    let script = format!("rmdir '{}'; exit 7", gone.display());
    let mut out = colony();
    out.args(["run", "--backend", "none", "--out"]).arg(gone.join("r.json"));
    let out = out.args(["--", "sh", "-c", &script]).output().expect("runs");
    assert_eq!(out.status.code(), Some(7), "{}", error(&out));
    assert!(error(&out).contains("r.json"), "{}", error(&out));
    // wrong use and failures have their codes, told or not
    let mut wrong = Command::new(program());
    wrong.args(["run", "--cpus", "900", "--", "true"]).stderr(full());
    assert_eq!(wrong.status().expect("starts").code(), Some(2));
}

#[test]
fn the_report_is_kept() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("r.json");
    let out = colony().args(["run", "--out"]).arg(&file).args(["--", "sh", "-c", "exit 3"]).output();
    assert_eq!(out.expect("runs").status.code(), Some(3));
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).expect("kept")).expect("JSON");
    assert_eq!(kept["ending"]["exited"], 3);
}

#[test]
fn what_cannot_be_run_is_told() {
    for (args, code, part) in [
        // as a shell has it
        (&["--", "/nonexistent"][..], 127, "is it installed there?"),
        (&["--", "no-such-program-anywhere"], 127, "in a folder of PATH"),
        (&["--", "/etc/passwd"], 126, "chmod +x"),
        (&["--", "/etc"], 126, "it is a folder"),
        (&["--cpus", "900", "--", "true"], 2, "no such CPU"),
        (&["--period", "0", "--", "true"], 2, "a period of 0ns is not possible"),
        (&["--duty", "100%", "--", "true"], 2, "no regular window"),
        (&["--duty", "200ms", "--", "true"], 2, "no regular window"),
        (&["--period", "2h", "--", "true"], 2, "2 ns to 1 h"),
        // windows that would starve the node
        (&["--backend", "agent", "--period", "1us", "--", "true"], 2, "outside this node's limits"),
        (&["--backend", "agent", "--period", "1h", "--duty", "50%", "--", "true"], 2, "outside this node's"),
        (&["--backend", "agent", "--duty", "99%", "--", "true"], 2, "would starve"),
        (&["--spare-cores", "0", "--", "true"], 2, "no count of cores"),
        (&["--spare-cores", "1000", "--", "true"], 2, "no core is left to the job"),
        (&["--spare-cores", "0/l3", "--", "true"], 2, "`0` is no count of cores"),
        (&["--spare-cores", "1/l9", "--", "true"], 2, "write l3, numa or socket"),
        (&["--spare-cores", "900/socket", "--", "true"], 2, "and 900 are to be spare"),
        (&["--spare-cores", "900-900", "--", "true"], 2, "CPU 900 cannot be spare"),
        (&["--spare-cores", "1-", "--", "true"], 2, "no number"),
        (&[], 2, "<CMD>"),
    ] {
        fails(&[&["run"], args].concat(), code, part);
    }
}

#[test]
fn the_agent_takes_the_noise_out_of_favored_windows() {
    if !is_root() {
        return;
    }
    let cpu = last_cpu();
    let _alone = alone();
    // it ends by itself, should this test not end it; what it starts does so at once
    let noise = "for i in $(seq 400); do timeout 0.02 sh -c 'while :; do :; done'; sleep 0.05; done";
    let noise = Command::new("taskset").args(["-c", &cpu, "sh", "-c", noise]).spawn();
    let _noise = Owned(noise.expect("starts"));
    let share = |backend: &str| {
        let windows = ["--period", "100ms", "--duty", "80%", "--cpus", &cpu, "--backend", backend];
        let spin = [
            "--",
            "timeout",
            "--preserve-status",
            "-s",
            "INT",
            "3",
            "sh",
            "-c",
            "trap 'exit 0' INT; while :; do :; done",
        ];
        let r = report(&[&windows[..], &spin].concat());
        let favored = &r["proof"]["favored"];
        let [stolen, observed] = ["stolen_ns", "observed_ns"].map(|k| favored[k].as_f64().expect("a number"));
        (stolen / observed, r)
    };
    let (without, _) = share("none");
    // a host that takes the CPU away now and then says nothing of the agent: the best of three
    let shares = (0..3).map(|_| {
        let (with, r) = share("agent");
        eprintln!(
            "stolen from favored windows: {:.3} % without, {:.4} % with",
            without * 100.0,
            with * 100.0
        );
        assert_eq!(r["backend"], "agent");
        assert!(r["agent"]["edges"].as_u64() > Some(20), "{r}");
        with
    });
    assert!(shares.into_iter().any(|with| without > 10.0 * with), "{without} without");
}

#[test]
fn a_killed_run_leaves_its_program_in_its_own_class() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let _alone = alone();
    let (run, pid) = started(&["--backend", "agent"], &dir.path().join("pid"), "exec sleep 60");
    let own = |pid| matches!(class::get(pid), Ok(Class::Other(_)));
    until("a switch", || !own(pid));
    kill(Pid::from_raw(run.0.id().cast_signed()), Signal::SIGKILL).expect("ours");
    // the guardian's bound is a second; looking waits longer for a machine under load
    until("the program's own class", || own(pid));
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it goes on");
    drop(run);
}

#[test]
fn two_agents_on_one_cpu_are_told_of_each_other() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let _alone = alone();
    let cpu = last_cpu();
    let agent = |name: &str| {
        let args = ["--backend", "agent", "--cpus", &cpu];
        let (run, pid) = started(&args, &dir.path().join(name), "exec sleep 600");
        // its threads are at the edges by then
        until("a switch", || !matches!(class::get(pid), Ok(Class::Other(_))));
        (run, pid)
    };
    let mut runs = [agent("first"), agent("second")];
    let numbers = [0, 1].map(|i| runs[i].0.0.id());
    let ends = [0, 1].map(|i| {
        let (run, program) = &mut runs[i];
        kill(Pid::from_raw(*program), Signal::SIGTERM).expect("ours");
        let mut said = String::new();
        run.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        run.0.wait().expect("ours");
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).expect("known").expect("known").name;
    for (said, other) in [(&ends[0], numbers[1]), (&ends[1], numbers[0])] {
        let (who, place) = (format!("process {other} of user {user}"), format!("CPU {cpu} too"));
        for part in [who.as_str(), &place, "`colony run --backend agent", "UTC"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
    }
}

#[test]
fn a_signal_reaches_the_program_whose_ending_is_told() {
    let dir = tempfile::tempdir().expect("temp dir");
    let script = "trap 'exit 42' TERM; while :; do sleep 0.05; done";
    let (mut run, pid) = started(&[], &dir.path().join("pid"), script);
    // the trap is set just after the number was told
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill(Pid::from_raw(run.0.id().cast_signed()), Signal::SIGTERM).expect("ours");
    assert_eq!(run.0.wait().expect("ours").code(), Some(42));
    assert!(kill(Pid::from_raw(pid), None).is_err(), "it has ended");
}

#[test]
fn without_privileges_the_windows_are_measured_and_that_is_said() {
    let Some(public) = Public::new() else { return };
    let out = public.colony().args(["run", "--", "sh", "-c", "exit 5"]).output().expect("runs");
    assert_eq!(out.status.code(), Some(5), "{out:?}");
    let said = error(&out).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("nothing is held back") && said.contains("CAP_SYS_NICE"), "{said}");
    is_plain(&error(&out));
    let out = public.colony().args(["run", "--backend", "agent", "--", "true"]).output().expect("runs");
    failed("the agent by nobody", &out, 1, "CAP_SYS_NICE");
}

#[test]
fn one_core_of_each_socket_is_left_to_the_system() {
    let usable = colony_node::cpu::usable().expect("linux");
    let topology = Topology::of_this_node();
    let sockets = topology.domains(DomainKind::Socket, &usable).expect("linux");
    let mut job = usable.clone();
    for socket in sockets {
        let cpus = socket.cpus.and(&usable);
        let core = topology.threads_of_core(cpus.first().expect("a CPU")).expect("linux");
        if cpus.without(&core).is_empty() {
            return colony_testing::skip("one core cannot be divided");
        }
        job = job.without(&core);
    }
    let Some(public) = Public::new() else { return };
    let mut run = public.colony();
    run.args(["run", "--backend", "none", "--spare-cores", "1/socket", "--json", "--", "true"]);
    let out = run.output().expect("runs");
    assert_eq!(out.status.code(), Some(0), "{}", error(&out));
    let report: Value = serde_json::from_slice(&out.stdout).expect("the report");
    assert_eq!(report["cpus"].as_str(), Some(&*job.to_string()));
}

#[test]
fn without_privileges_spare_cores_bind_the_job_and_what_is_left_out_is_said() {
    let Some(public) = Public::new() else { return };
    let usable = colony_node::cpu::usable().expect("linux");
    if usable.len() < 2 {
        return colony_testing::skip("one CPU cannot be divided");
    }
    let job = usable.without(&usable.first().into_iter().collect());
    let list = format!("{0}-{0}", usable.first().expect("a CPU"));
    // the job binds itself to every CPU, and waits until that is undone
    let script = "taskset -pc 0-63 $$ >&2; grep Cpus_allowed_list /proc/$$/status; \
        for i in $(seq 600); do grep -q \"list:.$0$\" /proc/$$/status && exit 0; sleep 0.1; done; exit 4";
    let mut run = public.colony();
    run.args([
        "run",
        "--backend",
        "none",
        "--spare-cores",
        &list,
        "--json",
        "--",
        "sh",
        "-c",
        script,
        &job.to_string(),
    ]);
    let out = run.output().expect("runs");
    assert_eq!(out.status.code(), Some(0), "{}", error(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    let report: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("the report");
    let spare = &report["spare"];
    assert_eq!(
        (spare["partition"].as_str(), report["cpus"].as_str()),
        (Some("affinity"), Some(&*job.to_string()))
    );
    assert!(spare["brought_back"].as_u64() > Some(0), "{spare}");
    assert!(spare["fallbacks"][0].as_str().is_some_and(|why| why.contains("needs root")), "{spare}");
    assert_eq!(spare["settings"].as_array().map(Vec::len), Some(0));
}
