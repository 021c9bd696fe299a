// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lost standard error, and users without rights, do no harm to the daemon.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use colony_client::Client;
use colony_testing::is_gone;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Daemon, NOBODY, possible, program, text, wait_until};

/// A daemon with this standard error. It must serve its files, take refusals, and end by a signal with code 0.
fn survives(stderr: Stdio, while_it_runs: impl FnOnce(&mut Child)) {
    let folder = tempfile::tempdir().expect("temp dir");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let mount = folder.path().join("colony");
    let mut child = program().arg("--mount").arg(&mount).stderr(stderr).spawn().expect("colonyd starts");
    wait_until("colonyd shows its files", || {
        assert!(child.try_wait().expect("ours").is_none(), "it ended");
        Client::at(&mount).is_some()
    });
    while_it_runs(&mut child);
    for _ in 0..3 {
        // each is a line of the log
        assert!(std::fs::write(mount.join("period"), "nonsense").is_err());
        std::fs::write(mount.join("period"), "200ms").expect("inside the limits");
    }
    assert_eq!(std::fs::read_to_string(mount.join("period")).expect("it serves"), "200ms\n");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("ours");
    assert_eq!(child.wait().expect("ours").code(), Some(0));
    assert!(is_gone(&mount), "the guard has cleared up");
}

#[test]
fn a_full_device_and_a_closed_pipe_as_standard_error_do_not_end_it() {
    if !possible() {
        return;
    }
    survives(OpenOptions::new().write(true).open("/dev/full").expect("linux").into(), |_| ());
    // closed later, as when the reader of a log dies
    survives(Stdio::piped(), |child| drop(child.stderr.take()));
}

#[test]
fn a_pipe_that_nobody_reads_does_not_stop_it() {
    if !possible() {
        return;
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).expect("a small pipe");
    survives(writer.into(), |child| {
        let log = format!("/proc/{}/root", child.id());
        assert!(std::fs::metadata(log).is_ok(), "it runs");
    });
    drop(reader);
}

#[test]
fn a_report_that_cannot_be_printed_is_a_failure_and_no_panic() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("linux");
    let out = program().arg("--check").stdout(full).stderr(Stdio::piped()).spawn().expect("colonyd starts");
    let out = out.wait_with_output().expect("ours");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("No space left"), "{}", text(&out));
}

#[test]
fn a_user_without_rights_cannot_fill_the_log() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let lines = || std::fs::read_to_string(daemon.folder().join("log")).expect("its log").lines().count();
    let before = lines();
    let script = "i=0; while [ $i -lt 500 ]; do
        (: > $M/period) 2>/dev/null; (: > $M/duty_cycle) 2>/dev/null; i=$((i+1)); done; cat $M/last_error";
    let out = daemon.shell_as(Some(NOBODY), script);
    assert!(text(&out).contains("user 65534 may not"), "refusals are told all the same: {}", text(&out));
    // 1,000 refusals: the burst, and a line each 6 s however long this takes here
    assert!(lines() - before < 100, "{} lines", lines() - before);
    assert!(std::fs::write(daemon.mount.join("period"), "nonsense").is_err());
    let log = std::fs::read_to_string(daemon.folder().join("log")).expect("its log");
    assert!(log.contains("lines that users caused were left out"), "{log}");
    assert!(
        log.lines().last().is_some_and(|l| l.contains("user 0")),
        "root's lines are never left out: {log}"
    );
}

/// Opens `stats` until that is refused, and reads from each: files, documents, and the error numbers met.
const HOARD: &str = "
import os, sys, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.setgid(65534); os.setuid(65534)
opened, errors, stop = [], set(), False
while not stop and len(opened) < 3000:
    try:
        opened.append(os.open(sys.argv[1] + '/stats', os.O_RDONLY))
    except OSError as e:
        errors.add(e.errno); stop = True
read = 0
for f in opened:
    try:
        os.read(f, 1); read += 1
    except OSError as e:
        errors.add(e.errno)
print(len(opened), read, *sorted(errors), flush=True)
sys.stdin.read()
";

#[test]
fn a_user_cannot_keep_files_and_documents_open_without_end() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let mut hoarder = Command::new("/usr/bin/python3");
    hoarder.args(["-c", HOARD]).arg(&daemon.mount).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hoarder = hoarder.spawn().expect("python3");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(hoarder.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
    let numbers: Vec<usize> = line.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [opened, read, errors @ ..] = &numbers[..] else { panic!("{line}") };
    assert_eq!(*opened, 1024, "{line}");
    assert!((1..=1024).contains(read), "a MiB of documents at most: {line}");
    assert_eq!(errors.last(), Some(&(libc::EMFILE as usize)), "{line}");
    // root, and another user, are not concerned
    assert!(daemon.read("stats").contains("colony"));
    assert!(daemon.shell_as(Some(NOBODY - 1), "cat $M/stats").status.success());
    assert!(!daemon.shell_as(Some(NOBODY), "cat $M/stats").status.success());
    drop(hoarder.stdin.take());
    hoarder.wait().expect("ours");
    wait_until("what was closed counts no more", || {
        daemon.shell_as(Some(NOBODY), "cat $M/stats").status.success()
    });
}

#[test]
fn monitors_are_answered_behind_silent_connections() {
    if !possible() {
        return;
    }
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().expect("temp dir");
    let socket = folder.path().join("metrics.sock");
    let _daemon = Daemon::start(&format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display()));
    let silent: Vec<_> = (0..64).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    let mut monitor = UnixStream::connect(&socket).expect("it listens");
    monitor.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    monitor.read_to_string(&mut answer).expect("text");
    assert!(answer.contains("200 OK"), "{answer}");
    // most made room, before any timeout of theirs
    let open = silent.iter().filter(|s| {
        s.set_nonblocking(true).expect("ours");
        let mut s: &UnixStream = s;
        s.read(&mut [0]).is_err()
    });
    assert!(open.count() <= 16);
}

#[test]
fn lines_for_the_journal_have_no_time_of_their_own() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    let log = folder.path().join("log");
    for journal in [false, true] {
        let file = File::create(&log).expect("writable");
        let stat = file.metadata().expect("ours");
        let mount = folder.path().join("colony");
        let mut command = program();
        command.arg("--mount").arg(&mount).stderr(file);
        if journal {
            command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()));
        } else {
            command.env("JOURNAL_STREAM", "1:1");
        }
        let mut child = command.spawn().expect("colonyd starts");
        wait_until("colonyd shows its files", || Client::at(&mount).is_some());
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("ours");
        assert_eq!(child.wait().expect("ours").code(), Some(0));
        let said = std::fs::read_to_string(&log).expect("its log");
        let dated = |l: &str| l.starts_with("20") && l.contains('T');
        assert!(said.lines().count() > 1 && said.lines().all(|l| dated(l) != journal), "{journal}: {said}");
    }
}
