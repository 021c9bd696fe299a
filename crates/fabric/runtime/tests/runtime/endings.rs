// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs and processes that end before their program: one line says which has ended, and how.

use std::process::{Command, Output, Stdio};

use crate::common::example;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines of the launcher and the program, except for times.
fn told(output: &Output) -> Vec<String> {
    let is_word = |line: &&str| line.starts_with("error:") || line.starts_with("warning:");
    text(&output.stderr).lines().filter(is_word).map(str::to_owned).collect()
}

/// A job of the example whose object on this PE calls `exit` with this code.
fn leave(ranks: u32, restarts: &str, pe: &str, code: &str) -> Output {
    let mut command = Command::new(example("run"));
    command.arg(ranks.to_string()).arg(example("ring")).args(["1000", "--leave", pe, "--code", code]);
    command.env("RUN_RESTARTS", restarts).env("RUN_TIMEOUT", "60").stdin(Stdio::null());
    command.output().expect("the launcher starts")
}

#[test]
fn a_rank_that_calls_exit_in_an_entry_method_is_named_with_its_code() {
    for restarts in ["0", "2"] {
        for (ranks, pe) in [(3, "1"), (2, "0"), (1, "0")] {
            let output = leave(ranks, restarts, pe, "5");
            let line = format!("error: rank {pe} ended with exit code 5 before the program; the job ends");
            assert_eq!((output.status.code(), told(&output)), (Some(5), vec![line]), "{ranks} {restarts}");
        }
    }
}

#[test]
fn a_rank_that_calls_exit_without_an_error_is_named_too() {
    for restarts in ["0", "2"] {
        let output = leave(3, restarts, "1", "0");
        let line = "error: rank 1 ended with exit code 0 before the program; the job ends";
        assert_eq!((output.status.code(), told(&output)), (Some(141), vec![line.to_owned()]), "{restarts}");
    }
    let output = leave(1, "0", "0", "0");
    let line = "warning: rank 0 ended with exit code 0 before the program";
    assert_eq!((output.status.code(), told(&output)), (Some(0), vec![line.to_owned()]));
}

#[test]
fn a_process_without_a_launcher_says_itself_that_it_called_exit() {
    let ring = |words: &[&str]| Command::new(example("ring")).args(words).output().expect("it starts");
    for code in [5, 0] {
        let output = ring(&["1000", "--leave", "0", "--code", &code.to_string()]);
        let told = told(&output);
        assert_eq!((output.status.code(), told.len()), (Some(code), 1), "{told:?}");
        assert!(
            told[0].starts_with("error: the process called exit before its program had ended"),
            "{told:?}"
        );
    }
    let output = ring(&["10"]);
    assert_eq!((output.status.code(), told(&output)), (Some(0), Vec::new()));
}
