// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong use: one clear error, exit code 2 (1 where the words were right and the run failed).

use crate::common::{Public, colony, failed, fails, is_plain, last_cpu, text};

#[test]
fn unknown_flags_and_values_are_explained() {
    fails(&["measure", "--nonsense"], 2, "--nonsense");
    fails(&["measure", "--duration", "5"], 2, "use ns, us, ms, s, min or h");
    fails(&["measure", "--duration", "0"], 2, "1 ns to 24 h");
    fails(&["measure", "--duration", "1000h"], 2, "1 ns to 24 h");
    fails(&["measure", "--duration", "99999999999999999999s"], 2, "too large");
    fails(&["measure", "--threshold", "10ns"], 2, "the threshold is 10ns; it must be 50 ns or more");
    fails(&["measure", "--cpus", "3-1"], 2, "runs backwards");
    fails(&["measure", "--cpus", ""], 2, "names no CPU");
    fails(&["measure", "--cpus", "900"], 2, "no such CPU");
    fails(&["measure", "--fifo", "99", "--cpus", &last_cpu()], 2, "1 to 90");
    fails(&["measure", "--fifo", "300"], 2, "300");
    fails(&["measure", "--ring", "0"], 2, "ring");
    fails(&["measure", "--all-cpus"], 2, "--fifo");
    let all = colony_node::cpu::online().expect("linux").to_string();
    fails(&["measure", "--fifo", "10", "--cpus", &all], 2, "--all-cpus");
    fails(&["bogus"], 2, "bogus");
}

#[test]
fn a_failure_is_left_as_a_document_in_the_file_that_the_environment_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("failure.json");
    for (args, code, part) in [
        (&["noise", "show", "/no/such/trace"][..], 1, "/no/such/trace"),
        (&["inject", "leibniz", "--noise", "0%"], 2, "at most 95 %"),
    ] {
        let out = colony().args(args).env("COLONY_FAILURE", &file).output().expect("runs");
        failed(&format!("{args:?}"), &out, code, part);
        let document = std::fs::read(&file).expect("the file is there");
        let failure: serde_json::Value = serde_json::from_slice(&document).expect("JSON");
        assert_eq!((&failure["schema"], &failure["code"]), (&"colony.failure/1".into(), &code.into()));
        assert!(failure["error"].as_str().is_some_and(|e| e.contains(part)), "{failure}");
    }
    let nowhere = colony().args(["bogus-file.goal"]).env("COLONY_FAILURE", "/no/such/folder/file").output();
    assert_eq!(nowhere.expect("runs").status.code(), Some(2), "the exit code stays");
}

#[test]
fn noise_that_cannot_be_made_is_explained() {
    for (args, part) in [
        (&["leibniz", "--noise", "0%"][..], "at most 95 %"),
        (&["leibniz", "--noise", "nan"], "NaN %"),
        (&["leibniz", "--noise", "much"], "21% or 0.21"),
        (&["leibniz", "--noise", "2%", "--max-terms", "5"], "--max-terms"),
        (&["leibniz", "--max-terms", "0"], "choose 1 to"),
        (&["leibniz", "--duration", "0"], "choose a longer one"),
        (&["leibniz", "--cpus", "900"], "no such CPU"),
        (&["detours", "--length", "0"], "at least 1 ns"),
        (&["detours", "--length", "2ms"], "detours of 2ms every 1ms"),
        (&["detours", "--interval", "1ns"], "between 20us and one hour"),
        (&["detours", "--length", "10s", "--interval", "100s"], "the longest is 500ms"),
        (&["detours", "--class", "fifo:99"], "1 to 98"),
        (&["detours", "--class", "what"], "fifo:40"),
        (&["detours", "--phase", "what"], "`aligned`"),
        // times whose sum is beyond 64 bits
        (&["detours", "--duration", "5124095h", "--check", "5124095h", "--cpus", "900"], "no such CPU"),
        (&["replay"], "--trace"),
        (&["replay", "--trace", "x", "--cpu-map", "what"], "0=2,1=3"),
    ] {
        fails(&[&["inject"], args].concat(), 2, part);
    }
}

#[test]
fn comparisons_and_formats_that_cannot_be_are_explained() {
    let dir = tempfile::tempdir().expect("temp dir");
    let trace = dir.path().join("t.csv");
    std::fs::write(&trace, "# observed_s: 1\nnode,cpu,start_ns,duration_ns,source\n0,0,5,1000,nmi\n")
        .expect("written");
    let trace = trace.to_str().expect("plain");
    text(&["noise", "show", trace]);
    fails(&["noise", "diff", trace], 2, "<AFTER>");
    fails(&["noise", "convert", trace, "x.bogus"], 2, "its name does not say which format to write");
    fails(&["noise", "convert", trace, "x.csv", "--to", "bogus"], 2, "there are: parquet");
    fails(&["noise", "convert", trace, "/nonexistent/x.csv"], 1, "the folder /nonexistent");
    fails(&["noise", "show", trace, "--period", "100ms"], 2, "--duty");
    fails(&["noise", "show", trace, "--period", "100ms", "--duty", "100%"], 2, "no regular window");
    fails(&["noise", "show", trace, "--period", "2h", "--duty", "10%"], 2, "a period of 7200s");
}

#[test]
fn top_without_a_terminal_says_what_to_use_instead() {
    fails(&["top"], 2, "colony measure");
}

#[test]
fn manual_pages_and_completions_go_where_they_can_or_say_why_not() {
    let dir = tempfile::tempdir().expect("temp dir");
    let folder = dir.path().join("man1");
    text(&["man", folder.to_str().expect("plain")]);
    assert!(folder.join("colony-measure.1").exists());
    fails(&["man", "/etc/passwd"], 1, "writing manual pages to /etc/passwd");
    fails(&["completions", "tcsh"], 2, "tcsh");
    for shell in ["bash", "zsh", "fish"] {
        let out = crate::common::colony().args(["completions", shell]).output().expect("runs");
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("colony"));
    }
}

#[test]
fn what_needs_privileges_says_which() {
    let Some(public) = Public::new() else { return };
    let run = |args: &[&str]| public.colony().args(args).output().expect("runs");
    let out = run(&["measure", "--duration", "200ms"]);
    assert!(out.status.success(), "{out:?}");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("not attributed:") && said.contains("CAP_BPF"), "{said}");
    is_plain(&said);
    let out = run(&["measure", "--duration", "200ms", "--fifo", "10", "--cpus", &last_cpu()]);
    failed("real-time measuring by nobody", &out, 1, "CAP_SYS_NICE");
    let out = run(&["measure", "--duration", "24h", "--out", "/root/x.parquet"]);
    failed("a file of root's", &out, 1, "Permission denied");
}
