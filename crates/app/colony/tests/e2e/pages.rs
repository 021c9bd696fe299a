// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run --pages`: segments on large pages, nothing else changed, and debuggers that still find their names.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    Owned, Public, chosen, colony, error, has_huge_pages, is_plain, is_root, program, until,
};

const HUGE: u64 = 2 << 20;

/// The ways to link a program.
const KINDS: [&[&str]; 3] = [&["-pie"], &["-static-pie"], &["-static", "-no-pie"]];

/// The fixture, linked so.
fn fixture(folder: &Path, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures/segments.c");
    let path = folder.join(format!("segments{}", flags.concat()));
    let mut cc = Command::new("cc");
    // assembly stays between the functions it is written between
    cc.args(["-O1", "-g", "-fno-toplevel-reorder", "-o"]).arg(&path).arg(source).args(flags);
    let out = cc.output().expect("cc is there");
    assert!(out.status.success(), "{}", error(&out));
    path
}

/// `colony run --pages PAGES -- JOB`: output of the program, and the report.
fn run(pages: &str, job: &[&str]) -> (String, Value) {
    let args = ["run", "--backend", "none", "--json", "--pages", pages, "--"];
    let out = colony().args(args).args(job).output().expect("runs");
    assert!(out.status.success(), "{pages} {job:?}: {}", error(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    let (output, report) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    let report: Value = serde_json::from_str(report).expect("the report is the last line");
    remove_map(&report);
    (output.to_owned(), report)
}

/// Removes the names of functions that a run has left for `perf report`.
fn remove_map(report: &Value) {
    report["pages"]["perf_map"].as_str().into_iter().for_each(|map| std::fs::remove_file(map).expect("ours"));
}

/// Bytes of a segment in a report.
fn bytes(report: &Value, segment: &str, of: &str) -> u64 {
    let segments = report["pages"]["sample"]["segments"].as_array().expect("a sample");
    let found = segments.iter().find(|s| s["segment"] == segment).expect("every segment is there");
    found[of].as_u64().unwrap_or_else(|| panic!("{segment}: {of} is not seen: {found}"))
}

/// Runs the fixture longer and longer, until the report has seen all of its memory.
fn run_fixture(pages: &str, fixture: &Path) -> (String, Value) {
    for microseconds in ["100000", "500000", "2500000", "12500000", "60000000"] {
        let (output, report) = run(pages, &[fixture.to_str().expect("a path"), microseconds]);
        // the last memory that it touches
        if bytes(&report, "heap", "resident") >= 7 << 20 {
            return (output, report);
        }
    }
    panic!("no look at the memory of a program that ran for a minute");
}

#[test]
fn every_segment_of_a_dynamic_and_of_a_static_program_is_on_huge_pages() {
    if !has_huge_pages() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    for kind in KINDS {
        let fixture = fixture(folder.path(), kind);
        let alone = Command::new(&fixture).output().expect("runs");
        let (output, report) = run_fixture("huge", &fixture);
        assert_eq!(output, String::from_utf8_lossy(&alone.stdout).trim_end(), "{kind:?}: other results");
        let warnings = report["pages"]["warnings"].as_array().expect("a list");
        // other programs of a busy node may find no large page
        let of_others = |w: &Value| w.as_str().is_some_and(|w| w.contains("ran out on this node"));
        assert!(warnings.iter().all(of_others), "{kind:?}: {report}");
        // two less than fit, since a segment begins and ends anywhere
        for (segment, pages) in [("text", 2), ("data", 2), ("bss", 3), ("heap", 2), ("stack", 1)] {
            let huge = bytes(&report, segment, "huge");
            assert!(huge >= pages * HUGE, "{kind:?}: {segment} has {huge} bytes on huge pages: {report}");
        }
        let (output, report) = run_fixture("base", &fixture);
        assert_eq!(output, String::from_utf8_lossy(&alone.stdout).trim_end(), "{kind:?}: other results");
        for segment in ["text", "data", "bss", "heap", "stack", "mmap"] {
            assert_eq!(bytes(&report, segment, "huge"), 0, "{kind:?}: {segment}");
        }
    }
}

#[test]
fn pages_of_64_kib_come_where_the_node_has_them_and_a_warning_else() {
    let folder = tempfile::tempdir().expect("temp dir");
    let fixture = fixture(folder.path(), KINDS[0]);
    let (_, report) = run_fixture("64k", &fixture);
    let size = chosen("hugepages-64kB/enabled");
    let mode = if size == "inherit" { chosen("enabled") } else { size };
    let warnings = report["pages"]["warnings"].to_string();
    match mode.as_str() {
        "always" | "madvise" if nix::unistd::geteuid().is_root() => {
            let large = |segment| bytes(&report, segment, "medium") + bytes(&report, segment, "huge");
            assert!(large("bss") >= 4 << 20, "{report}");
        }
        "always" | "madvise" => colony_testing::skip("pages of 64 KiB are seen by root alone"),
        "never" => assert!(warnings.contains("hugepages-64kB/enabled"), "{report}"),
        _ => assert!(warnings.contains("Linux 6.8") || warnings.contains("no transparent"), "{report}"),
    }
}

#[test]
fn a_program_keeps_its_signals_its_exit_code_and_its_environment() {
    for pages in ["huge", "64k", "base"] {
        for (script, code) in [("exit 7", 7), ("kill -TERM $$", 128 + 15), ("kill -9 $$", 128 + 9)] {
            let args = ["run", "--backend", "none", "--pages", pages, "--", "sh", "-c", script];
            let out = colony().args(args).output().expect("runs");
            assert_eq!(out.status.code(), Some(code), "{pages} {script}: {}", error(&out));
            is_plain(&error(&out));
        }
        let signals = ["grep", "-E", "^(SigBlk|SigIgn|TracerPid)", "/proc/self/status"];
        let alone = Command::new(signals[0]).args(&signals[1..]).output().expect("runs");
        let (under, _) = run(pages, &signals);
        assert_eq!(under, String::from_utf8_lossy(&alone.stdout).trim_end(), "{pages}");
    }
    let (enabled, _) = run("base", &["grep", "THP_enabled", "/proc/self/status"]);
    assert!(enabled.ends_with('0'), "{enabled}");
    let args =
        ["run", "--backend", "none", "--json", "--pages", "huge", "--", "sh", "-c", "echo $GLIBC_TUNABLES"];
    let out = colony().args(args).env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1").output().expect("runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.starts_with("glibc.malloc.arena_max=1"), "{text}");
}

#[test]
fn a_program_that_cannot_be_stopped_runs_with_a_warning() {
    let args = ["-f", "-qq", "-o", "/dev/null"];
    let mut run = Command::new("strace");
    run.args(args).arg(program()).args([
        "run",
        "--backend",
        "none",
        "--json",
        "--pages",
        "huge",
        "--",
        "true",
    ]);
    let Ok(out) = run.output() else { return colony_testing::skip("there is no strace") };
    assert!(out.status.success(), "{}", error(&out));
    let report: Value = serde_json::from_slice(&out.stdout).expect("one document");
    assert!(report["pages"]["warnings"][0].as_str().is_some_and(|w| w.contains("tracer")), "{report}");
}

#[test]
fn a_user_without_privileges_has_huge_pages_and_is_told_what_is_not_seen() {
    let Some(public) = Public::new() else { return };
    if !has_huge_pages() {
        return;
    }
    let fixture = fixture(public.folder(), KINDS[0]);
    let mut run = public.colony();
    run.args(["run", "--backend", "none", "--pages", "huge", "--out", "report.json", "--"]);
    let out = run.arg(fixture).arg("1000000").output().expect("runs");
    assert!(out.status.success(), "{}", error(&out));
    is_plain(&error(&out));
    let kept = std::fs::read(public.folder().join("report.json")).expect("kept");
    let report: Value = serde_json::from_slice(&kept).expect("JSON");
    remove_map(&report);
    assert!(bytes(&report, "text", "huge") >= 2 * HUGE, "{report}");
    let segments = report["pages"]["sample"]["segments"].as_array().expect("a sample");
    let text = segments.iter().find(|s| s["segment"] == "text").expect("there");
    assert_eq!(text["medium"], Value::Null, "{report}");
    assert!(error(&out).contains("not seen"), "{}", error(&out));
}

/// A running fixture on huge pages.
struct Running {
    _colony: Owned,
    pid: i32,
}

impl Running {
    fn start(fixture: &Path) -> Self {
        let mut run = Command::new(program());
        run.args(["run", "--backend", "none", "--pages", "huge", "--"]).arg(fixture).arg("600000000");
        let colony = Owned(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
        let parent = colony.0.id().cast_signed();
        let found = || {
            let mut children = colony_node::task::children(parent).into_iter();
            children
                .find(|&pid| colony_node::task::name(pid).is_some_and(|name| name.starts_with("segments")))
        };
        until("the program", || found().is_some_and(is_at_work));
        Self { pid: found().expect("it runs"), _colony: colony }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", self.pid));
    }
}

/// Its own time shows that it has got past its preparations, and that nobody stops it.
fn is_at_work(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(11)?.parse::<u64>().ok());
    ticks.is_some_and(|ticks| ticks > 20)
}

fn gdb(commands: &[&str], more: &[&str]) -> Option<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set debuginfod enabled off"]);
    gdb.args(commands.iter().flat_map(|c| ["-ex", *c])).args(more).stdin(Stdio::null());
    let Ok(out) = gdb.output() else {
        colony_testing::skip("there is no gdb");
        return None;
    };
    Some(format!("{}{}", String::from_utf8_lossy(&out.stdout), error(&out)))
}

/// Checks that a debugger has named the functions of the fixture.
fn is_named(text: &str) {
    for part in
        ["inner_function (microseconds=", "middle_function (microseconds=", "main (argc=", "segments.c:"]
    {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn gdb_names_functions_and_stops_at_one_in_moved_text() {
    if !has_huge_pages() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    for kind in KINDS {
        let fixture = fixture(folder.path(), kind);
        let running = Running::start(&fixture);
        let pid = running.pid;
        let commands = [
            "bt",
            "print initialised_variable[0]",
            "break step_function",
            "continue",
            "info symbol inner_function",
        ];
        let Some(text) = gdb(&commands, &["-p", &pid.to_string()]) else { return };
        is_named(&text);
        assert!(text.contains("$1 = 42") && text.contains("Breakpoint 1, "), "{kind:?}: {text}");
        assert!(text.contains("inner_function in section .text"), "{kind:?}: {text}");
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it goes on");
        assert!(smaps.lines().any(|l| l.starts_with("AnonHugePages:") && !l.ends_with(" 0 kB")), "{smaps}");
    }
}

#[test]
fn core_dumps_name_functions_and_hold_variables() {
    if !has_huge_pages() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    for kind in KINDS {
        let fixture = fixture(folder.path(), kind);
        // the kernel's own dump, where it is written to the folder of the program
        let script = format!(
            "ulimit -c unlimited; exec '{}' run --backend none --pages huge --json -- '{}' 0 abort",
            program().display(),
            fixture.display()
        );
        let out = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("runs");
        assert_eq!(out.status.code(), Some(128 + 6), "{}", error(&out));
        remove_map(&serde_json::from_slice(&out.stdout).expect("one document"));
        let cores = std::fs::read_dir(folder.path()).expect("ours").filter_map(|e| Some(e.ok()?.path()));
        let core = cores
            .into_iter()
            .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("core")));
        let commands = ["bt", "print initialised_variable[0]", "print zero_variable[64]"];
        if let Some(core) = core {
            let files = [fixture.to_str().expect("a path"), core.to_str().expect("a path")];
            let Some(text) = gdb(&commands, &files) else { return };
            for part in ["main (argc=", "segments.c:", "$1 = 42", "$2 = 64"] {
                assert!(text.contains(part), "{kind:?}: `{part}` is not in: {text}");
            }
            std::fs::remove_file(core).expect("ours");
        } else {
            assert!(pattern.starts_with(['|', '/']), "{pattern}: no core in {:?}", folder.path());
        }
        // that of the debugger
        let running = Running::start(&fixture);
        let pid = running.pid;
        let core = folder.path().join("gdb.dump");
        let write = format!("generate-core-file {}", core.display());
        let Some(_) = gdb(&[&write], &["-p", &pid.to_string()]) else { return };
        let files = [fixture.to_str().expect("a path"), core.to_str().expect("a path")];
        let Some(text) = gdb(&commands, &files) else { return };
        is_named(&text);
        assert!(text.contains("$1 = 42") && text.contains("$2 = 64"), "{kind:?}: {text}");
    }
}

fn perf(args: &[&str], folder: &Path) -> Option<Output> {
    let out = Command::new("perf").args(args).current_dir(folder).stdin(Stdio::null()).output();
    match out {
        Ok(out) if out.status.success() => return Some(out),
        // perf without Colony shows whether it is this machine that refuses
        Ok(out) if !may_count() => colony_testing::skip(format!("perf cannot count here: {}", error(&out))),
        Ok(out) => panic!("perf {args:?}: {}", error(&out)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => colony_testing::skip("there is no perf"),
        Err(e) => panic!("perf does not start: {e}"),
    }
    None
}

/// Returns `true` if perf counts the processor time of a program that is not Colony's.
fn may_count() -> bool {
    Command::new("perf")
        .args(["stat", "-e", "cpu-clock", "true"])
        .output()
        .is_ok_and(|out| out.status.success())
}

/// The shares of functions in `perf.data`.
fn shares(folder: &Path) -> String {
    let args = ["report", "--stdio", "--sort", "sym", "-i", "perf.data"];
    perf(&args, folder).map_or_else(String::new, |out| String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn perf_names_functions_in_moved_text() {
    if !is_root() || !has_huge_pages() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    for kind in KINDS {
        let fixture = fixture(folder.path(), kind);
        // from before the start
        let record = ["record", "-q", "-e", "cpu-clock", "-o", "perf.data", "--"];
        let command = [
            program().to_str().expect("a path"),
            "run",
            "--backend",
            "none",
            "--pages",
            "huge",
            "--json",
            "--",
        ]
        .map(str::to_owned);
        let job = [fixture.to_str().expect("a path").to_owned(), "300000".into()];
        let words: Vec<String> = record.iter().map(|&w| w.to_owned()).chain(command).chain(job).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some(out) = perf(&words, folder.path()) else { return };
        let shown = shares(folder.path());
        assert!(shown.contains("[.] step_function"), "{kind:?}: {shown}");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let report: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("the report");
        let map = report["pages"]["perf_map"].as_str().expect("text was moved");
        assert!(std::fs::read_to_string(map).expect("there").contains(" step_function\n"), "{map}");
        remove_map(&report);
        // while it runs
        let running = Running::start(&fixture);
        let pid = running.pid;
        let pid_word = pid.to_string();
        let attach =
            ["record", "-q", "-e", "cpu-clock", "-o", "perf.data", "-p", &pid_word, "--", "sleep", "0.3"];
        let Some(_) = perf(&attach, folder.path()) else { return };
        let shown = shares(folder.path());
        assert!(shown.contains("[.] step_function"), "{kind:?}: {shown}");
    }
}

#[test]
fn the_report_shows_segments_by_page_size() {
    let out = colony().args(["run", "--backend", "none", "--pages", "base", "--", "sleep", "0.2"]).output();
    let out = out.expect("runs");
    let text = error(&out);
    is_plain(&text);
    for part in ["pages: base", "on large pages", "stack", "page faults:", "dTLB load misses:"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
