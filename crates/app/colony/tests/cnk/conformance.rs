// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every system call of the table, against Linux.

use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use colony_fship::Class;
use colony_fship::calls::CALLS;
use colony_nodes::Machine;

use crate::common::{boot, folder, programs, run, spec};

/// Cases that may differ from Linux, each with the reason.
const DIFFERENT: &[(&str, &str)] = &[(
    "read nowhere, at the end",
    "a node looks at the address before it knows that there is nothing to read",
)];

#[test]
fn every_call_does_on_a_node_what_it_does_on_linux() {
    as_on_linux(Machine::default());
}

/// The program of all calls says on such a node what it says on Linux.
pub(crate) fn as_on_linux(machine: Machine) {
    let Some([program]) = programs(["colony-conform"]) else { return };
    let (here, there) = (folder(), folder());
    let linux = on_linux(&program, here.path());
    let mut partition = boot(machine, 1);
    let path = there.path().to_str().expect("text");
    let node = run(&mut partition, spec(&program, there.path(), &[path]));
    assert_eq!(node.outcome.code(), 7, "the last case's exit code: {}\n{}", node.outcome, node.stderr);
    let differs = |(l, n): &(&str, &str)| l != n && !DIFFERENT.iter().any(|(case, _)| n.starts_with(case));
    let differing: Vec<String> = linux
        .lines()
        .zip(node.stdout.lines())
        .filter(differs)
        .map(|(l, n)| format!("Linux  {l}\nnode   {n}"))
        .collect();
    assert!(
        differing.is_empty(),
        "{} of {}:\n{}",
        differing.len(),
        linux.lines().count(),
        differing.join("\n")
    );
    assert_eq!(linux.lines().count(), node.stdout.lines().count(), "{}", node.stdout);
    eprintln!("{} cases are as on Linux", linux.lines().count());
}

/// Output of the program on Linux with a node's surroundings: the usual umask, and no descriptors but three.
fn on_linux(program: &Path, folder: &Path) -> String {
    const PATIENCE: Duration = Duration::from_secs(240);
    let mut said = tempfile::tempfile().expect("a file");
    let mut oracle = Command::new(program);
    oracle.arg(folder).env_clear().stdin(Stdio::null());
    oracle.stdout(said.try_clone().expect("a descriptor")).stderr(Stdio::inherit());
    const CLOEXEC: i32 = nix::libc::CLOSE_RANGE_CLOEXEC as i32;
    let like_a_node = || {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
        // SAFETY: no descriptor is closed before the program is another.
        let marked = unsafe { nix::libc::close_range(3, u32::MAX, CLOEXEC) };
        nix::errno::Errno::result(marked).map(drop).map_err(Into::into)
    };
    // SAFETY: two system calls, which allocate nothing and take no lock.
    unsafe { oracle.pre_exec(like_a_node) };
    let mut oracle = oracle.spawn().expect("runs on Linux");
    let start = Instant::now();
    while oracle.try_wait().expect("ours").is_none() {
        if start.elapsed() > PATIENCE {
            let _ = oracle.kill();
            let _ = oracle.wait();
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut text = String::new();
    said.rewind().and_then(|()| said.read_to_string(&mut text)).expect("ours");
    assert!(start.elapsed() <= PATIENCE, "the program does not end on Linux:\n{text}");
    text
}

#[test]
fn what_a_node_refuses_it_refuses_at_once_and_with_the_right_error() {
    let Some([program]) = programs(["colony-conform"]) else { return };
    let there = folder();
    let mut partition = boot(Machine::default(), 1);
    let path = there.path().to_str().expect("text");
    let ran = run(&mut partition, spec(&program, there.path(), &[path, "--refused"]));
    let out = ran.output();
    let refused = CALLS.iter().filter(|c| matches!(c.class, Class::Error(_))).count();
    assert_eq!(out.lines().filter(|l| l.ends_with(", as the table says")).count(), refused, "{out}");
    assert_eq!(
        out.lines().filter(|l| l.starts_with("? no call") && l.ends_with(": ENOSYS")).count(),
        4,
        "{out}"
    );
    for line in [
        "mmap a file: ENODEV",
        "setrlimit fewer files: EPERM",
        "prlimit64 cores: EPERM",
        "setrlimit the same: 0",
        "getrlimit unchanged: true",
        "futex inheritance, lock: ENOSYS",
        "futex inheritance, unlock: ENOSYS",
        "futex inheritance, try: ENOSYS",
        "futex inheritance, a lock of the C library: true",
        "clone a process: ENOSYS",
        "clone3 a process: ENOSYS",
    ] {
        assert!(out.contains(line), "{line}\n{out}");
    }
}
