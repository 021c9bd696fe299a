// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: random numbers of a seed, locks of the machine, and skipped tests, each of which is recorded and fails in
//! continuous integration unless `skips.txt` names it.
//!
//! A test that cannot run on a machine calls [`skip`] and returns. `./x test` names the file of records in
//! [`RECORDS`] and lists it at its end.

pub mod browser;
pub mod machine;
mod random;

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

pub use random::Random;

/// The environment variable with the path of the file that [`skip`] appends to. Unset: nothing is recorded.
pub const RECORDS: &str = "COLONY_SKIPS";

/// The tests that continuous integration may skip: `NAME REASON` a line, `#` for comments.
const LISTED: &str = include_str!("../skips.txt");

/// Returns `true` if nothing is at `path`. A mount whose server has died is still there (`ENOTCONN`), which
/// `!path.exists()` does not tell.
#[must_use]
pub fn is_gone(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// Records that the calling test, or a part of it, is skipped. The caller then returns.
///
/// Call it on the test's own thread: its name is the test's.
///
/// # Panics
/// If the variable `CI` is set and `skips.txt` does not list the test, or if the record cannot be written.
#[track_caller]
pub fn skip(reason: impl Display) {
    let name = test_name();
    let reason = reason.to_string();
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("skipped: {reason}");
    if let Some(file) = std::env::var_os(RECORDS) {
        record(Path::new(&file), &name, &reason);
    }
    let ci = std::env::var("CI").is_ok_and(|v| !v.is_empty() && v != "false");
    assert!(
        !ci || listed(LISTED, &name).is_some(),
        "{name} is skipped, and CI is set: {reason}. Provide what is missing, \
         or list the test with a reason in crates/testbed/testing/skips.txt"
    );
}

/// The program and the test of this thread, as `e2e::run::a_test`. A test without a thread of its own
/// (`--test-threads=1`) is named by the line that skips it.
#[track_caller]
fn test_name() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_stem).map(|s| s.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    // cargo names the file `PROGRAM-HASH`
    let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
    let thread = std::thread::current();
    match thread.name().filter(|&n| n != "main") {
        Some(test) => format!("{program}::{test}"),
        None => {
            let place = std::panic::Location::caller();
            format!("{program}::{}:{}", place.file(), place.line())
        }
    }
}

/// Appends a line in one write: tests of several programs record at the same time.
fn record(file: &Path, name: &str, reason: &str) {
    let line = format!("{name} {reason}\n");
    let mut options = std::fs::OpenOptions::new();
    let written = options.append(true).create(true).open(file).and_then(|mut f| f.write_all(line.as_bytes()));
    assert!(written.is_ok(), "{name} is skipped, and {} cannot be written: {written:?}", file.display());
}

/// The reason listed for a test.
fn listed<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let lines = list.lines().filter(|l| !l.starts_with('#'));
    let mut entries = lines.filter_map(|l| l.split_once(' '));
    entries.find(|(listed, _)| *listed == name).map(|(_, reason)| reason.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    #[test]
    #[ignore = "run by the test below"]
    fn skips() {
        skip("no\nmoon");
    }

    /// Runs the test above in a process of its own.
    fn skipping(ci: Option<&str>, records: &Path) -> Output {
        let mut test = Command::new(std::env::current_exe().expect("linux"));
        test.args(["--exact", "--ignored", "tests::skips"]).env(RECORDS, records);
        // this run's own setting, and the one thread of an outer `--test-threads=1`
        test.env_remove("CI").env_remove("RUST_TEST_THREADS").arg("--test-threads=2");
        test.envs(ci.map(|value| ("CI", value))).output().expect("this test")
    }

    #[test]
    fn a_skip_is_recorded_and_fails_in_continuous_integration_only() {
        let folder = tempfile::tempdir().expect("temp dir");
        let records = folder.path().join("records");
        for (ci, passes) in [(None, true), (Some(""), true), (Some("false"), true), (Some("true"), false)] {
            let out = skipping(ci, &records);
            assert_eq!(out.status.success(), passes, "{ci:?}: {out:?}");
        }
        let text = std::fs::read_to_string(&records).expect("written");
        assert_eq!(text, "colony_testing::tests::skips no moon\n".repeat(4));
        let out = skipping(None, &folder.path().join("absent/records"));
        assert!(!out.status.success(), "a skip that is not recorded is no skip: {out:?}");
    }

    #[test]
    fn a_listed_test_may_be_skipped_for_the_reason_given() {
        let list = "# a::b no\na::b because of it\na::c  two words\n";
        assert_eq!(listed(list, "a::b"), Some("because of it"));
        assert_eq!(listed(list, "a::c"), Some("two words"));
        assert_eq!((listed(list, "a"), listed(list, "#")), (None, None));
    }

    #[test]
    fn every_line_of_the_list_has_a_name_and_a_reason() {
        for line in LISTED.lines().filter(|l| !l.starts_with('#')) {
            let (name, reason) = line.split_once(' ').unwrap_or((line, ""));
            assert!(name.contains("::") && !reason.trim().is_empty(), "skips.txt: `{line}` gives no reason");
        }
    }
}
