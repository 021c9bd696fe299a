//! Every system call of the table, against Linux.

use std::process::Command;

use colony_cnk::Machine;
use colony_fship::Class;
use colony_fship::calls::CALLS;

use crate::common::{boot, folder, programs, run, spec};

/// What may differ: a case, and why. Everything else is as on Linux.
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
    let linux = Command::new(&program).arg(here.path()).env_clear().output().expect("runs");
    let linux = String::from_utf8_lossy(&linux.stdout).into_owned();
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
    for line in ["mmap a file: ENODEV", "clone a process: ENOSYS", "clone3 a process: ENOSYS"] {
        assert!(out.contains(line), "{line}\n{out}");
    }
}
