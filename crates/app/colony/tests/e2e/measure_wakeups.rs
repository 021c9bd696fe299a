// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony measure --wakeups`: from the instant of a timer to the thread that waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::privilege::Privileges;
use serde_json::Value;

use crate::common::{Public, alone, colony, error, fails, is_plain, json, last_cpu, text};

/// A real-time thread that takes the last CPU for 30 ms in every 100 ms, until it is dropped.
struct RealTimeNeighbour {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl RealTimeNeighbour {
    /// Starts it; `None` without the privilege for a real-time class.
    fn start() -> Option<Self> {
        if !Privileges::here().real_time || !Privileges::here().bpf {
            colony_testing::skip("needs root, or CAP_SYS_NICE, CAP_BPF and CAP_PERFMON");
            return None;
        }
        let end = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&end);
        let take_cpu = move || {
            colony_node::cpu::pin(last_cpu().parse().expect("a number")).expect("usable");
            class::set(0, Class::Fifo(40)).expect("real-time");
            while !seen.load(Ordering::Relaxed) {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(30) {
                    std::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_millis(70));
            }
        };
        let thread = std::thread::Builder::new().name("neighbour".into()).spawn(take_cpu).expect("starts");
        Some(Self { end, thread: Some(thread) })
    }
}

impl Drop for RealTimeNeighbour {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_thread_that_keeps_the_cpu_is_the_source_of_the_latency_that_it_causes() {
    let _alone = alone();
    let Some(_neighbour) = RealTimeNeighbour::start() else { return };
    let m = json(&["measure", "--wakeups", "--cpus", &last_cpu(), "--duration", "2s", "--json"]);
    assert_eq!(m["schema"], "colony.wakeups/1");
    let sources = m["sources"].as_array().expect("a list");
    let neighbour = sources.iter().find(|s| s["source"] == "thread:neighbour").expect("it was there");
    assert!(number(&neighbour["longest_ns"]) > 20_000_000, "{neighbour}");
    assert!(number(&neighbour["time_ns"]) >= number(&neighbour["longest_ns"]) / 2, "{neighbour}");
    let shares: f64 = sources.iter().filter_map(|s| s["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    let longest = m["longest"].as_array().expect("a list");
    assert!(longest.is_sorted_by_key(|l| std::cmp::Reverse(number(&l["latency_ns"]))), "{longest:?}");
    for one in longest {
        let parts: u64 =
            one["parts"].as_array().expect("a list").iter().map(|p| number(&p["duration_ns"])).sum();
        assert_eq!(parts, number(&one["latency_ns"]), "{one}");
    }
}

#[test]
fn every_instant_of_the_timer_is_in_the_report() {
    let _alone = alone();
    let m = json(&["measure", "--wakeups", "--cpus", &last_cpu(), "--duration", "500ms", "--json"]);
    let cpu = &m["per_cpu"][0];
    let own = cpu["measuring_itself"].as_u64().unwrap_or(0);
    let instants = number(&cpu["wakeups"]) + number(&cpu["missed"]) + number(&cpu["dropped"]) + own;
    assert_eq!(instants, 500, "{cpu}");
    let time_ns: u64 = m["sources"].as_array().expect("a list").iter().map(|s| number(&s["time_ns"])).sum();
    let sum_ns =
        cpu["thread"]["mean_ns"].as_f64().map_or(0.0, |mean_ns| mean_ns * number(&cpu["wakeups"]) as f64);
    if Privileges::here().bpf {
        assert!((time_ns as f64 - sum_ns).abs() < 500.0, "{time_ns} and {sum_ns}");
    }
    let pairs = cpu["histogram"].as_array().expect("a list").iter().map(|pair| number(&pair[1]));
    assert_eq!(pairs.sum::<u64>(), number(&cpu["wakeups"]));
    if number(&cpu["wakeups"]) > 0 {
        assert_eq!(cpu["thread"]["count"], cpu["wakeups"]);
        let lengths = ["min_ns", "p50_ns", "max_ns"].map(|key| number(&cpu["thread"][key]));
        assert!(lengths.is_sorted(), "{cpu}");
    }
}

#[test]
fn a_latency_above_the_limit_ends_the_measurement_and_a_command_knows_it() {
    let _alone = alone();
    let args = ["measure", "--wakeups", "--cpus", &last_cpu(), "--duration", "10min", "--json"];
    // every wake-up takes longer than a nanosecond
    let then = ["--until", "latency > 1ns", "--then", "echo on CPU $COLONY_CPU: $COLONY_LATENCY_NS ns"];
    let out = colony().args(args).args(then).output().expect("runs");
    assert_eq!(out.status.code(), Some(3), "{}", error(&out));
    let m: Value = serde_json::from_slice(&out.stdout).expect("json");
    let wait = &m["until"]["detour"];
    assert_eq!((&m["until"]["condition"], &m["until"]["reached"]), (&"latency > 1ns".into(), &true.into()));
    let said = format!("on CPU {}: {} ns\n", last_cpu(), wait["duration_ns"]);
    assert!(error(&out).contains(&said), "{said} is not in {}", error(&out));
    if Privileges::here().bpf {
        assert!(wait["source"].is_string(), "{wait}");
        assert!(!m["until"]["during"].as_array().expect("a list").is_empty(), "{m}");
        // the report has one figure for one wake-up
        let parts = m["longest"][0]["parts"].as_array().expect("parts");
        let is_longest = m["longest"][0]["timer_ns"] == wait["start_ns"];
        assert!(
            !is_longest
                || parts
                    .iter()
                    .any(|p| p["source"] == wait["source"] && p["duration_ns"] == wait["source_ns"]),
            "{m}"
        );
    }
    let limit = ["--until", "latency >= 1h", "--duration", "100ms"];
    let said = text(&[&["measure", "--wakeups", "--cpus", &last_cpu()][..], &limit].concat());
    assert!(said.contains("no wake-up latency of 3600 s or more in "), "{said}");
}

#[test]
fn the_report_fits_80_columns_and_says_why_nothing_is_attributed() {
    let _alone = alone();
    let args = ["measure", "--wakeups", "--cpus", &last_cpu(), "--duration", "300ms"];
    let said = text(&args);
    assert!(said.contains("interrupt") && said.contains("thread"), "{said}");
    let said = text(&[&args[..], &["--no-attribution"]].concat());
    assert!(said.contains("not attributed: switched off") && !said.contains("of all latency"), "{said}");
    let Some(public) = Public::new() else { return };
    let out = public.colony().args(args).output().expect("runs");
    let said = String::from_utf8(out.stdout.clone()).expect("text");
    assert!(out.status.success(), "{}", error(&out));
    is_plain(&said);
    assert!(said.contains("not attributed: ") && said.contains("CAP_BPF"), "{said}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let wakeups = |more: &[&'static str]| [&["measure", "--wakeups"][..], more].concat();
    for (flag, value) in [("--out", "t.csv"), ("--threshold", "1us"), ("--ring", "10"), ("--node", "1")] {
        fails(&wakeups(&[flag, value]), 2, flag);
    }
    fails(&wakeups(&["--no-keep"]), 2, "--no-keep");
    fails(&wakeups(&["--interval", "10us"]), 2, "the interval is 10us; it must be 50 us to 1 s");
    fails(&wakeups(&["--duration", "500us"]), 2, "must be the interval between two wake-ups, 1ms, or more");
    fails(&wakeups(&["--until", "detour > 1ms"]), 2, "measured without --wakeups");
    fails(&["measure", "--interval", "2ms"], 2, "--wakeups");
    fails(&["measure", "--interval", "2ms", "--no-keep"], 2, "--interval has no effect without --wakeups");
    fails(&["measure", "--until", "latency > 1ms"], 2, "measured with --wakeups");
}
