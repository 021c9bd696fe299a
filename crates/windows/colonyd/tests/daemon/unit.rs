// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unit of the service manager: what it forbids must be nothing the daemon does.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use colony_client::Client;
use colony_testing::is_gone;
use nix::sys::signal::{Signal, kill};

use crate::support::{possible, real_time, wait_until};

const UNIT: &str = include_str!("../../../../../packaging/systemd/colonyd.service");

/// The system calls the unit allows: sets as `systemd-analyze` knows them, and single calls. `None` without it.
fn allowed() -> Option<BTreeSet<String>> {
    let mut todo: Vec<String> = UNIT
        .lines()
        .filter_map(|l| l.strip_prefix("SystemCallFilter="))
        .flat_map(|l| l.split_whitespace().map(str::to_owned))
        .collect();
    let mut calls = BTreeSet::new();
    while let Some(name) = todo.pop() {
        if name.starts_with('@') {
            let out = Command::new("systemd-analyze").args(["syscall-filter", &name]).output().ok()?;
            let text = String::from_utf8(out.stdout).ok().filter(|t| t.starts_with('@'))?;
            todo.extend(
                text.lines().skip(1).map(str::trim).filter(|l| !l.starts_with('#')).map(str::to_owned),
            );
        } else {
            calls.insert(name);
        }
    }
    Some(calls)
}

/// The calls in what `strace` wrote: `PID name(…`, or `PID <... name resumed>…`.
fn made(trace: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(trace).expect("strace wrote");
    let name = |line: &str| {
        let call = line.split_once(' ')?.1.trim_start();
        let (name, _) = call.split_once('(')?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn its_clock_may_be_asked() {
    let filter = UNIT.lines().find_map(|l| l.strip_prefix("SystemCallFilter=")).expect("it has one");
    for call in ["@system-service", "@mount", "bpf", "adjtimex", "clock_adjtime"] {
        assert!(filter.split_whitespace().any(|c| c == call), "{call}");
    }
}

#[test]
fn it_allows_every_call_of_a_life_with_a_job() {
    if !(possible() && real_time()) {
        return;
    }
    let Some(allowed) = allowed() else { return colony_testing::skip("no systemd-analyze") };
    if Command::new("strace").arg("-V").output().is_err() {
        return colony_testing::skip("no strace");
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let [mount, trace, config] = ["colony", "trace", "colonyd.toml"].map(|n| dir.path().join(n));
    let socket = dir.path().join("m.sock");
    std::fs::write(
        &config,
        format!("backend = \"agent\"\n[metrics]\nlisten = \"unix:{}\"\n", socket.display()),
    )
    .expect("written");
    let mut strace = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_colonyd"))
        .arg("--config")
        .arg(&config)
        .arg("--mount")
        .arg(&mount)
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace starts");
    wait_until("colonyd shows its files", || {
        assert!(strace.try_wait().expect("ours").is_none(), "colonyd ended");
        Client::at(&mount).is_some()
    });
    let client = Client::at(&mount).expect("it runs");
    let mut job = Command::new("sleep").arg("1000").spawn().expect("sleep");
    client.join(job.id().cast_signed()).expect("a job may be there");
    let daemon = client.stats().expect("readable").pid.cast_signed();
    job.kill().and_then(|()| job.wait()).expect("ours");
    wait_until("the job has ended", || client.job().expect("readable").is_empty());
    kill(nix::unistd::Pid::from_raw(daemon), Signal::SIGTERM).expect("ours");
    strace.wait().expect("ours");
    assert!(is_gone(&mount));
    let made = made(&trace);
    assert!(made.contains("clock_adjtime") || made.contains("adjtimex"), "{made:?}");
    assert!(["mount", "umount2", "sched_setattr"].iter().all(|c| made.contains(*c)), "{made:?}");
    let forbidden: Vec<_> = made.difference(&allowed).collect();
    assert!(forbidden.is_empty(), "the unit forbids {forbidden:?}");
}
