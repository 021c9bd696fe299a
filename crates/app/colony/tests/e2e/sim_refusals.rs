// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim`, `noise fit`, `study` and `doctor` refuse what would be ignored, twice the same, or misleading.

use std::io::Read as _;
use std::process::Stdio;

use crate::common::{colony, error, fails, program, text};

#[test]
fn a_value_that_is_named_twice_is_refused() {
    for (args, part) in [
        (&["--schedulers", "none,none"][..], "--schedulers names none twice"),
        (&["--nodes", "4,8,4"], "--nodes names 4 twice"),
        (&["--sweep", "seed=1,1"], "--sweep seed names 1 twice"),
        (&["--sweep", "nodes=4,8"], "--nodes 4,8"),
        (&["--noise", "1us every 1ms", "--schedulers", "none"], "--noise has no effect"),
    ] {
        fails(&[&["sim"], args].concat(), 2, part);
    }
}

#[test]
fn options_replace_values_of_a_file_before_the_scenario_is_checked() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("hardware.toml");
    let scenario = "nodes = [8]\nrepetitions = 2\n\n[program]\nname = \"barrier\"\nalgorithm = \"hardware\"\niterations = 10\n";
    std::fs::write(&path, scenario).expect("written");
    let file = path.to_str().expect("plain");
    // the default machine has no collective network: the error has the file's line and a remedy
    fails(&["sim", file], 2, "hardware.toml:6");
    fails(&["sim", file], 2, "leave `algorithm` out");
    assert!(text(&["sim", file, "--machine", "bgl"]).contains("bgl"));
}

#[test]
fn a_page_is_html_and_its_name_says_so() {
    fails(&["sim", "--nodes", "2", "--report", "x.pdf"], 2, "let the name end in .html");
    fails(&["study", "cycles", "--report", "x.pdf"], 2, "let the name end in .html");
}

#[test]
fn options_without_effect_on_an_experiment_are_refused() {
    for (args, part) in [
        (&["cycles", "--faster", "10"][..], "--faster has no effect on cycles"),
        (&["fig3", "--duty", "50%"], "--duty has no effect on fig3"),
        (&["cycles", "--nodes", "4"], "--nodes"),
        (&["cycles", "--out", "x"], "--out"),
        (&["--list", "--seed", "3"], "--seed"),
    ] {
        fails(&[&["study"], args].concat(), 2, part);
    }
    fails(&["doctor", "--no-trace", "--nodes", "5"], 2, "--nodes");
}

/// A trace of one CPU with these detours, begin and length in nanoseconds.
fn trace(dir: &tempfile::TempDir, name: &str, detours: &[(u64, u64, &str)]) -> String {
    let mut text = "# observed_s: 10\n# cpus: 0\ncpu,start_ns,duration_ns,source\n".to_owned();
    for (start_ns, length_ns, source) in detours {
        text += &format!("0,{start_ns},{length_ns},{source}\n");
    }
    let path = dir.path().join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("plain").to_owned()
}

#[test]
fn a_trace_without_detours_costs_nothing_that_could_be_known() {
    let dir = tempfile::tempdir().expect("temp dir");
    let none = trace(&dir, "none.csv", &[]);
    fails(&["sim", "--what-if", &none], 2, "holds no detour");
    fails(&["sim", "--what-if", &none, "--choose"], 2, "holds no detour");
    let shown = text(&["noise", "diff", &none, &none]);
    let longest = shown.lines().find(|line| line.starts_with("longest")).expect("a row");
    assert!(!longest.contains("0 ns") && longest.contains('–'), "{shown}");
    // nearly all of a second: a program would hardly ever run
    let full = trace(&dir, "full.csv", &[(0, 9_999_999_999, "thread:hog")]);
    fails(&["sim", "--what-if", &full], 2, "CPU number 0");
}

#[test]
fn sources_that_are_too_rare_for_a_model_are_named_in_the_scenario() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut detours: Vec<(u64, u64, &str)> =
        (0..400).map(|n| (n * 25_000_000, 50_000 + n % 7 * 1000, "thread:daemon")).collect();
    detours.extend([(1_000_000_000, 900_000, "thread:rare"), (7_001_000_000, 900_000, "thread:rare")]);
    detours.sort_unstable();
    let both = trace(&dir, "both.csv", &detours);
    let out = colony().args(["noise", "fit", &both, "--toml"]).output().expect("runs");
    let scenario = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && scenario.starts_with("# thread:rare ("), "{scenario}");
    assert!(error(&out).contains("thread:rare"), "{}", error(&out));
    let path = dir.path().join("fitted.toml");
    std::fs::write(&path, scenario).expect("written");
    assert!(text(&["sim", path.to_str().expect("plain"), "--nodes", "4"]).contains("preempt"));
    let rare = trace(&dir, "rare.csv", &[(1_000_000_000, 900_000, "thread:rare")]);
    fails(&["noise", "fit", &rare, "--toml"], 2, "--what-if");
}

#[test]
fn a_reader_that_has_enough_of_json_is_no_error() {
    let dir = tempfile::tempdir().expect("temp dir");
    let detours: Vec<(u64, u64, &str)> = (0..20_000).map(|n| (n * 400_000, 1_000 + n, "irq:timer")).collect();
    let many = trace(&dir, "many.csv", &detours);
    let mut command = std::process::Command::new(program());
    command.args(["noise", "fit", &many, "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("runs");
    // closed before anything is written
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("ends").success() && said.is_empty(), "{said}");
}
