// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries of a program on huge pages, whatever their constructors do before the program's entry point.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use colony_pages::{Launch, Mode, PagePolicy, PagesReport, Segment, Support};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

const HUGE: u64 = 2 << 20;

/// The library and a program that calls it.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temp dir");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let cc = |args: &[&str], out: &str, source: &str| {
            let mut cc = Command::new("cc");
            // assembly stays between the functions it is written between
            cc.args(["-O1", "-g", "-fno-toplevel-reorder", "-o"]).arg(folder.path().join(out));
            let done = cc.arg(sources.join(source)).args(args).output().expect("cc is there");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        cc(&["-shared", "-fPIC", "-pthread"], "liblibrary.so", "library.c");
        let path = format!("-L{0} -Wl,-rpath,{0} -llibrary", folder.path().display());
        cc(&path.split(' ').collect::<Vec<_>>(), "caller", "caller.c");
        Self { folder }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("caller")
    }

    /// The program with a constructor, and its arguments.
    fn command(&self, constructor: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        match constructor {
            Some(what) => command.env("CONSTRUCTOR", what),
            None => command.env_remove("CONSTRUCTOR"),
        };
        command
    }

    /// Output and status of the program alone.
    fn alone(&self, constructor: Option<&str>, arguments: &[&str]) -> (String, ExitStatus) {
        let out = self.command(constructor, arguments).output().expect("runs");
        (String::from_utf8(out.stdout).expect("text"), out.status)
    }

    /// Output, status and report of the program on huge pages, at its entry point in time: a busy machine may need another try.
    fn run(&self, constructor: Option<&str>, arguments: &[&str]) -> (String, ExitStatus, PagesReport) {
        let mut tries = (0..50).map(|_| self.run_once(constructor, arguments));
        tries.find(|(_, _, report)| !is_late(report)).expect("in time, of fifty tries")
    }

    fn run_once(&self, constructor: Option<&str>, arguments: &[&str]) -> (String, ExitStatus, PagesReport) {
        let (child, launch) = start(self.command(constructor, arguments), PagePolicy::Huge);
        let pid = child.id().cast_signed();
        let watch = launch.watch(move || vec![pid]);
        let out = child.wait_with_output().expect("ends");
        let report = watch.finish();
        report.perf_map.iter().for_each(|map| std::fs::remove_file(map).expect("ours"));
        (String::from_utf8(out.stdout).expect("text"), out.status, report)
    }
}

fn start(mut command: Command, policy: PagePolicy) -> (Child, Launch) {
    let mask = SigSet::thread_get_mask().expect("a mask");
    let mask = mask.iter().fold(0, |bits, signal| bits | 1 << (signal as i32 - 1));
    let mut launch = Launch::new(policy);
    launch.prepare(&mut command, mask);
    let child = command.spawn().expect("starts");
    launch.place(child.id().cast_signed());
    (child, launch)
}

fn is_late(report: &PagesReport) -> bool {
    report.warnings.iter().any(|w| w.contains("within a second"))
}

fn has_huge_pages() -> bool {
    let has = matches!(Support::here().huge_mode(), Mode::Always | Mode::Madvise);
    if !has {
        colony_testing::skip("huge pages are off on this node");
    }
    has
}

/// Pieces of libraries that were put on large pages.
fn moved(report: &PagesReport) -> usize {
    report.moved.iter().filter(|m| m.segment == Segment::Libraries).count()
}

#[test]
fn code_variables_and_zero_variables_of_a_library_are_on_huge_pages() {
    if !has_huge_pages() {
        return;
    }
    let fixture = Fixture::new();
    for microseconds in ["200000", "1000000", "5000000", "25000000"] {
        let (output, status, report) = fixture.run(None, &[microseconds]);
        assert!(status.success() && output == fixture.alone(None, &["0"]).0, "{output}");
        // other programs of a busy node may find no large page
        assert!(report.warnings.iter().all(|w| w.contains("ran out on this node")), "{report:?}");
        assert_eq!(moved(&report), 2, "code and data: {report:?}");
        let sample = report.sample.as_ref().expect("the first look at least");
        let libraries = sample.of(Segment::Libraries).expect("every segment is there");
        let zero = sample.of(Segment::Mmap).expect("every segment is there");
        assert!(libraries.huge >= 4 * HUGE, "{report:?}");
        // the program has touched its zero variables by then
        if zero.huge + libraries.huge >= 7 * HUGE {
            return;
        }
    }
    panic!("no look at the memory of a program that ran for 25 s");
}

#[test]
fn constructors_do_what_they_do_without_large_pages() {
    let fixture = Fixture::new();
    for what in ["fork", "system", "signals", "exec", "exit", "crash", "thread"] {
        let (output, status) = fixture.alone(Some(what), &["0"]);
        let (on_huge, ended, report) = fixture.run(Some(what), &["0"]);
        assert_eq!((on_huge, ended), (output, status), "{what}: {report:?}");
        let is_moved = matches!(what, "fork" | "system" | "signals") && has_huge_pages();
        assert_eq!(moved(&report) > 0, is_moved, "{what}: {report:?}");
        let warned = report.warnings.iter().any(|w| w.starts_with("libraries are as the kernel made them"));
        assert_eq!(warned, matches!(what, "exec" | "thread"), "{what}: {report:?}");
    }
}

#[test]
fn a_program_that_is_late_or_stopped_before_its_entry_point_is_let_go() {
    let fixture = Fixture::new();
    let (output, _) = fixture.alone(Some("fork"), &["0"]);
    let (late, status, report) = fixture.run_once(Some("sleep"), &["0"]);
    assert_eq!(late, output, "{status:?}");
    assert!(is_late(&report), "{report:?}");

    let (child, launch) = start(fixture.command(Some("stop"), &["0"]), PagePolicy::Huge);
    let pid = Pid::from_raw(child.id().cast_signed());
    until("it is stopped, by nobody's debugger", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("State:\tT (stopped)") && status.contains("TracerPid:\t0\n")
    });
    kill(pid, Signal::SIGCONT).expect("ours");
    let out = child.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&out.stdout), output);
    drop(launch);
}

#[test]
fn a_signal_before_the_entry_point_ends_the_program_as_it_always_does() {
    let fixture = Fixture::new();
    let mut command = fixture.command(Some("wait"), &["0"]);
    let killer = std::thread::spawn(|| {
        // it has blocked no signal by then, and is not at its entry point
        until("a constructor sleeps", || asleep("caller").is_some());
        asleep("caller").map(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM))
    });
    command.arg0("caller-to-be-ended");
    let (mut child, launch) = start(command, PagePolicy::Huge);
    let status = child.wait().expect("ends");
    killer.join().expect("no panic");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status:?}");
    drop(launch);
}

/// The child of this process that sleeps in a constructor.
fn asleep(name: &str) -> Option<i32> {
    let me = std::process::id();
    let numbers = std::fs::read_dir("/proc").ok()?.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|pid: &i32| {
        let text = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let stat = text("stat");
        let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
        let fields: Vec<&str> = rest.split(' ').collect();
        fields.first() == Some(&"S")
            && fields.get(1).and_then(|p| p.parse().ok()) == Some(me)
            && text("cmdline").starts_with("caller-to-be-ended")
            && stat.contains(name)
    })
}

#[test]
fn debuggers_and_perf_name_the_functions_of_a_moved_library() {
    if !has_huge_pages() {
        return;
    }
    let fixture = Fixture::new();
    let mut command = fixture.command(None, &["600000000"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (child, launch) = start(command, PagePolicy::Huge);
    let mut child = Killed(child);
    let pid = child.0.id();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = move || stat().rsplit(')').next()?.split_whitespace().nth(11)?.parse::<u64>().ok();
    until("the library's function", || ticks().is_some_and(|t| t > 20));
    let core = fixture.folder.path().join("core");
    let write = format!("generate-core-file {}", core.display());
    let show = ["bt", "info symbol library_function", "print library_variable[0]"];
    let gdb = |commands: &[&str], more: &[&str]| {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-q", "-batch", "-ex", "set debuginfod enabled off"]);
        gdb.args(commands.iter().flat_map(|c| ["-ex", *c])).args(more).stdin(Stdio::null());
        let out = gdb.output().ok()?;
        let (text, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        Some(format!("{text}{error}"))
    };
    let commands: Vec<&str> = show.iter().copied().chain([write.as_str()]).collect();
    let Some(text) = gdb(&commands, &["-p", &pid.to_string()]) else {
        return colony_testing::skip("there is no gdb");
    };
    let program = fixture.program();
    let files = [program.to_str().expect("a path"), core.to_str().expect("a path")];
    let of_core = gdb(&show, &files).expect("gdb is there");
    for text in [text, of_core] {
        for part in ["library_function (microseconds=", "main (argc=", "library.c:", "$1 = 42 '*'"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }
    child.0.kill().expect("ours");
    child.0.wait().expect("ends");
    let report = launch.watch(Vec::new).finish();
    let map = report.perf_map.expect("code was moved");
    let names = std::fs::read_to_string(&map).expect("written");
    std::fs::remove_file(map).expect("ours");
    assert!(names.contains(" library_function\n"), "{names}");
}

/// A child that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(120), "waiting in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
