// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line and the configuration.

use crate::support::{possible, program, text};

#[test]
fn check_says_what_the_configuration_comes_to() {
    let out = program().args(["--check", "--period", "50ms", "--duty", "45ms", "--cpus", "0"]).output();
    let out = out.expect("colonyd starts");
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("favored 45ms and regular 5ms of every 50ms, CPU 0"), "{said}");
}

#[test]
fn wrong_use_is_one_error_and_exit_code_2() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("c.toml");
    std::fs::write(&file, "period = \"100ms\"\nmuont = \"/run/x\"\n").expect("writable");
    let file = file.to_str().expect("text");
    for (arguments, expected) in [
        (vec!["--config", file], "muont"),
        (vec!["--config", "/nonexistent/c.toml"], "/nonexistent/c.toml"),
        (vec!["--period", "never"], "100ms"),
        (vec!["--duty", "99%"], "starve"),
        (vec!["--cpus", "1000"], "no such CPU"),
        (vec!["--mount", "relative"], "absolute"),
        (vec!["--no-such-flag"], "--no-such-flag"),
    ] {
        let out = program().args(&arguments).output().expect("colonyd starts");
        let said = text(&out);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn help_has_examples() {
    let out = program().arg("--help").output().expect("colonyd starts");
    assert!(text(&out).contains("echo 1 > /run/colony/job"));
}

#[test]
fn a_place_that_cannot_be_mounted_on_is_exit_code_1() {
    if !possible() {
        return;
    }
    for place in ["/proc", "/nonexistent/deep/colony", "/etc/passwd"] {
        let out = program().args(["--mount", place]).output().expect("colonyd starts");
        let said = text(&out);
        assert_eq!(out.status.code(), Some(1), "{place}: {said}");
        assert!(said.contains(place), "{said}");
    }
}

#[test]
fn the_variable_of_colony_says_what_is_logged() {
    if !possible() {
        return;
    }
    let said = |variable: &str| {
        let out = program().args(["--mount", "/proc"]).env(variable, "off").output();
        text(&out.expect("colonyd starts"))
    };
    assert_eq!(said("COLONY_LOG"), "");
    assert!(said("RUST_LOG").contains("/proc"), "one variable, not two");
}

#[test]
fn an_ordinary_user_hears_what_is_missing() {
    use std::os::unix::process::CommandExt;
    if !possible() {
        return;
    }
    // the build's folder may be closed to others: a copy is not
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .expect("temp dir");
    let copy = dir.path().join("colonyd");
    std::fs::copy(env!("CARGO_BIN_EXE_colonyd"), &copy).expect("copied");
    let start = || std::process::Command::new(&copy).uid(65534).gid(65534).output();
    // a child of another test may still hold the copy open for writing, until its own program begins
    let busy = |r: &std::io::Result<_>| {
        r.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy)
    };
    let mut out = start();
    while busy(&out) {
        std::thread::sleep(std::time::Duration::from_millis(10));
        out = start();
    }
    let out = out.expect("colonyd starts");
    let said = text(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("needs root"), "{said}");
}
