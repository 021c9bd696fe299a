// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of other tools, as they print them.

use proptest::prelude::*;

use super::*;

const TIMERLAT: &str = "\
# RTLA timerlat histogram
# Time unit is microseconds (us)
# Duration:   0 00:00:10
Index   IRQ-000   Thr-000   IRQ-003   Thr-003
0          9900         0         0         0
1            80         0         0         0
5            18      9000         0         0
12            2       990         0         0
50            0         5         0         0
over:         0         5         0         0
count:    10000     10000         0         0
min:          0         5         -         -
avg:          0         6         -         -
max:         12        80         -         -
ALL:        IRQ       Thr
count:    10000     10000
";

const HISTOGRAM: &str = "\
# /dev/cpu_dma_latency set to 0us
policy: fifo: loadavg: 0.10 0.05 0.01 1/200 1234
T: 0 ( 1234) P:80 I:1000 C:  10000 Min:      1 Act:    2 Avg:    2 Max:      45
T: 1 ( 1235) P:80 I:1500 C:   6667 Min:      1 Act:    2 Avg:    2 Max:     812
# Histogram
000000 000000\t000000
000001 005000\t005000
000002 004990\t001660
000045 000010\t000006
# Total: 000010000 000006666
# Min Latencies: 00001 00001
# Avg Latencies: 00002 00002
# Max Latencies: 00045 00812
# Histogram Overflows: 00000 00001
# Histogram Overflow at cycle number:
# Thread 0:
# Thread 1: 03210
";

fn at(ns: u64) -> Option<Quantile> {
    Some(Quantile { ns, is_lower_bound: false })
}

fn row(found: &WakeUps, number: usize) -> Latencies {
    found.rows[number].latencies.clone().expect("there were wake-ups")
}

#[test]
fn timerlat_has_a_row_for_each_cpu_and_kind_of_latency() {
    let found = parse(TIMERLAT).expect("a result");
    let names: Vec<(&str, &str)> = found.rows.iter().map(|r| (r.of.as_str(), r.latency_to)).collect();
    assert_eq!(
        names,
        [("CPU 0", "interrupt"), ("CPU 0", "thread"), ("CPU 3", "interrupt"), ("CPU 3", "thread")]
    );
    assert_eq!((found.tool, found.observed_s), ("rtla timerlat", Some(10.0)));
    let thread = row(&found, 1);
    assert_eq!((thread.count, thread.min_ns, thread.max_ns), (10_000, Some(5_000), Some(80_000)));
    assert_eq!((thread.p50_ns, thread.p99_ns, thread.p999_ns), (at(5_000), at(12_000), at(12_000)));
    assert_eq!(found.rows[2].latencies, None, "nothing woke up there");
}

#[test]
fn a_quantile_beyond_the_last_bucket_has_a_lower_bound() {
    let found =
        parse(&TIMERLAT.replace("over:         0         5", "over:         0       200")).expect("a result");
    assert_eq!(row(&found, 1).p99_ns, Some(Quantile { ns: 50_000, is_lower_bound: true }));
}

#[test]
fn a_histogram_that_was_cut_off_has_a_note() {
    let cut = TIMERLAT.split("over:").next().expect("there");
    let notes = parse(cut).expect("a result").notes;
    assert!(notes.len() == 1 && notes[0].contains("may be cut off"), "{notes:?}");
    assert_eq!(parse(TIMERLAT).expect("a result").notes, [] as [String; 0]);
}

#[test]
fn cyclictest_has_a_row_for_each_thread() {
    for text in [HISTOGRAM.to_owned(), HISTOGRAM[HISTOGRAM.find("# Histogram").expect("there")..].to_owned()]
    {
        let found = parse(&text).expect("a result");
        let second = row(&found, 1);
        assert_eq!((found.rows.len(), found.rows[1].of.as_str()), (2, "thread 1"));
        assert_eq!((second.count, second.mean_ns, second.max_ns), (6667, Some(2000.0), Some(812_000)));
        assert_eq!((second.p50_ns, second.p999_ns), (at(1_000), at(45_000)));
        assert!(found.notes[0].contains("taken to be microseconds"), "{:?}", found.notes);
    }
    // with -H, the last column is the sum
    let with_sum: String = HISTOGRAM
        .lines()
        .map(|line| if line.starts_with("0000") { format!("{line}\t000009\n") } else { format!("{line}\n") })
        .collect();
    assert_eq!(parse(&with_sum).expect("a result"), parse(HISTOGRAM).expect("a result"));
}

#[test]
fn cyclictest_without_a_histogram_has_no_quantiles() {
    let text = HISTOGRAM.lines().take(4).collect::<Vec<_>>().join("\n");
    let found = parse(&text).expect("a result");
    let first = row(&found, 0);
    assert_eq!((first.count, first.p50_ns, first.max_ns), (10_000, None, Some(45_000)));
}

#[test]
fn json_of_cyclictest_names_cpus_and_its_unit() {
    let text = r#"{"file_version": 1, "cmdline": "cyclictest -q -h 100 --json=o.json -t 2", "rt_test_version": "2.7",
        "num_threads": 2, "resolution_in_ns": 0, "thread": {
        "0": {"histogram": {"1": 5000, "2": 4990, "45": 10}, "cycles": 10000, "min": 1, "max": 45, "avg": 1.54, "cpu": 0, "node": 0},
        "1": {"histogram": {"1": 5000, "2": 1660}, "cycles": 6667, "min": 1, "max": 812, "avg": 1.54, "cpu": 3, "node": 0}}}"#;
    let found = parse(text).expect("a result");
    let second = row(&found, 1);
    assert_eq!((found.rows[1].of.as_str(), second.count, second.mean_ns), ("CPU 3", 6667, Some(1540.0)));
    assert_eq!(
        (second.p50_ns, second.p999_ns),
        (at(1_000), Some(Quantile { ns: 2_000, is_lower_bound: true }))
    );
    let in_ns =
        parse(&text.replace(r#""resolution_in_ns": 0"#, r#""resolution_in_ns": 1"#)).expect("a result");
    assert_eq!(row(&in_ns, 0).max_ns, Some(45));
    let cut = parse(&text[..text.len() - 30]).expect_err("cut off").to_string();
    assert!(cut.contains("EOF"), "{cut}");
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, says) in [
        (
            TIMERLAT.replace("1            80         0         0         0", "1  80"),
            "line 6: expected a number for each of 4",
        ),
        (TIMERLAT.replace("IRQ-003", "NMI-003"), "line 4: expected IRQ-000, Thr-000"),
        (format!("{}{TIMERLAT}", TIMERLAT.split("ALL:").next().expect("there")), "a second histogram begins"),
        ("# RTLA timerlat histogram\n".into(), "expected a histogram of wake-ups"),
    ] {
        let error = parse(&text).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn traces_are_no_results_of_wake_ups() {
    for text in [
        "0\t100\n1000\t200\n",
        "# Histogram of runs\n0 5\n",
        "cpu,start_ns,duration_ns\n0,5,6\n",
        "{\"traceEvents\":[]}",
    ] {
        assert!(!is_in(text), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(# RTLA timerlat histogram\n|# Histogram\n|\\{)?([a-zA-Z0-9:#.\\-() \n\t\"{}]{0,200})") {
        fuzz_parse(text.as_bytes());
    }
}
