// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrome traces of other tools, as the format allows them.

use crate::convert::{Format, parse};

const NAMED: &str = r#"{"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"CPU 0"}}"#;

#[test]
fn beginnings_and_ends_may_stand_in_any_order() {
    let event = |kind: &str, us: u64| format!(r#"{{"ph":"{kind}","name":"d","pid":1,"tid":7,"ts":{us}}}"#);
    // 50 of 100 µs each, and inside each of them one of 20 µs
    let pairs = (0..50u64).flat_map(|i| {
        let at = 1000 * i;
        [("B", at), ("E", at + 100), ("B", at + 40), ("E", at + 60)]
    });
    let mut events: Vec<String> = pairs.map(|(kind, us)| event(kind, us)).collect();
    for order in 0..3 {
        match order {
            0 => events.sort(),
            1 => events.reverse(),
            _ => events.rotate_left(77),
        }
        let text = format!("[{NAMED},{}]", events.join(","));
        let trace = parse(text.as_bytes(), Format::Chrome).expect("read");
        assert_eq!(trace.detours.iter().map(|d| d.duration_ns).sum::<u64>(), 50 * 100_000);
        assert!(!trace.meta.notes.iter().any(|n| n.contains("lack")), "{:?}", trace.meta.notes);
    }
}

#[test]
fn the_idle_thread_is_no_noise() {
    let event =
        |name: &str, us: u64| format!(r#"{{"ph":"X","name":"{name}","pid":1,"tid":7,"ts":{us},"dur":900}}"#);
    let text = format!("[{NAMED},{},{}]", event("swapper/3", 0), event("kworker/0:1", 1000));
    let trace = parse(text.as_bytes(), Format::Chrome).expect("read");
    assert_eq!(trace.detours.len(), 1);
    assert!(
        trace.meta.notes.iter().any(|n| n.contains("1 events of the idle thread")),
        "{:?}",
        trace.meta.notes
    );
}

#[test]
fn the_line_that_the_error_asks_for_is_one_that_helps() {
    let event = r#"{"ph":"X","name":"d","pid":4,"tid":9,"ts":5,"dur":2}"#;
    let error = parse(format!("[{event}]").as_bytes(), Format::Chrome).expect_err("no CPU").to_string();
    let line = &error[error.find("{\"ph\"").expect("a line")..];
    let line = &line[..=line.rfind("}}").expect("its end") + 1];
    let trace = parse(format!("[{line},{event}]").as_bytes(), Format::Chrome).expect("named now");
    assert_eq!((trace.detours.len(), trace.detours[0].cpu), (1, 3));
}
