// SPDX-License-Identifier: MIT OR Apache-2.0
//! Length and CPUs of an observation: from the file if it states them, and otherwise derived, with a note.

use super::{Format, parse};
use crate::trace::Trace;

const EVENT: &str =
    "osnoise/0-859 [000] d.h2 81.637220: irq_noise: local_timer:236 start 81.637215000 duration 4000 ns\n";
const LAST: &str =
    "osnoise/0-859 [000] d.h2 81.640221: irq_noise: local_timer:236 start 81.640217000 duration 4000 ns\n";
const SWITCHES: &str = "\
job-9 [000] d..2. 1.0: sched_switch: prev_comm=job prev_pid=9 prev_prio=120 prev_state=R ==> next_comm=a next_pid=7 next_prio=120
a-7 [000] d..2. 1.5: sched_switch: prev_comm=a prev_pid=7 prev_prio=120 prev_state=R ==> next_comm=job next_pid=9 next_prio=120
";

fn read(text: &str, format: Format) -> Trace {
    parse(text.as_bytes(), format).expect(text)
}

fn derived(trace: &Trace) -> usize {
    trace.meta.notes.iter().filter(|note| note.contains("does not state how long was observed")).count()
}

#[test]
fn the_time_between_the_first_and_the_last_event_is_derived_with_a_note() {
    let events = format!("{EVENT}{LAST}");
    for (text, format, seconds) in
        [(events.as_str(), Format::Osnoise, 3.006e-3), (SWITCHES, Format::Sched, 0.5)]
    {
        let trace = read(text, format);
        assert!((trace.meta.observed_s - seconds).abs() < 1e-4, "{}", trace.meta.observed_s);
        assert_eq!(derived(&trace), 1, "{:?}", trace.meta.notes);
        let stated = read(&format!("# observed_s: 60\n{text}"), format);
        assert_eq!((stated.meta.observed_s, derived(&stated)), (60.0, 0));
    }
}

const HWLATDETECT: &str = "\
hwlatdetect:  test duration 60 seconds
   detector: tracer
   parameters:
        CPU list:          0-3
        Latency threshold: 10us

Starting test
test finished
";

#[test]
fn hwlatdetect_without_a_sample_is_an_observation_without_detours() {
    let quiet = format!("{HWLATDETECT}Max Latency: Below threshold\nSamples recorded: 0\n");
    assert_eq!(Format::of_content(quiet.as_bytes()), Some(Format::Hwlat));
    let trace = read(&quiet, Format::Hwlat);
    assert_eq!((trace.detours.len(), trace.meta.observed_s), (0, 60.0));
    assert_eq!((trace.meta.cpus.to_string(), trace.meta.threshold_ns), ("0-3".to_owned(), 10_000));
    let sample = "Samples recorded: 1\nts: 1581527483.343962693, inner:11, outer:12, cpu:3\n";
    let trace = read(&format!("{HWLATDETECT}{sample}"), Format::Hwlat);
    assert_eq!((trace.detours.len(), trace.meta.cpus.to_string()), (1, "0-3".to_owned()));
    let cut = parse(HWLATDETECT.as_bytes(), Format::Hwlat).expect_err("no result");
    assert!(cut.to_string().contains("lines of the hwlat tracer"), "{cut}");
}
