// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that go on with more ranks, or with fewer.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use colony_node::task;
use colony_runtime::ranks::{RequestError, Resized, ranks, resize};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::example;

/// The example with this many ranks, which wait at gates.
fn start(ranks: u32, gates: &Path, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(example("run"));
    command.arg(ranks.to_string()).arg(example("mortal")).env("MORTAL_GATE", gates);
    command.env("RUN_TIMEOUT", "60").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn open_gate(gates: &Path, ranks: u32) {
    std::fs::write(gates.join(ranks.to_string()), "").expect("room");
}

/// Requests as soon as there is a job that is not being resized.
fn resize_soon(launcher: &Child, by: i64) -> Resized {
    let pid = launcher.id() as i32;
    loop {
        match resize(by, Some(pid)) {
            Ok(resized) => return resized,
            // the job has not yet begun, or is the one before
            Err(RequestError::NoJob(_)) => {}
            Err(RequestError::Refused { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_goes_on_with_more_ranks_and_with_fewer() {
    let expected = Command::new(example("run")).arg("2").arg(example("mortal")).output().expect("runs");
    for (scheme, restarts) in
        [("disk=", "0"), ("memory:same-machine:disk=", "3"), ("memory:same-machine:log:disk=", "3")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let value = format!("{scheme}{}:every=1000", folder.path().join("checkpoints").display());
        let launcher = start(2, folder.path(), &[("COLONY_CHECKPOINT", &value), ("RUN_RESTARTS", restarts)]);
        let pid = launcher.id() as i32;
        assert_eq!(resize_soon(&launcher, 3), Resized { launcher: pid, from: 2, to: 5 });
        open_gate(folder.path(), 2);
        assert_eq!(resize_soon(&launcher, -2), Resized { launcher: pid, from: 5, to: 3 });
        [3, 5].into_iter().for_each(|ranks| open_gate(folder.path(), ranks));
        let output = launcher.wait_with_output().expect("ends");
        assert_eq!(
            (text(&output.stdout), output.status.code()),
            (text(&expected.stdout), Some(0)),
            "{scheme}"
        );
        let lines = "the job goes on with 5 ranks instead of 2\nthe job goes on with 3 ranks instead of 5\n";
        assert_eq!(text(&output.stderr), lines, "{scheme}");
    }
}

/// The process of a rank, once it has joined the job, or once it has started.
fn process_of(launcher: &Child, rank: u32, has_joined: bool) -> i32 {
    let began = Instant::now();
    loop {
        let found = ranks().into_iter().find(|one| one.launcher == launcher.id() as i32 && one.rank == rank);
        let heartbeats = |pid: &i32| {
            task::threads(*pid).into_iter().any(|tid| task::name(tid).as_deref() == Some("heartbeat"))
        };
        if let Some(pid) = found.map(|one| one.pid).filter(|pid| !has_joined || heartbeats(pid)) {
            return pid;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "rank {rank}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_job_that_is_resized_while_a_rank_that_has_not_joined_is_killed_goes_on() {
    let expected = Command::new(example("run")).arg("2").arg(example("mortal")).output().expect("runs");
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("checkpoints");
    let value = format!("memory:same-machine:disk={}:every=1000", disk.display());
    let launcher = start(2, folder.path(), &[("COLONY_CHECKPOINT", &value), ("RUN_RESTARTS", "2")]);
    let pid = launcher.id() as i32;
    let second = Pid::from_raw(process_of(&launcher, 1, false));
    kill(second, Signal::SIGSTOP).expect("it waits at the gate");
    [2, 3].into_iter().for_each(|ranks| open_gate(folder.path(), ranks));
    // rank 0 waits for the launcher's answer, since rank 1 has not joined
    process_of(&launcher, 0, true);
    assert_eq!(resize_soon(&launcher, 1), Resized { launcher: pid, from: 2, to: 3 });
    kill(second, Signal::SIGKILL).expect("it is stopped");
    let output = launcher.wait_with_output().expect("ends");
    let errors = text(&output.stderr);
    assert_eq!((text(&output.stdout), output.status.code()), (text(&expected.stdout), Some(0)), "{errors}");
    let lines =
        "warning: rank 1 was killed by signal 9; restart 1 of 2\nthe job goes on with 3 ranks instead of 2\n";
    assert_eq!(errors, lines);
}

#[test]
fn a_job_that_cannot_be_resized_says_why_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = format!("disk={}", folder.path().join("checkpoints").display());
    for (value, by, why) in [
        ("none", 1, "COLONY_CHECKPOINT=memory:disk=FOLDER"),
        (&disk, -1, "0 ranks"),
        (&disk, 4096, "4097 ranks"),
    ] {
        let launcher = start(1, folder.path(), &[("COLONY_CHECKPOINT", value)]);
        let pid = launcher.id() as i32;
        let refused = loop {
            match resize(by, Some(pid)) {
                Err(RequestError::NoJob(_)) => std::thread::sleep(Duration::from_millis(2)),
                answer => break answer.expect_err("refused").to_string(),
            }
        };
        assert!(refused.contains(why) && refused.contains(&pid.to_string()), "{refused}");
        open_gate(folder.path(), 1);
        let output = launcher.wait_with_output().expect("ends");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        std::fs::remove_file(folder.path().join("1")).expect("ours");
        let _ = std::fs::remove_dir_all(folder.path().join("checkpoints"));
    }
    let none = resize(1, Some(i32::MAX)).expect_err("no such process").to_string();
    assert!(
        none.contains("no job of this user has been started on this host by process 2147483647"),
        "{none}"
    );
}
