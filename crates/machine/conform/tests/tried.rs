// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that the program tries, by its output.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use colony_fship::Class;
use colony_fship::calls::CALLS;

/// Calls without a line: the end of a signal handler, and the end of a thread that is not its program's last. The C
/// library makes both in the cases of `signals.rs` and `threads.rs`.
const INDIRECT: [&str; 2] = ["exit", "rt_sigreturn"];

/// The program's lines on Linux, in a folder of its own. The last case ends it with code 7.
fn lines() -> String {
    let folder = tempfile::tempdir().expect("temp dir");
    let mut program = Command::new("timeout");
    program.args(["--foreground", "240", env!("CARGO_BIN_EXE_colony-conform")]).arg(folder.path());
    program.env_clear().stdin(Stdio::null());
    const CLOEXEC: i32 = libc::CLOSE_RANGE_CLOEXEC as i32;
    let close = || {
        // SAFETY: no descriptor is closed before the program is another.
        match unsafe { libc::close_range(3, u32::MAX, CLOEXEC) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe { program.pre_exec(close) };
    let out = program.output().expect("timeout, of coreutils, runs");
    assert_eq!(out.status.code(), Some(7), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn every_call_of_the_table_has_a_case_that_runs() {
    let lines = lines();
    let told: BTreeSet<&str> = lines.lines().filter_map(|l| l.split(' ').next()).collect();
    assert!(!told.contains("?"), "a case of a call that the table does not have:\n{lines}");
    let done = CALLS.iter().filter(|c| !matches!(c.class, Class::Error(_))).map(|c| c.name);
    let untried: Vec<&str> = done.filter(|n| !told.contains(n) && !INDIRECT.contains(n)).collect();
    assert!(untried.is_empty(), "no case tries {untried:?}");
    assert!(INDIRECT.iter().all(|n| !told.contains(n)), "listed as without a line, but there is one");
}
