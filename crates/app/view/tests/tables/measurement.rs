// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measurement with all it can say.

use colony_measure::attrib::{IpiReport, IpiSender};
use colony_measure::{
    Attribution, Config, LimitDetour, Measurement, Ran, SourceReport, StackEvent, StackReport, ThenReport,
    UntilReport, selfish,
};
use colony_trace::Source;

use crate::{HOSTILE, LONG_NS, MANY, WARNING, check, node};

/// A measurement of a millisecond, on a node with hostile names.
fn measurement() -> Measurement {
    let observe = selfish::Config {
        cpus: colony_node::cpu::usable().expect("linux").iter().take(1).collect(),
        duration_ns: 1_000_000,
        threshold_ns: 100,
        fifo: None,
        all_cpus: false,
        ring: 1 << 10,
        until: None,
    };
    let config = Config { observe, attribution: Attribution::Off, node: 0 };
    let (m, _) = colony_measure::measure(&config, |_| true).expect("measures");
    Measurement { node: node(), warnings: vec![WARNING.into()], ..m }
}

fn until(source: Option<Source>) -> UntilReport {
    let ran = |at_ns| Ran { at_ns, duration_ns: LONG_NS, source: Source::Thread(HOSTILE.into()) };
    UntilReport {
        condition: "detour > 50us".parse().expect("a condition"),
        reached: true,
        detour: Some(LimitDetour {
            cpu: 4095,
            start_ns: 0,
            after_ns: LONG_NS,
            duration_ns: LONG_NS,
            source,
            source_ns: Some(LONG_NS),
        }),
        before: (-100..0).map(|i| ran(i * 1_234)).collect(),
        during: (0..100).map(|i| ran(i * 987_654_321)).collect(),
        stack: Some(StackReport {
            at_ns: LONG_NS as i64,
            event: StackEvent::Left,
            task: HOSTILE.into(),
            pid: i32::MAX,
            frames: vec!["f".repeat(200), "schedule+0x2e".into()],
        }),
        no_stack: None,
        then: Some(ThenReport { command: HOSTILE.into(), code: Some(0), error: None }),
    }
}

#[test]
fn the_detour_that_ended_a_measurement() {
    let mut m = measurement();
    m.until = Some(until(Some(Source::Thread(HOSTILE.into()))));
    let text = colony_view::measurement::render(&m);
    check(&text);
    assert!(text.contains("not shown (--json has them): 88 events earlier, 88 later"), "{text}");
    // without a source there is nothing to show but the reason
    m.until = Some(until(None));
    let text = colony_view::measurement::render(&m);
    check(&text);
    assert!(text.contains("source: not known: switched off") && !text.contains("schedule"), "{text}");
}

#[test]
fn senders_of_interrupts_are_listed_or_the_reason_for_none() {
    let mut m = measurement();
    m.sources = vec![SourceReport {
        source: Source::Irq("reschedule".into()),
        events: Some(MANY),
        detours: 0,
        stolen_ns: 0,
        stolen_share: 0.0,
        lengths: m.per_cpu[0].lengths,
    }];
    let sender = IpiSender {
        source: Source::Irq("reschedule".into()),
        sent: MANY,
        task: HOSTILE.into(),
        pid: i32::MAX,
        cpu: 4095,
        callback: Some("c".repeat(60)),
        callsite: Some("s".repeat(60)),
    };
    let other = |i: i32| IpiSender { callsite: Some(format!("function_{i}")), pid: i, ..sender.clone() };
    let of_many_threads = (0..5).map(|pid| IpiSender { pid, cpu: 7, ..sender.clone() });
    let senders = (0..8).map(other).chain(of_many_threads).collect();
    let known = IpiReport { lost: MANY, senders, ..IpiReport::default() };
    m.attribution.ipi = Some(known);
    let text = colony_view::measurement::render(&m);
    check(&text);
    assert!(text.contains("3 rows more (--json has all)") && text.contains("(5 threads) on CPU 7"), "{text}");
    m.attribution.ipi = Some(IpiReport { not_known: Some(WARNING.into()), ..IpiReport::default() });
    let text = colony_view::measurement::render(&m);
    check(&text);
    assert!(text.contains("interrupts: not known: this is a warning"), "{text}");
}
