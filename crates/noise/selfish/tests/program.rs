// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as users run it.

use assert_cmd::Command;
use colony_selfish::alone::Seen;

fn selfish(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("colony-selfish"));
    command.args(args);
    command
}

#[test]
fn it_prints_its_observation_as_one_line_of_json() {
    for counter in ["tsc", "clock"] {
        let args = ["--seconds", "0.1", "--threshold", "50ns", "--list", "3", "--counter", counter];
        let output = selfish(&args).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.lines().count() == 1, "{text}");
        let seen: Seen = serde_json::from_str(&text).expect("the result");
        assert_eq!((seen.schema.as_str(), seen.threshold_ns), (Seen::SCHEMA, 50));
        assert!(seen.seconds >= 0.1 && seen.turns > 1000 && seen.detours.list.len() <= 3, "{seen:?}");
        assert!(seen.detours.list.iter().all(|l| l.1 >= 49), "no shorter than the threshold: {seen:?}");
    }
}

#[test]
fn wrong_use_is_exit_2() {
    for args in [&["--seconds", "0"][..], &["--threshold", "1"], &["--counter", "sundial"]] {
        selfish(args).assert().failure().code(2);
    }
}
