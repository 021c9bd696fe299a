// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measurement of wake-up latency with all it can say.

use colony_measure::Attribution;
use colony_measure::wakeups::{Config, DelayPart, Latencies, LongestWakeup, WakeupMeasurement, WakeupSource};
use colony_trace::Source;
use colony_trace::wakeups::{Quantile, Row, WakeUps};

use crate::{HOSTILE, LONG_NS, MANY, WARNING, check, node};

/// A measurement of two milliseconds, on a node with hostile names.
fn measurement() -> WakeupMeasurement {
    let config = Config {
        cpus: colony_node::cpu::usable().expect("linux").iter().take(1).collect(),
        duration_ns: 2_000_000,
        interval_ns: 1_000_000,
        fifo: None,
        until: Some("latency >= 1h".parse().expect("a condition")),
        attribution: Attribution::Off,
    };
    let m = colony_measure::wakeups::measure(&config, |_| true).expect("measures");
    WakeupMeasurement { node: node(), warnings: vec![WARNING.into()], ..m }
}

#[test]
fn wakeups_of_many_sources() {
    let mut m = measurement();
    let long = Latencies {
        count: MANY,
        min_ns: LONG_NS,
        mean_ns: LONG_NS as f64,
        p50_ns: LONG_NS,
        p99_ns: Some(LONG_NS),
        p999_ns: Some(LONG_NS),
        max_ns: LONG_NS,
    };
    m.per_cpu[0].cpu = 4095;
    m.per_cpu[0].missed = MANY;
    m.per_cpu[0].measuring_itself = Some(MANY);
    (m.per_cpu[0].interrupt, m.per_cpu[0].thread) = (Some(long), Some(long));
    m.attribution.reason = None;
    m.attribution.explained = Some(0.5);
    let source = |i: u64| WakeupSource {
        source: Source::Thread(format!("{i}{HOSTILE}")),
        wakeups: MANY,
        time_ns: LONG_NS,
        share: 1.0 / 40.0,
        longest_ns: (i > 0).then_some(LONG_NS),
    };
    m.sources = (0..40).map(source).collect();
    let part = |i: u64| DelayPart { source: Source::Thread(format!("{i}{HOSTILE}")), duration_ns: LONG_NS };
    m.longest = vec![LongestWakeup {
        cpu: 4095,
        timer_ns: 0,
        after_ns: LONG_NS,
        latency_ns: LONG_NS,
        interrupt_ns: None,
        parts: (0..9).map(part).collect(),
    }];
    let text = colony_view::wakeups::render(&m);
    check(&text);
    assert!(text.contains("24 more (--json)") && text.contains("not seen"), "{text}");
    assert!(text.contains("no wake-up latency of 3600 s or more in "), "{text}");
}

#[test]
fn wakeups_that_nobody_saw() {
    let mut m = measurement();
    (m.per_cpu[0].interrupt, m.per_cpu[0].thread) = (None, None);
    m.longest.clear();
    let text = colony_view::wakeups::render(&m);
    check(&text);
    assert!(text.contains("not attributed: switched off") && !text.contains("longest:"), "{text}");
    assert_eq!(text.matches("not seen").count(), 2, "{text}");
}

#[test]
fn wakeups_that_another_tool_measured() {
    let at = |ns, is_lower_bound| Some(Quantile { ns, is_lower_bound });
    let known = colony_trace::wakeups::Latencies {
        count: MANY,
        min_ns: Some(LONG_NS),
        mean_ns: None,
        p50_ns: at(LONG_NS, false),
        p99_ns: at(LONG_NS, false),
        p999_ns: at(LONG_NS, true),
        max_ns: None,
    };
    let row = |of: &str, latencies| Row { of: of.into(), latency_to: "interrupt", latencies };
    let rows = vec![row("CPU 4095", Some(known)), row("thread 65535", None)];
    let found = WakeUps { tool: "rtla timerlat", observed_s: Some(1e6), rows, notes: Vec::new() };
    let text = colony_view::wakeups::of_other_tool(&found);
    check(&text);
    assert!(text.contains("> ") && text.contains("no detours"), "{text}");
}
