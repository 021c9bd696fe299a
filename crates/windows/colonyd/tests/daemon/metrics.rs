// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics, read as monitors read them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use colony_testing::is_gone;
use nix::sys::signal::Signal;

use crate::support::{Daemon, possible, program, text, wait_until};

fn get(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

/// A daemon that answers at a socket beside its files.
fn with_socket(folder: &Path, more: &str) -> (Daemon, std::path::PathBuf) {
    let socket = folder.join("metrics.sock");
    let daemon = Daemon::start(&format!("[metrics]\nlisten = \"unix:{}\"\n{more}", socket.display()));
    (daemon, socket)
}

#[test]
fn a_socket_file_answers_and_goes_with_the_daemon_whatever_ends_it() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let (mut daemon, socket) = with_socket(folder.path(), "");
        let meta = std::fs::metadata(&socket).expect("there");
        assert!(meta.file_type().is_socket());
        assert_eq!(meta.permissions().mode() & 0o777, 0o666, "who may read stats may ask");
        let answer = get(UnixStream::connect(&socket).expect("it listens"));
        assert!(answer.contains("application/openmetrics-text; version=1.0.0"), "{answer}");
        assert!(answer.contains("\ncolony_period_seconds 0.1\n"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        // what is set shows at the next look
        daemon.client().set_period(200_000_000).expect("inside the limits");
        let answer = get(UnixStream::connect(&socket).expect("it listens"));
        assert!(answer.contains("\ncolony_period_seconds 0.2\n"), "{answer}");
        daemon.signal(signal);
        wait_until("the socket is gone", || !socket.exists());
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_group_keeps_others_out() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("metrics.sock")).expect("bound"));
    let (_daemon, socket) = with_socket(folder.path(), "group = \"65534\"\n");
    let meta = std::fs::metadata(&socket).expect("there");
    assert_eq!((meta.permissions().mode() & 0o777, meta.uid(), meta.gid()), (0o660, 0, 65534));
    assert!(get(UnixStream::connect(&socket).expect("it listens")).contains("200 OK"));
}

#[test]
fn a_port_answers() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[metrics]\nlisten = \"127.0.0.1:0\"\n");
    let log = std::fs::read_to_string(daemon.folder().join("log")).expect("its log");
    let address = log.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let stream = TcpStream::connect(address.expect("the log names it")).expect("it listens");
    let answer = get(stream);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("colony_keeper{by=\"nothing\"} 1\n"),
        "{answer}"
    );
}

#[test]
fn a_place_that_is_none_is_wrong_use_and_one_that_is_taken_a_failure() {
    let folder = tempfile::tempdir().expect("temp dir");
    let file = folder.path().join("c.toml");
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "mine").expect("written");
    for (listen, code, expected) in [
        ("localhost:9464".to_owned(), 2, "127.0.0.1:9464"),
        ("unix:metrics.sock".to_owned(), 2, "absolute path"),
        (format!("unix:{}", taken.display()), 1, "is no socket"),
    ] {
        if code == 1 && !possible() {
            continue;
        }
        std::fs::write(&file, format!("[metrics]\nlisten = \"{listen}\"\n")).expect("written");
        let mount = folder.path().join("colony");
        let out =
            program().arg("--config").arg(&file).arg("--mount").arg(&mount).output().expect("colonyd starts");
        let said = text(&out);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(is_gone(&mount), "nothing is left");
    }
    assert_eq!(std::fs::read_to_string(&taken).expect("there still"), "mine");
}
