// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health file of a daemon, with a tree and a program that stand in for `/sys` and `scontrol`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use colony_node::health::{HealthReport, State};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::support::{Daemon, NOBODY, possible, wait_until};

/// The health file of a daemon.
fn file(daemon: &Daemon) -> PathBuf {
    daemon.folder().join("colony-health/health.json")
}

fn write(file: &Path, text: &str) {
    let made = std::fs::create_dir_all(file.parent().expect("a folder"));
    made.and_then(|()| std::fs::write(file, text)).expect("writable");
}

/// A folder with `scontrol`, which writes down its privileges, and the configuration for it.
fn stand_ins() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("temp dir");
    let at = folder.path().display();
    let script = format!(
        "#!/bin/sh\ngrep ^Cap /proc/self/status > {at}/new && mv {at}/new {at}/privileges\necho \"NodeName=$4 $(cat {at}/state)\"\n"
    );
    write(&folder.path().join("scontrol"), &script);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path().join("scontrol"), executable).expect("ours");
    write(&folder.path().join("state"), "State=IDLE+DRAIN Reason=bad DIMM [root@2026-01-01T00:00:00]\n");
    let config =
        format!("[health]\nsysfs = \"{at}\"\nscontrol = \"{at}/scontrol\"\nslurm_node = \"node7\"\n");
    (folder, config)
}

#[test]
fn a_failing_node_is_in_the_health_file_that_everybody_can_read() {
    if !possible() {
        return;
    }
    let (folder, config) = stand_ins();
    write(&folder.path().join("devices/system/edac/mc/mc0/ue_count"), "0\n");
    let mut daemon = Daemon::start(&config);
    let file = file(&daemon);
    let summary = || HealthReport::read(&file).map(|report| report.summary()).unwrap_or_default();
    wait_until("Slurm has answered", || summary() == "slurm: Slurm drains this node: bad DIMM");
    let privileges = std::fs::read_to_string(folder.path().join("privileges")).expect("written");
    let sets = privileges.lines().filter(|line| !line.starts_with("CapBnd:"));
    assert_eq!(sets.filter(|line| line.ends_with("\t0000000000000000")).count(), 4, "{privileges}");
    write(&folder.path().join("devices/system/edac/mc/mc0/ue_count"), "1\n");
    wait_until("the error is seen", || summary().starts_with("edac: mc0 has counted 1 uncorrected"));
    let read = daemon.shell_as(Some(NOBODY), "cat $M-health/health.json");
    let report = HealthReport::parse(&read.stdout).expect("everybody reads it");
    assert_eq!(
        (report.state, report.watched),
        (State::Warning, ["edac", "slurm", "operator"].map(str::to_owned).into())
    );
    assert!(!daemon.shell_as(Some(NOBODY), "echo > $M-health/warning").status.success());
    daemon.signal(Signal::SIGTERM);
    assert!(!file.exists() && !file.parent().expect("a folder").exists());
}

#[test]
fn the_file_goes_with_a_killed_daemon_and_the_operators_marker_stays() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("[health]\nsysfs = \"/nonexistent\"\n");
    let state = |daemon: &Daemon| HealthReport::read(&file(daemon)).map(|report| report.state).ok();
    wait_until("it is healthy", || state(&daemon) == Some(State::Healthy));
    assert!(daemon.shell("echo a fan is noisy > $M-health/warning").status.success());
    wait_until("it warns", || state(&daemon) == Some(State::Warning));
    daemon.signal(Signal::SIGKILL);
    wait_until("the guard has removed it", || !file(&daemon).exists());
    let next = daemon.again("[health]\nsysfs = \"/nonexistent\"\n");
    wait_until("the next daemon warns", || state(&next) == Some(State::Warning));
}

#[test]
fn a_node_that_is_not_to_be_watched_has_no_health_file() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[health]\nwatch = false\n");
    assert!(!file(&daemon).parent().expect("a folder").exists());
}
