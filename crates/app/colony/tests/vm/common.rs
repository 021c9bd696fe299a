// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests in virtual nodes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use colony_sched::run::RunReport;
use colony_vm::testing::{missing, node, script};
use colony_vm::{Exit, Outcome, Vm};

/// Noise of 20 ms every 100 ms or so, and a job's work of some 2.7 s, as shell functions; both count loops, so they are
/// the same instructions in every run. `run NAME ARGS` leaves the report in /tmp/NAME.json.
const FUNCTIONS: &str = r#"
: ${LOOPS_A_SECOND:=37500}
export noise_loops=$((LOOPS_A_SECOND / 50)) job_loops=$((LOOPS_A_SECOND * 8 / 3))
loops() { i=0; while [ $i -lt $1 ]; do i=$((i+1)); done; }
noise() { while :; do loops $noise_loops; sleep 0.08; done; }
job='i=0; while [ $i -lt $job_loops ]; do i=$((i+1)); done'
run() { name=$1; shift; colony run --cpus 0 --period 200ms --duty 80% --out /tmp/$name.json "$@" 2>/tmp/$name.err; }
state() { cat /sys/kernel/sched_ext/state; }
"#;

/// A node with our programs; `None`, with the reason printed, where machines cannot be started.
pub(crate) fn node_with(more: &[&str]) -> Option<Vm> {
    if let Some(reason) = missing() {
        colony_testing::skip(reason);
        return None;
    }
    let ours = stripped(assert_cmd::cargo::cargo_bin!("colony"));
    let programs: Vec<PathBuf> = std::iter::once(ours).chain(more.iter().map(PathBuf::from)).collect();
    Some(node(programs).expect("a node").memory_mib(768))
}

/// A program without what only a debugger reads: most of its size. One test makes it, the others read it meanwhile.
pub(crate) fn stripped(program: &Path) -> PathBuf {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).expect("a folder");
    let small = folder.join(program.file_name().expect("a program"));
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if made.insert(small.clone()) {
        let strip = std::process::Command::new("strip").arg("-o").args([&small, program]).status();
        assert!(strip.is_ok_and(|s| s.success()), "strip (binutils) works");
    }
    small
}

/// A node of one CPU whose time is a count of its instructions, `1 << shift` ns each. The slower the CPU, the less
/// processor time of this machine does a second of the node take; noise and jobs last as long on each.
pub(crate) fn counted(vm: Vm, shift: u8) -> Vm {
    vm.icount(shift).env("LOOPS_A_SECOND", (75_000 >> shift).to_string())
}

/// Runs a script after the functions above; it must succeed.
pub(crate) fn sh(vm: &Vm, text: &str) -> Outcome {
    let out = script(vm, &format!("{FUNCTIONS}\n{text}")).expect("the node runs");
    eprintln!("the node took {:.1} s of processor time", out.host_cpu_ns as f64 * 1e-9);
    assert_eq!(out.exit, Exit::Code(0), "{}\n{}\n{}", out.text(), out.error_text(), out.console);
    out
}

/// The report of `run NAME`.
pub(crate) fn report(out: &Outcome, name: &str) -> RunReport {
    let file = &out.files[Path::new(&format!("/tmp/{name}.json"))];
    let bytes = file.as_ref().unwrap_or_else(|e| panic!("{name}: {e}; {}", out.error_text()));
    serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Asks for the reports of these runs.
pub(crate) fn collecting(mut vm: Vm, names: &[&str]) -> Vm {
    for name in names {
        vm = vm.collect(format!("/tmp/{name}.json"));
    }
    vm
}

/// The built daemon, which lies beside our program; `None`, with the reason printed, where it was not built.
pub(crate) fn colonyd() -> Option<PathBuf> {
    let built = assert_cmd::cargo::cargo_bin!("colony").with_file_name("colonyd");
    if !built.exists() {
        colony_testing::skip(format_args!("{} is not built (cargo build -p colonyd)", built.display()));
        return None;
    }
    Some(stripped(&built))
}

/// The rows of `colony study NAME`, which runs virtual nodes; `None`, with the reason printed, where machines cannot be started.
pub(crate) fn study(name: &str) -> Option<Vec<serde_json::Value>> {
    if let Some(reason) = missing() {
        colony_testing::skip(reason);
        return None;
    }
    let out = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("colony"))
        .args(["study", name, "--json"])
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    Some(outcome["rows"].as_array().expect("rows").clone())
}
