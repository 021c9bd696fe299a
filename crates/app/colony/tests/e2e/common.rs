// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the end-to-end tests.

// colony-sched's tests want the CPUs for themselves too
#[path = "../../../../windows/sched/tests/sched/lock.rs"]
mod lock;

use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use assert_cmd::Command;

/// Settings of large pages.
const SYSFS: &str = "/sys/kernel/mm/transparent_hugepage";

/// The built command.
pub(crate) fn colony() -> Command {
    let mut command = Command::new(program());
    // measurements leave their last trace there, not in the home of the person who tests
    command.env("XDG_STATE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("state"));
    command
}

/// Path of the built command.
pub(crate) fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("colony").to_path_buf()
}

/// Copies a program. By a process of its own: a file this one has open to write could be inherited by what
/// another test starts meanwhile, and the copy would be busy.
pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").args([from, to]).status().expect("cp").success());
}

/// Runs it, which must succeed, and reads its JSON.
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    let out = colony().args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: no JSON and nothing else: {e}"))
}

/// Runs it, which must succeed, and gives what it prints: plain text of at most 80 columns.
pub(crate) fn text(args: &[&str]) -> String {
    let out = colony().args(args).output().expect("runs");
    assert!(out.status.success(), "{args:?}: {}", error(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    is_plain(&text);
    text
}

/// At most 80 columns, and no colours into a pipe.
pub(crate) fn is_plain(text: &str) {
    assert!(text.lines().all(|l| l.chars().count() <= 80), "wider than 80 columns:\n{text}");
    assert!(!text.contains('\u{1b}'), "terminal codes in a pipe: {text:?}");
}

/// Runs `colony ARGS`, which must fail with `code` and one error that contains `part`.
pub(crate) fn fails(args: &[&str], code: i32, part: &str) {
    failed(&format!("{args:?}"), &colony().args(args).output().expect("runs"), code, part);
}

/// A failed run: `code`, one error that contains `part`, nothing else.
pub(crate) fn failed(what: &str, out: &Output, code: i32, part: &str) {
    let error = error(out);
    assert_eq!(out.status.code(), Some(code), "{what}: {error}");
    assert!(error.contains(part), "{what}: `{part}` is not in: {error}");
    assert_eq!(error.lines().filter(|l| l.starts_with("error:")).count(), 1, "{what}: {error}");
    assert!(out.stdout.is_empty(), "{what}: {}", String::from_utf8_lossy(&out.stdout));
    assert!(!error.contains("panicked") && !error.contains('\u{1b}'), "{what}: {error}");
}

/// Standard error of a run.
pub(crate) fn error(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The CPU tests may load: the last this process may use.
pub(crate) fn last_cpu() -> String {
    colony_node::cpu::usable().expect("linux").iter().last().expect("a CPU").to_string()
}

/// The CPUs for this test alone among those that ask, until it is dropped: what makes noise, or looks for it,
/// in real time.
pub(crate) fn alone() -> colony_testing::machine::MachineLock {
    lock::job_cpu()
}

/// Returns `true` if this process has root's rights; otherwise records that the test is skipped.
pub(crate) fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        colony_testing::skip("needs root");
    }
    root
}

/// The word in brackets of a file of sysfs.
pub(crate) fn chosen(file: &str) -> String {
    let text = std::fs::read_to_string(format!("{SYSFS}/{file}")).unwrap_or_default();
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or_else(|| "absent".to_owned(), |(word, _)| word.to_owned())
}

/// Returns `true` if memory gets huge pages where a program asks for them; otherwise records that the test is skipped.
pub(crate) fn has_huge_pages() -> bool {
    let size = chosen("hugepages-2048kB/enabled");
    let mode = if matches!(size.as_str(), "absent" | "inherit") { chosen("enabled") } else { size };
    let has = matches!(mode.as_str(), "always" | "madvise");
    if !has {
        colony_testing::skip(format!("{SYSFS}/enabled is `{mode}`"));
    }
    has
}

/// Returns `true` if MPI and `colony-bench` are here; otherwise records why the test is skipped.
pub(crate) fn has_mpi() -> bool {
    let missing = if !program().with_file_name("colony-bench").exists() {
        "colony-bench is not built (cargo build -p colony-bench --features mpi)"
    } else if std::process::Command::new("mpirun").arg("--version").output().is_err() {
        "there is no mpirun here"
    } else {
        return true;
    };
    colony_testing::skip(missing);
    false
}

/// A copy of the command that everybody may run, in a folder that everybody may write to.
pub(crate) struct Public(tempfile::TempDir);

impl Public {
    /// `None`, with the reason printed, where there is no other user to be.
    pub(crate) fn new() -> Option<Self> {
        use std::os::unix::fs::PermissionsExt;
        if !is_root() || std::process::Command::new("setpriv").arg("--version").output().is_err() {
            colony_testing::skip("needs root and setpriv to be somebody else");
            return None;
        }
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("ours");
        for name in
            ["colony", "colony-bench"].map(|n| program().with_file_name(n)).iter().filter(|p| p.exists())
        {
            copy(name, &dir.path().join(name.file_name().expect("a name")));
        }
        Some(Self(dir))
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The command, run by nobody in that folder.
    pub(crate) fn colony(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(self.folder().join("colony")).current_dir(self.folder()).env("HOME", self.folder());
        command
    }
}

/// A process of this test: ended with it.
pub(crate) struct Owned(pub(crate) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `done`, 20 s at most: machines are under load.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}
