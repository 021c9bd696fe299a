// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony measure --out` and `colony noise`: from a trace to every format and back; damaged files.

use std::path::{Path, PathBuf};

use crate::common::{alone, colony, failed, fails, is_root, json, last_cpu, text};

/// A folder with a trace in it, measured here.
fn measured() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = dir.path().join("node.parquet");
    let _alone = alone();
    text(&["measure", "--duration", "400ms", "--cpus", &last_cpu(), "--out", str(&trace)]);
    (dir, trace)
}

fn str(path: &Path) -> &str {
    path.to_str().expect("plain")
}

fn detours(file: &Path) -> (u64, u64) {
    let shown = json(&["noise", "show", "--json", str(file)]);
    assert_eq!(shown["schema"], "colony.noise.show/1");
    let total = &shown["summary"]["total"];
    (total["count"].as_u64().expect("a count"), total["stolen_ns"].as_u64().expect("a time"))
}

#[test]
fn a_figure_that_is_not_known_is_null_in_json() {
    let dir = tempfile::tempdir().expect("temp dir");
    let csv = dir.path().join("quiet.csv");
    std::fs::write(&csv, "# cpus: 0-1\n# observed_s: 1\ncpu,start_ns,duration_ns\n0,5,7\n").expect("written");
    let shown = json(&["noise", "show", "--json", str(&csv)]);
    let quiet = &shown["summary"]["lanes"][1];
    assert_eq!(
        (quiet["cpu"].as_u64(), quiet["count"].as_u64(), quiet["per_s"].as_f64()),
        (Some(1), Some(0), Some(0.0))
    );
    for field in ["min_ns", "p50_ns", "p99_ns", "max_ns"] {
        assert!(quiet[field].is_null(), "{field}: {quiet}");
    }
    for field in ["tsc_hz", "smallest_loop_ns"] {
        assert!(shown["meta"][field].is_null(), "{field}: {}", shown["meta"]);
    }
    assert_eq!(shown["periodic"].as_array().map(Vec::len), Some(0), "looked for, and not found");
    let histogram = dir.path().join("histogram.txt");
    let text = "# RTLA osnoise histogram\n# Duration:   0 00:01:00\nIndex   CPU-000\n0 5\nmax: 1\n";
    std::fs::write(&histogram, text).expect("written");
    assert!(json(&["noise", "show", "--json", str(&histogram)])["periodic"].is_null());
}

#[test]
fn a_trace_goes_through_every_format_and_back_without_losing_a_detour() {
    let (dir, trace) = measured();
    let whole = detours(&trace);
    assert!(whole.0 > 0, "a tick at least");
    for (format, name) in
        [("csv", "a.csv"), ("netgauge", "a.txt"), ("osnoise", "a.osnoise"), ("chrome", "a.json")]
    {
        let there = dir.path().join(name);
        let back = dir.path().join(format!("{format}.parquet"));
        text(&["noise", "convert", str(&trace), str(&there), "--to", format]);
        text(&["noise", "convert", str(&there), str(&back), "--from", format]);
        let found = detours(&back);
        assert_eq!(found.0, whole.0, "{format}");
        // another tool's text may round to its own unit
        assert!(found.1.abs_diff(whole.1) <= whole.0 * 1000, "{format}: {found:?} of {whole:?}");
        text(&["noise", "show", str(&there)]);
        text(&["noise", "diff", str(&trace), str(&there)]);
    }
    let log = dir.path().join("a.hlog");
    text(&["noise", "convert", str(&trace), str(&log)]);
    fails(&["noise", "show", str(&log)], 2, "convert the original trace");
}

#[test]
fn nodes_of_one_trace_are_not_simulated_as_one() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = |name: &str| dir.path().join(name);
    let both = file("both.csv");
    let mut rows = String::from("# observed_s: 1\n# cpus: 0-1\nnode,cpu,start_ns,duration_ns,source\n");
    for i in 0..50 {
        // node 3 has what node 0 has, a hundred times as long
        rows += &format!("0,0,{},1000,nmi\n3,1,{},100000,nmi\n", i * 20_000_000, i * 20_000_000 + 10_000_000);
    }
    std::fs::write(&both, rows).expect("written");
    assert!(text(&["noise", "show", str(&both)]).starts_with("4 CPUs of 2 nodes for 1.00 s"));
    let sim = ["--nodes", "4", "--op", "barrier", "--work", "10ms", "--iterations", "50", "--json"];
    for ask in [&["sim", "--trace"][..], &["sim", "--what-if"], &["noise", "fit"]] {
        let all: Vec<&str> = ask.iter().copied().chain([str(&both)]).collect();
        fails(&all, 2, "holds 2 nodes (0, 3)");
    }
    let stolen = ["0", "3"].map(|node| {
        let one = file(&format!("{node}.csv"));
        text(&["noise", "convert", str(&both), str(&one), "--node", node]);
        detours(&one)
    });
    assert_eq!(stolen, [(50, 50_000), (50, 5_000_000)]);
    let [first, second] = [file("0.csv"), file("3.csv")];
    let traces = ["sim", "--trace", str(&first), "--trace", str(&second)];
    let all: Vec<&str> = traces.iter().chain(&sim).copied().collect();
    assert_eq!(json(&all)["traces"].as_array().map(Vec::len), Some(2));
    fails(&["noise", "convert", str(&both), str(&first), "--node", "1"], 2, "it has nodes 0, 3");
}

#[test]
fn a_trace_does_not_differ_from_itself() {
    let (_dir, trace) = measured();
    let d = json(&["noise", "diff", str(&trace), str(&trace), "--json"]);
    let changes = d["changes"].as_array().expect("a list");
    assert!(changes.len() >= 5 && changes.iter().all(|c| c["verdict"] == "no_difference_shown"), "{d}");
}

#[test]
fn the_windows_split_what_was_stolen() {
    let (_dir, trace) = measured();
    let shown = json(&["noise", "show", str(&trace), "--period", "100ms", "--duty", "80%", "--json"]);
    let split = &shown["summary"]["windows"];
    let sum = ["favored", "regular"].map(|w| split[w]["stolen_ns"].as_u64().expect("a time"));
    assert_eq!(Some(sum[0] + sum[1]), shown["summary"]["total"]["stolen_ns"].as_u64());
    text(&["noise", "show", str(&trace), "--period", "100ms", "--duty", "80%"]);
}

#[test]
fn damaged_and_foreign_files_are_explained() {
    let (dir, trace) = measured();
    let whole = std::fs::read(&trace).expect("there");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let mut flipped = whole.clone();
    flipped.iter_mut().skip(100).step_by(211).for_each(|b| *b ^= 0xff);
    let length = whole.len();
    for (path, part) in [
        (file("half.parquet", &whole[..length / 2]), "cut off or damaged"),
        (file("end.parquet", &whole[..length - 5]), "cut off or damaged"),
        (file("head.parquet", &whole[..60]), "cut off or damaged"),
        (file("empty.parquet", b""), "the file is empty"),
        (file("flipped.parquet", &flipped), "flipped.parquet"),
        (file("lies.parquet", b"PAR1\0\0\0\0\xff\xff\xff\x7fPAR1"), "cut off or damaged"),
        (file("empty.csv", b""), "the file is empty"),
        (file("bytes.csv", &[0xff, 0xfe, 0x00, b'\n']), "UTF-8"),
        (file("evil.csv", b"\x1b[2Jnode,cpu\n1,2\n"), "the header must name"),
        (file("short.csv", b"node,cpu,start_ns,duration_ns,source\n0,0,1\n"), "line 2"),
        (file("plain", b"hello"), "nothing in it says what kind of file it is"),
        (dir.path().join("absent.parquet"), "No such file"),
        (dir.path().to_path_buf(), "directory"),
    ] {
        fails(&["noise", "show", str(&path)], 1, part);
        fails(&["noise", "diff", str(&trace), str(&path)], 1, part);
        fails(&["inject", "replay", "--trace", str(&path)], 1, part);
    }
}

#[test]
fn a_result_that_cannot_be_kept_is_told_before_the_measurement() {
    let dir = tempfile::tempdir().expect("temp dir");
    let absent = dir.path().join("absent/x.parquet");
    // a measurement of a day would be noticed
    for command in ["measure", "bench", "run"] {
        let out = ["--out", str(&absent)];
        let args: &[&str] = match command {
            "measure" => &["measure", "--duration", "24h", out[0], out[1]],
            "bench" => &["bench", "barrier", "--seconds", "9999", out[0], out[1]],
            _ => &["run", out[0], out[1], "--", "echo", "ran"],
        };
        fails(args, 1, "no file can be made in the folder");
    }
    fails(
        &["measure", "--duration", "24h", "--out", "x.bogus"],
        2,
        "its name does not say which format to write",
    );
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn a_device_is_written_to_and_stays_one() {
    use std::os::unix::fs::FileTypeExt;
    if !is_root() {
        return;
    }
    let (dir, trace) = measured();
    let full = dir.path().join("full");
    // a full device of our own: the one everybody uses is no place for a test
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
    let full_device = nix::sys::stat::makedev(1, 7);
    match nix::sys::stat::mknod(&full, nix::sys::stat::SFlag::S_IFCHR, mode, full_device) {
        Err(nix::Error::EPERM) => return colony_testing::skip("root may not make devices in this container"),
        made => made.expect("a device"),
    }
    let out = colony().args(["noise", "convert", "--to", "csv", str(&trace), str(&full)]).output();
    failed("convert to a full device", &out.expect("runs"), 1, "No space left");
    assert!(std::fs::metadata(&full).expect("there").file_type().is_char_device());
}

#[test]
fn a_reader_who_has_had_enough_is_no_error() {
    let (dir, trace) = measured();
    let script = r#""$0" noise convert "$1" "$2" --to csv & head -c 10 "$2" >/dev/null; wait $!"#;
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let out = std::process::Command::new("sh")
        .args(["-c", script])
        .args([crate::common::program(), trace, pipe])
        .output()
        .expect("runs");
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}

#[test]
fn wake_up_latencies_of_other_tools_are_shown_and_not_simulated() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("cyclictest.txt");
    let rows = "# Histogram\n000001 009900\n000002 000090\n000045 000010\n# Max Latencies: 00045\n";
    std::fs::write(&path, rows).expect("written");
    let shown = json(&["noise", "show", "--json", str(&path)]);
    assert_eq!((&shown["schema"], &shown["tool"]), (&"colony.noise.wakeups/1".into(), &"cyclictest".into()));
    assert_eq!(shown["rows"][0]["latencies"]["p999_ns"]["ns"], 2000);
    assert!(text(&["noise", "show", str(&path)]).contains("45.0 µs"));
    fails(&["noise", "show", str(&path), "--period", "1ms", "--duty", "50%"], 2, "how late threads woke up");
    fails(&["noise", "fit", str(&path)], 1, "`colony noise show` shows histograms of it");
}
