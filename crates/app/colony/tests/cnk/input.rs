// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard input that `colony job run` passes on.

use std::io::Write as _;
use std::process::{Child, Output, Stdio};

use nix::sys::signal::Signal;

use crate::control::{Machine, send};

impl Machine {
    /// Starts a job of one process whose standard input is this.
    fn job_with(&self, stdin: impl Into<Stdio>, options: &[&str], script: &str) -> Child {
        let words =
            [&["job", "run", "--processes", "1"], options, &["--", self.busybox(), "sh", "-c", script]]
                .concat();
        let mut command = self.command(&words);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("colony runs")
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that say where they belong.
fn numbers(from: u32, to: u32) -> Vec<u8> {
    (from..to).flat_map(|n| format!("{n:07}\n").into_bytes()).collect()
}

#[test]
fn standard_input_goes_to_rank_0_whole_and_the_end_with_it() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    // others than rank 0 read nothing
    let mut words = machine.script("run", "2", "read word; echo $COLONY_RANK $word");
    words.insert(2, "--label");
    let mut job = machine.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    job.stdin.take().expect("a pipe").write_all(b"question\n").expect("written");
    let mut lines: Vec<String> =
        text(&job.wait_with_output().expect("ends")).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0: 0 question", "1: 1"]);
    // more than the pipes hold, through a pipe and from a file
    let all = numbers(0, 400_000);
    let mut job = machine.job_with(Stdio::piped(), &[], "cat");
    let mut stdin = job.stdin.take().expect("a pipe");
    let sent = all.clone();
    let sender = std::thread::spawn(move || stdin.write_all(&sent));
    let output = job.wait_with_output().expect("ends");
    sender.join().expect("no panic").expect("all is read");
    text(&output);
    assert!(output.stdout == all, "{} of {} bytes", output.stdout.len(), all.len());
    let file = machine.path().join("data");
    std::fs::write(&file, &all).expect("written");
    let job = machine.job_with(std::fs::File::open(&file).expect("there"), &[], "wc -c");
    assert_eq!(text(&job.wait_with_output().expect("ends")).trim(), all.len().to_string());
    // a program that does not read all, or nothing, ends although its input has not
    for (script, said) in [("head -c 8", "0000000\n"), ("echo done", "done\n")] {
        let mut job = machine.job_with(Stdio::piped(), &[], script);
        let mut stdin = job.stdin.take().expect("a pipe");
        stdin.write_all(&numbers(0, 2)).expect("written");
        assert_eq!(text(&job.wait_with_output().expect("ends")), said);
    }
    // nothing, and a terminal
    assert_eq!(
        text(&machine.job_with(Stdio::null(), &[], "wc -c").wait_with_output().expect("ends")).trim(),
        "0"
    );
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let job = machine.job_with(terminal.slave.try_clone().expect("open"), &[], "wc -c");
    assert_eq!(text(&job.wait_with_output().expect("ends")).trim(), "0", "a terminal is not read");
    let job = machine.job_with(terminal.slave, &["--input", "-"], "read word; echo $word");
    std::fs::File::from(terminal.master).write_all(b"typed\n").expect("written");
    assert_eq!(text(&job.wait_with_output().expect("ends")), "typed\n");
    let (code, text) = machine.fails(&["job", "submit", "--input", "-", "--", machine.busybox(), "true"]);
    assert!(code == Some(2) && text.contains("job run"), "{text}");
}

#[test]
fn each_byte_of_the_input_arrives_once_although_the_daemon_is_killed() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let mut job = machine.job_with(Stdio::piped(), &[], "cat");
    let mut stdin = job.stdin.take().expect("a pipe");
    const PARTS: u32 = 10;
    const OF_ONE: u32 = 20_000;
    for part in 0..PARTS {
        stdin.write_all(&numbers(part * OF_ONE, (part + 1) * OF_ONE)).expect("it is read");
        // the first ones may come before the job has begun; the command that passes them on starts the daemon again
        if let Some(daemon) = machine.daemon() {
            send(daemon, Signal::SIGKILL);
        }
    }
    drop(stdin);
    let output = job.wait_with_output().expect("ends");
    text(&output);
    let all = numbers(0, PARTS * OF_ONE);
    assert!(output.stdout == all, "{} of {} bytes", output.stdout.len(), all.len());
}
