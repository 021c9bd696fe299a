// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony inject`, as a user runs it.

use std::process::{Command, Stdio};

use crate::common::{Owned, Public, alone, failed, fails, is_plain, json, last_cpu, program, text, until};

#[test]
fn detours_say_what_was_asked_for_and_what_was_made() {
    let _alone = alone();
    let args = [
        "inject",
        "detours",
        "--length",
        "50us",
        "--interval",
        "2ms",
        "--duration",
        "500ms",
        "--check",
        "300ms",
    ];
    let cpu = last_cpu();
    let on_last = [&args[..], &["--cpus", &cpu, "--class", "other", "--json"]].concat();
    let r = json(&on_last);
    assert_eq!(r["plan"]["length_ns"], 50_000);
    let cpu = &r["injection"]["cpus"][0];
    let made = cpu["made"].as_u64().expect("a count");
    // 250 fit; late starts are missed, not made up for
    assert!(made > 0 && made + cpu["missed"].as_u64().expect("a count") >= 200, "{cpu}");
    assert!(r["injection"]["check"][0]["seen"].as_u64() > Some(0), "the victim saw none: {r}");
    text(&on_last[..on_last.len() - 1]);
}

#[test]
fn the_noise_daemon_reports_its_noise() {
    let _alone = alone();
    let args = ["inject", "leibniz", "--noise", "5%", "--duration", "1200ms", "--cpus", &last_cpu()];
    let r = json(&[&args[..], &["--json"]].concat());
    assert!(r["cpus"][0]["calculations"].as_u64() >= Some(1), "{r}");
    assert!(r["max_terms"].as_u64() > Some(0) && r["terms_per_s"].as_f64() > Some(1e6), "{r}");
    text(&args);
}

#[test]
fn a_measured_trace_is_replayed() {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = dir.path().join("node.parquet");
    let (trace, cpu) = (trace.to_str().expect("plain"), last_cpu());
    let _alone = alone();
    text(&["measure", "--duration", "300ms", "--cpus", &cpu, "--out", trace]);
    let map = format!("{cpu}={cpu}");
    let replay =
        ["inject", "replay", "--trace", trace, "--cpu-map", &map, "--check", "0", "--class", "other"];
    // Beside other programs every detour of a short trace may come too late: a late one is missed, not made.
    let made = (0..50).any(|_| {
        let r = json(&[&replay[..], &["--json"]].concat());
        let count = |what: &str| r["injection"]["cpus"][0][what].as_u64().expect("a count");
        assert!(count("made") + count("missed") > 0, "{r}");
        count("made") > 0
    });
    assert!(made, "no detour of the trace was made in 50 replays");
    text(&replay);
    fails(&["inject", "replay", "--trace", trace, "--from-node", "7"], 2, "detours on nodes 0, CPUs");
    fails(&["inject", "replay", "--trace", trace, "--speed", "0"], 2, "at speed 0");
}

#[test]
fn ctrl_c_ends_an_injection_of_centuries_with_its_report() {
    let cpu = last_cpu();
    let long =
        ["inject", "detours", "--duration", "5124095h", "--check", "0", "--class", "other", "--cpus", &cpu];
    let run = Command::new(program()).args(long).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut run = Owned(run.expect("starts"));
    let pid = run.0.id().cast_signed();
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    until("the injection", || threads() > 2);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT).expect("ours");
    until("its end", || run.0.try_wait().expect("ours").is_some());
    assert!(run.0.wait().expect("ours").success());
    let mut report = String::new();
    std::io::Read::read_to_string(&mut run.0.stdout.take().expect("piped"), &mut report).expect("text");
    assert!(report.contains("asked for: 16.0 µs every 1.00 ms"), "{report}");
}

#[test]
fn without_privileges_injection_works_and_says_what_it_is_not() {
    let Some(public) = Public::new() else { return };
    let run = |args: &[&str]| public.colony().args(["inject"]).args(args).output().expect("runs");
    let out = run(&["detours", "--duration", "300ms", "--check", "0"]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("CAP_SYS_NICE"), "{out:?}");
    is_plain(&said);
    let out = run(&["detours", "--duration", "300ms", "--class", "fifo:10"]);
    failed("real-time injection by nobody", &out, 1, "CAP_SYS_NICE");
}
