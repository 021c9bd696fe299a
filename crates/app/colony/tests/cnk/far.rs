// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of a machine from another host, which knows its address, a token and a certificate only.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::control::{Machine, send};

/// Address, token and certificate, as the other host has them.
struct Far {
    folder: tempfile::TempDir,
    url: String,
    fingerprint: String,
}

impl Far {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("colony"));
        let token = self.folder.path().join("token");
        command.args(words).current_dir(self.folder.path()).env("COLONY_MACHINE", "/no/such/machine");
        command.env("COLONY_SERVER", &self.url).env("COLONY_TOKEN_FILE", token);
        command.env("COLONY_SERVER_FINGERPRINT", &self.fingerprint);
        command
    }

    fn output(&self, words: &[&str]) -> (Option<i32>, String) {
        text(&self.command(words).output().expect("colony runs"))
    }

    fn done(&self, words: &[&str]) -> String {
        let (code, text) = self.output(words);
        assert_eq!(code, Some(0), "{words:?}: {text}");
        text
    }
}

fn text(output: &Output) -> (Option<i32>, String) {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8_lossy(&all).into_owned())
}

#[test]
fn a_machine_is_used_from_another_host_by_tls_and_a_token() {
    let Some(machine) = Machine::new() else { return };
    let folder = crate::common::folder();
    let token = folder.path().join("token");
    let token_file = token.to_str().expect("a path");
    machine.done(&["machine", "up", "--shape", "2x2x2", "--listen", "127.0.0.1:0"]);
    let web: Value = machine.json(&["machine", "web", "--token-file", token_file]);
    assert_eq!(std::fs::metadata(&token).expect("written").permissions().mode() & 0o777, 0o600);
    let word = |name: &str| web["network"][name].as_str().expect("a word").to_owned();
    let far = Far { folder, url: word("url"), fingerprint: word("fingerprint") };
    assert!(far.done(&["machine", "status"]).contains("8 ready"));
    assert!(far.done(&["machine", "nodes"]).contains("R00-M0-N00-J00"));
    let busybox = machine.busybox();
    // a job, its input and output, and its exit code
    let words = ["job", "run", "--processes", "1", "--", busybox, "cat"];
    let mut job = far.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    job.stdin.take().expect("a pipe").write_all(&[b'x'; 300_000]).expect("sent");
    assert_eq!(job.wait_with_output().expect("ends").stdout, [b'x'; 300_000]);
    let (code, _) = far.output(&["job", "run", "--processes", "1", "--", busybox, "sh", "-c", "exit 5"]);
    assert_eq!(code, Some(5));
    assert!(far.done(&["job", "list"]).contains("busybox"));
    assert!(far.done(&["job", "show", "1"]).contains(&format!("program: {busybox}")));
    far.done(&["machine", "drain", "R00-M0-N00-J00", "--reason", "test"]);
    assert!(far.done(&["ras", "list"]).contains("node-drained"));
    far.done(&["machine", "undrain", "R00-M0-N00-J00"]);
    assert!(far.done(&["partition", "list"]).contains("ready"));
    // a job goes on, and so does its command, when the daemon is killed and comes back
    let mut job = far.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    machine.wait("the job runs", || {
        machine.json(&["machine", "status"])["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty())
    });
    let mut stdin = job.stdin.take().expect("a pipe");
    stdin.write_all(b"before ").expect("sent");
    send(machine.daemon().expect("it runs"), Signal::SIGKILL);
    machine.done(&["machine", "status"]);
    stdin.write_all(b"after").expect("sent");
    drop(stdin);
    assert_eq!(String::from_utf8_lossy(&job.wait_with_output().expect("ends").stdout), "before after");
    // what belongs to the machine's own host
    for (words, said) in [
        (&["machine", "up", "--shape", "2x2x2"][..], "own host only"),
        (&["machine", "web"], "own host only"),
        (&["job", "run", "--", "busybox", "true"], "absolute path"),
        (&["job", "run", "--dir", "here", "--", busybox, "true"], "absolute path"),
    ] {
        let (code, text) = far.output(words);
        assert!(code == Some(2) && text.contains(said), "{words:?}: {text}");
    }
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o640)).expect("set");
    let (code, text) = far.output(&["machine", "status"]);
    assert!(code == Some(2) && text.contains("chmod 600"), "{text}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("set");
    let reads: Value = machine.json(&["machine", "web", "--read-only", "--token-file", token_file]);
    assert_eq!(reads["read_only"], true);
    assert!(far.done(&["machine", "status"]).contains("ready"));
    let (code, text) = far.output(&["machine", "down"]);
    assert!(code == Some(2) && text.contains("may only look"), "{text}");
    machine.done(&["machine", "web", "--token-file", token_file]);
    far.done(&["machine", "down"]);
    // the daemon ends after its answer
    let socket = machine.path().join("m/api");
    let began = std::time::Instant::now();
    while socket.exists() && began.elapsed() < std::time::Duration::from_secs(60) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (code, text) = far.output(&["machine", "status"]);
    assert!(code == Some(1) && text.contains("nothing listens"), "{text}");
}
