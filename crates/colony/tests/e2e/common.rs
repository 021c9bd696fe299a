//! What the end-to-end tests share.

use assert_cmd::Command;

/// The built command.
pub(crate) fn colony() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("colony"))
}

/// Runs it, which must succeed, and reads its JSON.
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    let out = colony().args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// The CPU tests may load: the last this process may use.
pub(crate) fn last_cpu() -> String {
    colony_node::cpu::usable().expect("linux").iter().last().expect("a CPU").to_string()
}
