// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run` and signals: the program gets each of them, and each once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use colony_node::task;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::common::{Owned, error, program, until};

/// The exit code of the fixture after `SIGTERM`.
const TERMINATED: i32 = 42;
/// The way of sending (`si_code`) of the kernel itself: a terminal's signals.
const FROM_KERNEL: i32 = 0x80;

/// The fixture that prints signals.
fn fixture(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures/signals.c");
    let path = folder.join("signals");
    let out = Command::new("cc").args(["-O1", "-o"]).args([&path, &source]).output().expect("cc is there");
    assert!(out.status.success(), "{}", error(&out));
    path
}

/// The process number that a program has written to `file`.
fn number_in(file: &Path) -> i32 {
    until("the program", || file.exists());
    std::fs::read_to_string(file).expect("there").trim().parse().expect("a number")
}

/// A run in a process group of its own, as an interactive shell starts it.
struct Run {
    run: Owned,
    program: i32,
    output: BufReader<ChildStdout>,
}

impl Run {
    fn start(job: &[&str], file: &Path) -> Self {
        let mut run = Command::new(program());
        run.args(["run", "--backend", "none", "--"]).args(job).process_group(0);
        let mut run = Owned(run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts"));
        let output = BufReader::new(run.0.stdout.take().expect("piped"));
        Self { program: number_in(file), run, output }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.run.0.id().cast_signed())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// The rest of its output, and its exit code.
    fn finish(mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        (rest, self.run.0.wait().expect("ours").code())
    }

    /// Returns `true` if command and program are both stopped, or if both are not.
    fn are_stopped(&self, stopped: bool) -> bool {
        [self.pid().as_raw(), self.program]
            .iter()
            .all(|&pid| task::stat(pid).is_ok_and(|stat| stat.is_stopped() == stopped))
    }
}

#[test]
fn every_signal_reaches_the_program_once_with_its_value() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (fixture, file) = (fixture(folder.path()), folder.path().join("pid"));
    let mut run = Run::start(&[fixture.to_str().expect("a path"), file.to_str().expect("a path")], &file);
    let kept = [
        Signal::SIGKILL,
        Signal::SIGSTOP,
        Signal::SIGCHLD,
        Signal::SIGPIPE,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGSEGV,
        Signal::SIGSYS,
        // ends the test
        Signal::SIGTERM,
    ];
    for sent in Signal::iterator().filter(|s| !kept.contains(s)) {
        kill(run.pid(), sent).expect("ours");
        assert_eq!(run.line(), format!("{} 0 0", sent as i32), "{sent}");
    }
    for number in [libc::SIGRTMIN() + 1, libc::SIGRTMAX()] {
        // SAFETY: the calls take numbers; the value is followed by nobody.
        unsafe {
            assert_eq!(libc::kill(run.pid().as_raw(), number), 0);
            assert_eq!(run.line(), format!("{number} 0 0"));
            let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(4711) };
            assert_eq!(libc::sigqueue(run.pid().as_raw(), number, value), 0);
            assert_eq!(run.line(), format!("{number} {} 4711", libc::SI_QUEUE));
        }
    }
    kill(run.pid(), Signal::SIGTERM).expect("ours");
    assert_eq!(run.finish(), (format!("{} 0 0\n", libc::SIGTERM), Some(TERMINATED)), "nothing came twice");
}

#[test]
fn a_program_that_a_real_time_signal_ends_is_told_as_such() {
    let folder = tempfile::tempdir().expect("temp dir");
    let file = folder.path().join("pid");
    let script = format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}'; exec sleep 600", file.display());
    let run = Run::start(&["sh", "-c", &script], &file);
    // SAFETY: the call takes numbers.
    unsafe { libc::kill(run.pid().as_raw(), libc::SIGRTMIN() + 5) };
    assert_eq!(run.finish().1, Some(128 + libc::SIGRTMIN() + 5));
}

#[test]
fn signals_of_a_terminal_reach_the_program_once() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (fixture, file) = (fixture(folder.path()), folder.path().join("pid"));
    let size = |rows| PtySize { rows, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pty = native_pty_system().openpty(size(24)).expect("a pseudo-terminal");
    let mut command = CommandBuilder::new(program());
    command.args(["run", "--backend", "none", "--"]);
    command.args([&fixture, &file]);
    let mut child = pty.slave.spawn_command(command).expect("starts");
    let mut keys = pty.master.take_writer().expect("writable");
    let mut screen = BufReader::new(pty.master.try_clone_reader().expect("readable"));
    drop(pty.slave);
    number_in(&file);
    let mut seen = String::new();
    let mut await_line = |wanted: &str| {
        // a terminal without a command that writes to it is at its end
        while !seen.lines().any(|line| line.trim_end().ends_with(wanted)) {
            assert!(screen.read_line(&mut seen).is_ok_and(|n| n > 0), "`{wanted}` is not in: {seen}");
        }
        seen.clone()
    };
    keys.write_all(b"\x03").expect("a key");
    await_line(&format!("{} {FROM_KERNEL} 0", libc::SIGINT));
    pty.master.resize(size(30)).expect("a terminal");
    await_line(&format!("{} {FROM_KERNEL} 0", libc::SIGWINCH));
    kill(Pid::from_raw(child.process_id().expect("it runs").cast_signed()), Signal::SIGTERM).expect("ours");
    let seen = await_line(&format!("{} 0 0", libc::SIGTERM));
    let is_interrupt = |line: &&str| {
        let ways = [FROM_KERNEL, libc::SI_USER].map(|way| format!("{} {way} 0", libc::SIGINT));
        ways.iter().any(|way| line.trim_end().trim_start_matches("^C") == way)
    };
    assert_eq!(seen.lines().filter(is_interrupt).count(), 1, "{seen}");
    // the report, up to the end of the terminal
    while screen.read_line(&mut String::new()).is_ok_and(|n| n > 0) {}
    assert_eq!(child.wait().expect("ends").exit_code(), TERMINATED as u32);
}

#[test]
fn a_script_that_signals_its_group_has_the_signal_once() {
    let folder = tempfile::tempdir().expect("temp dir");
    let file = folder.path().join("pid");
    let script = format!(
        "n=0; trap 'n=$((n + 1))' USR1; trap 'exit $n' USR2; kill -USR1 0; echo $$ > '{0}.new' && mv '{0}.new' '{0}'; \
         while :; do sleep 0.05; done",
        file.display()
    );
    let run = Run::start(&["sh", "-c", &script], &file);
    // the command reads it after the other one
    kill(run.pid(), Signal::SIGUSR2).expect("ours");
    assert_eq!(run.finish().1, Some(1));
}

#[test]
fn the_command_stops_and_goes_on_with_its_program() {
    let folder = tempfile::tempdir().expect("temp dir");
    let file = folder.path().join("pid");
    let script = format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}'; exec sleep 600", file.display());
    let run = Run::start(&["sh", "-c", &script], &file);
    // a debugger stops and continues the program alone
    let program = Pid::from_raw(run.program);
    kill(program, Signal::SIGSTOP).expect("ours");
    until("a stop of the program", || task::stat(run.program).is_ok_and(|stat| stat.is_stopped()));
    kill(program, Signal::SIGCONT).expect("ours");
    until("both go on", || run.are_stopped(false));
    for _ in 0..2 {
        kill(run.pid(), Signal::SIGTSTP).expect("ours");
        until("a stop of both", || run.are_stopped(true));
        kill(run.pid(), Signal::SIGCONT).expect("ours");
        until("both go on", || run.are_stopped(false));
    }
    // a terminal stops the whole group
    kill(Pid::from_raw(-run.pid().as_raw()), Signal::SIGTSTP).expect("ours");
    until("a stop of both", || run.are_stopped(true));
    kill(Pid::from_raw(-run.pid().as_raw()), Signal::SIGCONT).expect("ours");
    until("both go on", || run.are_stopped(false));
    // the command sees an end that it was not told of
    kill(program, Signal::SIGTERM).expect("ours");
    assert_eq!(run.finish().1, Some(128 + libc::SIGTERM));
}

#[test]
fn a_parent_that_ignores_the_ends_of_children_changes_nothing() {
    let ignored = |run: &mut Command| {
        // SAFETY: one system call between fork and exec; to ignore a signal is no handler.
        unsafe { run.pre_exec(|| Ok(signal(Signal::SIGCHLD, SigHandler::SigIgn).map(drop)?)) };
        run.output().expect("runs")
    };
    let mut run = Command::new(program());
    let out = ignored(run.args([
        "run",
        "--backend",
        "none",
        "--",
        "sh",
        "-c",
        "grep SigIgn /proc/$$/status; exit 7",
    ]));
    assert_eq!(out.status.code(), Some(7), "{}", error(&out));
    let alone = ignored(Command::new("sh").args(["-c", "grep SigIgn /proc/$$/status; exit 7"]));
    assert_eq!(out.stdout, alone.stdout, "the program ignores what it would without the command");
}
