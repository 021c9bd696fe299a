// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of FTQ and FWQ that are made from a known noise, and files without what it takes to read them.

use super::*;

/// Detours of a CPU in 2 s: 48 µs each 4 ms, and 3 ms each 100 ms. They take 4.2 %.
fn noise() -> Vec<(f64, f64)> {
    let tick = (0..500).map(|i| (i as f64 * 4e6 + 310_000.0, 48_000.0));
    let daemon = (0..20).map(|i| (i as f64 * 1e8 + 50_400_000.0, 3e6));
    let mut all: Vec<(f64, f64)> = tick.chain(daemon).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

const STOLEN: f64 = 0.042;

/// Instants at which each of `pieces` of `work_ns` is done, beside the noise.
fn done(work_ns: f64, until_ns: f64) -> Vec<f64> {
    let (mut now, mut all, noise) = (0.0, Vec::new(), noise());
    let mut next = 0;
    while now < until_ns {
        let mut left = work_ns;
        while let Some(&(at, length)) = noise.get(next).filter(|(at, _)| *at <= now + left) {
            left -= (at - now).max(0.0);
            now = now.max(at) + length;
            next += 1;
        }
        now += left;
        all.push(now);
    }
    all
}

/// Counts of work of 100 ns in quanta of `quantum_ns`.
fn counts(quantum_ns: f64, quanta: usize) -> Vec<u64> {
    let mut counts = vec![0; quanta];
    for end in done(100.0, quantum_ns * quanta as f64) {
        if let Some(count) = counts.get_mut((end / quantum_ns) as usize) {
            *count += 1;
        }
    }
    counts
}

fn share(trace: &Trace) -> f64 {
    trace.stolen_ns() as f64 / trace.observed_ns()
}

fn read_text(text: &str) -> Result<Trace, String> {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("a.dat");
    std::fs::write(&path, text).expect("written");
    read(&path, None).map_err(|e| e.to_string())
}

fn column(values: &[u64]) -> String {
    values.iter().map(|v| format!("{v}\n")).collect()
}

fn notes(trace: &Trace) -> String {
    trace.meta.notes.join("\n")
}

/// Checks the share of stolen time, to 2 % of it, and that no CPU loses more than its time.
fn check(trace: &Trace, cpus: &str) {
    let found = share(trace);
    assert!((found / STOLEN - 1.0).abs() < 0.02, "{found}: {}", notes(trace));
    assert_eq!((trace.meta.cpus.to_string(), trace.detours.is_empty()), (cpus.to_owned(), false));
    assert!((trace.meta.observed_s - 2.0).abs() < 0.02, "{}", trace.meta.observed_s);
    assert!(
        crate::periodic::of_trace(trace).iter().all(|found| found.period.hz < 260.0),
        "no period of the quanta"
    );
}

#[test]
fn ftq_loses_the_time_of_the_work_that_is_missing() {
    let counts = counts(1e6, 2000);
    let pairs: String =
        counts.iter().zip(0..).map(|(n, i)| format!("{} {n}\n", i * 1_000_000 + i % 3)).collect();
    let ftq = format!(
        "# Frequency 1000.000000\n# Ticks per ns: 2.6\n# octave: pkg load signal\n# thread 0, core 3\n# Total count is 9\n{pairs}"
    );
    let trace = read_text(&ftq).expect("ftq");
    check(&trace, "3");
    assert!(notes(&trace).contains("instants are known to a quantum"), "{}", notes(&trace));
    let index: String = counts.iter().zip(0..).map(|(n, i)| format!(" {i}                {n}\n")).collect();
    let netgauge =
        format!("# Benchmark Method: ftq\n# Frequency 1000\n# Fixed Time Quantum Benchmark\n{index}");
    check(&read_text(&netgauge).expect("netgauge"), "0");
    let of_llnl = format!("# Fixed Time Quantum\n# Frequency: 1e3\n# cpus: 5\n{}", column(&counts));
    check(&read_text(&of_llnl).expect("counts"), "5");
}

#[test]
fn fwq_loses_the_time_beyond_the_shortest_piece() {
    let done = done(400_000.0, 2e9);
    let times: Vec<f64> = [0.0].iter().chain(&done).zip(&done).map(|(from, to)| to - from).collect();
    let ticks: Vec<u64> = times.iter().map(|ns| (ns * 2.1) as u64).collect();
    let header = "# Fixed Work Quantum\n# Ticks per ns: 2.1\n# cpus: 4\n";
    let trace = read_text(&format!("{header}{}", column(&ticks))).expect("fwq");
    check(&trace, "4");
    assert!(notes(&trace).contains("instants are sums of the times before"), "{}", notes(&trace));
    let microseconds: String =
        times.iter().zip(0..).map(|(ns, i)| format!("{i}             {}\n", (ns / 1e3).round())).collect();
    let netgauge = format!("# Fixed Work Quantum Benchmark\n# cycle number    duration [us]\n{microseconds}");
    check(&read_text(&netgauge).expect("netgauge"), "0");
    let of = |process: u32, cpu: u32| format!("Process {process} running on CPUs {cpu}\n{}", column(&ticks));
    let speed = |process: u32| format!("Speed: process {process}, cycles 21, seconds 1.0, GHz 2.100000\n");
    let mpi = [speed(0), speed(1), of(0, 3), of(1, 7)].concat();
    check(&read_text(&mpi).expect("fwq-mpi"), "3,7");
}

#[test]
fn a_quiet_cpu_is_a_trace_without_detours() {
    let counts: String = (0..20).map(|i| format!("{i} 500\n")).collect();
    let trace = read_text(&format!("# Frequency 1000\n{counts}")).expect("quiet");
    assert_eq!((trace.detours.len(), trace.meta.observed_s), (0, 0.02));
    let trace =
        read_text(&format!("# Fixed Work Quantum\n# unit: us\n{}", "70\n".repeat(20))).expect("quiet");
    assert_eq!((trace.detours.len(), trace.meta.observed_s), (0, 1.4e-3));
}

#[test]
fn a_quantum_without_any_work_is_lost_whole() {
    let quiet: String = (3..20).map(|i| format!("{i} 500\n")).collect();
    let trace = read_text(&format!("# Frequency 1000\n0 500\n1 0\n2 250\n{quiet}")).expect("two detours");
    let lengths: Vec<u64> = trace.detours.iter().map(|d| d.duration_ns).collect();
    assert_eq!(lengths, [1_000_000, 500_000]);
    assert_eq!(trace.detours[0].start_ns, 1_000_000);
    assert!(trace.detours[1].start_ns >= 2_000_000 && trace.detours[1].end_ns() <= 3_000_000);
}

#[test]
fn what_is_missing_in_the_header_is_named() {
    let increasing = column(&(0..20).map(|i| 1000 + i * 77).collect::<Vec<_>>());
    for (text, says) in [
        (
            "21012345\n21012388\n21012345\n",
            "add to its top, for FWQ, the lines `# Fixed Work Quantum` and `# Ticks per ns",
        ),
        ("# Fixed Work Quantum\n21012345\n21012388\n", "add the line `# Ticks per ns: 2.1`"),
        ("# Fixed Time Quantum Benchmark\n 0 2593900\n 1 2593870\n", "add the line `# Frequency 1000`"),
        ("0 2593900\n1 2593870\n2 2593900\n3 2593900\n4 2593888\n", "`# Frequency 1000`"),
        ("# Frequency fast\n1 2\n", "line 1: `frequency` must be a number"),
        ("# Frequency 1000\n1 2\n3\n", "line 3: this row has another number of columns"),
        ("# Frequency 1000\n1 2 3\n# octave: pkg load signal\n", "line 2: expected the number of a quantum"),
        ("# Frequency 1000\n0 0\n1 0\n", "counts are all 0"),
        ("# Frequency 1000\n0 9\n1000000 9\n2000000 7\n", "it has 3 quanta of CPU 0"),
        ("# Fixed Work Quantum\n# unit: us\n70\n71\n", "it has 2 pieces of work of CPU 0"),
        ("# Fixed Work Quantum\n# unit: hours\n", "`unit` must be ns"),
        ("# Fixed Work Quantum\n# unit: ns\n5 6\n", "FWQ counts its pieces"),
        ("# Fixed Work Quantum\n# unit: ns\n", "a row with a number for each quantum"),
        (&format!("# Fixed Time Quantum\n# Frequency 1000\n{increasing}"), "ftq_*_counts.dat"),
        (
            &format!(
                "# Frequency 1000\n{}",
                (0..20).map(|i| format!("{} 500\n", i * 2_600_000)).collect::<String>()
            ),
            "write the times in ns",
        ),
        (
            "Speed: thread 0, cycles 1, seconds 1, GHz 1.0\nThread 0 running on CPUs 3\n5\nThread 1 running on CPUs 3\n5\n",
            "bind each to a CPU of its own",
        ),
    ] {
        let error = read_text(text).expect_err(text);
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn one_impossible_value_is_refused_or_named() {
    let fwq = |times: &[u64]| {
        let rows: String = times.iter().map(|t| format!("{t}\n")).collect();
        parse(format!("# Fixed Work Quantum\n# unit: ns\n{rows}").as_bytes(), Format::Fwq)
    };
    let mut times = vec![1000; 500];
    times[7] = 0;
    let error = fwq(&times).expect_err("no work takes no time").to_string();
    assert!(error.contains("row 8"), "{error}");
    let doubts = |trace: &Trace| trace.meta.notes.iter().filter(|n| n.contains("99 of 100 others")).count();
    times[7] = 500;
    assert_eq!(doubts(&fwq(&times).expect("read")), 1);
    times[7] = 1010;
    assert_eq!(doubts(&fwq(&times).expect("read")), 0);
    let mut counts = vec![1000; 500];
    counts[3] = 2000;
    let rows: String = counts.iter().map(|c: &u64| format!("{c}\n")).collect();
    let text = format!("# Fixed Time Quantum\n# Frequency 1000\n{rows}");
    assert_eq!(doubts(&parse(text.as_bytes(), Format::Ftq).expect("read")), 1);
}
