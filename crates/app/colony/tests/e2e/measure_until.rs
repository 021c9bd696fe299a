// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony measure --until`: a measurement that its first long detour ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use colony_node::privilege::Privileges;
use serde_json::Value;

use crate::common::{Public, alone, colony, error, fails, is_plain, json, last_cpu, text};

/// A thread that wants a CPU all the time, until it is dropped.
struct Neighbour {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Neighbour {
    fn on(cpu: &str) -> Self {
        let (end, cpu) = (Arc::new(AtomicBool::new(false)), cpu.parse().expect("a number"));
        let seen = Arc::clone(&end);
        let spin = move || {
            colony_node::cpu::pin(cpu).expect("usable");
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let thread = std::thread::Builder::new().name("neighbour".into()).spawn(spin).expect("starts");
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// `colony measure` on the last CPU for at most ten minutes, until a detour of 100 µs.
fn measure_until(more: &[&str]) -> Vec<String> {
    let cpu = last_cpu();
    let args = ["measure", "--cpus", &cpu, "--duration", "10min", "--until", "detour > 100us"];
    args.iter().chain(more).map(|&word| word.to_owned()).collect()
}

#[test]
fn a_detour_longer_than_the_limit_ends_the_measurement_and_is_reported() {
    let _alone = alone();
    let _neighbour = Neighbour::on(&last_cpu());
    let out = colony().args(measure_until(&["--json"])).output().expect("runs");
    assert_eq!(out.status.code(), Some(3), "{}", error(&out));
    let m: Value = serde_json::from_slice(&out.stdout).expect("json");
    let until = &m["until"];
    assert_eq!((&until["condition"], &until["reached"]), (&"detour > 100us".into(), &true.into()));
    let detour = &until["detour"];
    assert_eq!(detour["cpu"].to_string(), last_cpu());
    let length_ns = detour["duration_ns"].as_u64().expect("a length");
    assert!(length_ns > 100_000, "{until}");
    assert_eq!(
        m["per_cpu"][0]["lengths"]["max_ns"].as_u64().map(|max| max >= length_ns / 1000 * 999),
        Some(true)
    );
    if !Privileges::here().bpf {
        assert!(detour["source"].is_null());
        colony_testing::skip("needs root, or CAP_BPF and CAP_PERFMON");
        return;
    }
    let source = &detour["source"];
    assert!(m["sources"].as_array().expect("a list").iter().any(|s| s["source"] == *source), "{until}");
    let begins = |part: &str| {
        let events = until[part].as_array().expect("a list").iter();
        events.map(|e| e["at_ns"].as_i64().expect("an instant")).collect::<Vec<_>>()
    };
    let all = [begins("before"), begins("during")].concat();
    assert!(all.is_sorted(), "{until}");
    assert!(begins("before").iter().all(|&at_ns| at_ns < 0), "{until}");
    if source != "unexplained" && source != "hypervisor" {
        assert!(!begins("during").is_empty(), "{until}");
        let frames = until["stack"]["frames"].as_array().map_or(0, Vec::len);
        assert!(frames > 0 || until["no_stack"].is_string(), "{until}");
    }
}

#[test]
fn the_report_of_a_detour_fits_80_columns() {
    let _alone = alone();
    let _neighbour = Neighbour::on(&last_cpu());
    let out = colony().args(measure_until(&[])).output().expect("runs");
    let said = String::from_utf8(out.stdout).expect("text");
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("stopped at the first detour longer than 100 µs: "), "{said}");
    is_plain(&said);
}

#[test]
fn a_limit_that_no_detour_meets_lets_the_measurement_last_as_long_as_it_may() {
    let _alone = alone();
    let args = ["measure", "--cpus", &last_cpu(), "--duration", "100ms", "--until", "detour >= 1h"];
    // a command that would leave its mark
    let said = text(&[&args[..], &["--then", "echo it was run"]].concat());
    assert!(said.contains("no detour of 3600 s or more in "), "{said}");
    assert!(said.contains(&format!("on CPU {}", last_cpu())) && !said.contains("it was run"), "{said}");
    let m = json(&[&args[..], &["--json"]].concat());
    assert_eq!((&m["until"]["reached"], &m["until"]["detour"]), (&false.into(), &Value::Null));
    assert!(m["per_cpu"][0]["observed_s"].as_f64() >= Some(0.099), "{m}");
}

#[test]
fn a_command_runs_after_the_detour_and_its_failure_is_an_error_that_keeps_the_trace() {
    let _alone = alone();
    let _neighbour = Neighbour::on(&last_cpu());
    let folder = tempfile::tempdir().expect("temp dir");
    let trace = folder.path().join("node.csv");
    let more = |then| ["--json", "--out", trace.to_str().expect("plain"), "--then", then];
    let run = |then| colony().args(measure_until(&more(then))).output().expect("runs");
    let out = run("test -s \"$COLONY_TRACE\" && echo on CPU $COLONY_CPU: $COLONY_DETOUR_NS ns");
    assert_eq!(out.status.code(), Some(3), "{}", error(&out));
    let m: Value = serde_json::from_slice(&out.stdout).expect("json alone");
    let said = format!("on CPU {}: {} ns\n", last_cpu(), m["until"]["detour"]["duration_ns"]);
    assert!(error(&out).contains(&said), "{said} is not in {}", error(&out));
    assert_eq!((&m["until"]["then"]["code"], &m["until"]["then"]["error"]), (&0.into(), &Value::Null));

    std::fs::remove_file(&trace).expect("it is there");
    let out = run("exit 5");
    assert_eq!(out.status.code(), Some(1), "{}", error(&out));
    assert!(
        error(&out).contains("error: the command of --then, `exit 5`, exited with code 5"),
        "{}",
        error(&out)
    );
    assert!(trace.exists(), "the trace is kept");
    let m: Value = serde_json::from_slice(&out.stdout).expect("the report is printed");
    assert_eq!(m["until"]["then"]["code"], 5);
}

#[test]
fn the_detour_that_ends_the_measurement_is_in_the_trace_also_if_the_ring_is_full() {
    let _alone = alone();
    let _neighbour = Neighbour::on(&last_cpu());
    let folder = tempfile::tempdir().expect("temp dir");
    let trace = folder.path().join("node.csv");
    let more = ["--json", "--ring", "1", "--no-attribution", "--out", trace.to_str().expect("plain")];
    let out = colony().args(measure_until(&more)).output().expect("runs");
    assert_eq!(out.status.code(), Some(3), "{}", error(&out));
    let m: Value = serde_json::from_slice(&out.stdout).expect("json");
    let length = m["until"]["detour"]["duration_ns"].to_string();
    let rows = std::fs::read_to_string(&trace).expect("a trace");
    assert!(rows.lines().any(|row| row.split(',').any(|word| word == length)), "{length} in {rows}");
    assert!(m["until"]["no_stack"].is_string(), "{}", m["until"]);
}

#[test]
fn conditions_that_cannot_be_are_explained() {
    fails(&["measure", "--until", "50us"], 2, "`detour > TIME` or `detour >= TIME`");
    fails(&["measure", "--until", "detour > 50"], 2, "use ns, us, ms, s, min or h");
    fails(&["measure", "--then", "true"], 2, "--until");
    fails(&["measure", "--until", "detour > 1us", "--then", ""], 2, "--then");
    let short = ["measure", "--cpus", &last_cpu(), "--threshold", "10us", "--until", "detour > 5us"];
    fails(&short, 2, "the limit of the condition is 5us; it must be the threshold or more");
}

#[test]
fn without_privileges_the_detour_has_no_source_and_the_reason_is_told() {
    let _alone = alone();
    let Some(public) = Public::new() else { return };
    let _neighbour = Neighbour::on(&last_cpu());
    let out = public.colony().args(measure_until(&[])).output().expect("runs");
    let said = String::from_utf8(out.stdout.clone()).expect("text");
    assert_eq!(out.status.code(), Some(3), "{said}{}", error(&out));
    let reason = said.split_once("source: not known: ").map(|(_, reason)| reason);
    assert!(reason.is_some_and(|reason| reason.contains("CAP_BPF")), "{said}");
}
