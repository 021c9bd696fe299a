// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start, end, and every way to die.

use std::os::unix::net::UnixDatagram;

use colony_testing::is_gone;
use nix::sys::signal::{Signal, kill};

use crate::support::{Daemon, mounted, possible, program, text, wait_until};

#[test]
fn signals_end_it_cleanly() {
    if !possible() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = Daemon::start("");
        let guard = daemon.guard();
        assert_eq!(daemon.signal(signal).code(), Some(0), "{signal}");
        assert!(is_gone(&daemon.mount), "{signal}: the directory it made is gone");
        assert!(kill(guard, None).is_err(), "{signal}: the guard is gone");
    }
}

#[test]
fn a_directory_that_was_there_stays() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    let mount = folder.path().join("a place");
    std::fs::create_dir(&mount).expect("made");
    let mut daemon = Daemon::start_at(folder, mount, "");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.mount.is_dir() && std::fs::read_dir(&daemon.mount).expect("empty").count() == 0);
}

#[test]
fn kill_9_leaves_no_mount() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    daemon.signal(Signal::SIGKILL);
    wait_until("the mount and its directory are gone", || !mounted(&daemon.mount) && is_gone(&daemon.mount));
}

#[test]
fn it_ends_although_somebody_has_a_file_open() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    let open = std::fs::File::open(daemon.mount.join("stats")).expect("readable");
    assert_eq!(daemon.signal(Signal::SIGTERM).code(), Some(0));
    assert!(is_gone(&daemon.mount));
    drop(open);
}

#[test]
fn a_second_one_is_refused_and_the_first_goes_on() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let out = program().arg("--mount").arg(&daemon.mount).output().expect("colonyd starts");
    let said = text(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("another colonyd"), "{said}");
    assert_eq!(daemon.read("period"), "100ms\n");
}

#[test]
fn without_its_guard_it_ends_and_the_next_one_clears_up() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    kill(daemon.guard(), Signal::SIGKILL).expect("ours");
    assert_eq!(daemon.child.wait().expect("ours").code(), Some(1));
    // what it left the kernel's release agent takes away, if it comes before the next one
    let next = program()
        .arg("--mount")
        .arg(&daemon.mount)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("colonyd starts");
    daemon.child = next;
    wait_until("the next one shows its files", || colony_client::Client::at(&daemon.mount).is_some());
    assert_eq!(daemon.signal(Signal::SIGTERM).code(), Some(0));
    assert!(!mounted(&daemon.mount));
}

#[test]
fn unmounted_by_somebody_else_it_ends() {
    if !possible() {
        return;
    }
    let mut daemon = Daemon::start("");
    // a child that another test is just starting has its files until it runs its program
    wait_until("no file is open", || match nix::mount::umount(&daemon.mount) {
        Err(nix::Error::EBUSY) => false,
        unmounted => unmounted.map(|()| true).expect("root may"),
    });
    assert_eq!(daemon.child.wait().expect("ours").code(), Some(1));
    assert!(is_gone(&daemon.mount));
}

#[test]
fn the_service_manager_is_told() {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("bind");
    let place = dir.path().join("colony");
    let mut child = program()
        .arg("--mount")
        .arg(&place)
        .env("NOTIFY_SOCKET", &path)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("colonyd starts");
    let receive = || {
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).expect("a state");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let ready = receive();
    assert!(ready.starts_with("READY=1") && ready.contains(place.to_str().expect("text")), "{ready}");
    assert_eq!(std::fs::read_to_string(place.join("period")).expect("ready means ready"), "100ms\n");
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("ours");
    assert_eq!(receive(), "STOPPING=1");
    assert!(child.wait().expect("ours").success());
}

#[test]
fn it_keeps_only_the_privilege_it_needs() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let capabilities = |pid: nix::unistd::Pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
        ["CapPrm:", "CapBnd:"].map(|field| {
            let line = status.lines().find_map(|l| l.strip_prefix(field)).expect("a field");
            u64::from_str_radix(line.trim(), 16).expect("a mask")
        })
    };
    // `/proc` may hide processes here: then both may look all the same
    let without_ptrace = |pid| capabilities(pid).map(|mask| mask & !(1 << 19));
    assert_eq!(without_ptrace(daemon.pid()), [1 << 23; 2], "CAP_SYS_NICE");
    assert_eq!(without_ptrace(daemon.guard()), [1 << 21 | 1 << 23; 2], "and CAP_SYS_ADMIN");
}
