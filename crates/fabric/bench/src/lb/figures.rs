// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the records of all PEs to the figures of a run.
//!
//! Machines are shared: another program may take a CPU for some iterations. So an iteration's time is the median of its
//! stretch, in which the work of an iteration changes little, and longer times are sums of such medians. Of several
//! repetitions, the least time of each stretch counts.

use super::kernel::Setup;
use super::record::{Record, Report};
use super::result::{Averages, Balancing, Run, Stretch, Summary};

/// The median of some numbers.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let at = values.len() / 2;
    let upper = *values.get(at)?;
    let lower = if values.len().is_multiple_of(2) { values[at - 1] } else { upper };
    Some((lower + upper) / 2.0)
}

fn seconds(ns: i64) -> f64 {
    ns.max(0) as f64 * 1e-9
}

/// When an iteration ended: on the last of the PEs.
fn end_ns(record: &Record, iteration: u32) -> Option<i64> {
    let ends = record.pes.values().filter_map(|pe| pe.iterations.get(iteration as usize));
    ends.map(|i| i.end_ns).filter(|&ns| ns > 0).max()
}

/// When a stretch began: on the first of the PEs.
fn began_ns(record: &Record, stretch: usize) -> Option<i64> {
    let begins = record.pes.values().filter_map(|pe| pe.began_ns.get(stretch));
    begins.copied().filter(|&ns| ns > 0).min()
}

/// CPU time of an iteration: that of the PE which has most of it, in seconds, and that over the mean of so many PEs.
fn cpu(record: &Record, iteration: u32, pes: u64) -> (f64, Option<f64>) {
    let of_pes = record.pes.values().filter_map(|pe| pe.iterations.get(iteration as usize)).map(|i| i.cpu_ns);
    let (sum, most) = of_pes.fold((0, 0), |(sum, most), ns| (sum + ns, ns.max(most)));
    (seconds(most), (sum > 0).then(|| most as f64 * pes as f64 / sum as f64))
}

fn stretch(record: &Record, setup: &Setup, number: usize, pes: u64) -> Option<Stretch> {
    let first = number as u32 * setup.period;
    let iterations = setup.period.min(setup.iterations - first);
    let mut last = began_ns(record, number)?;
    let mut times = Vec::with_capacity(iterations as usize);
    for iteration in first..first + iterations {
        let end = end_ns(record, iteration)?;
        times.push(seconds(end - last));
        last = end;
    }
    let (most, ratios): (Vec<_>, Vec<_>) = (first..first + iterations).map(|i| cpu(record, i, pes)).unzip();
    let imbalance = median(ratios.into_iter().flatten().collect());
    Some(Stretch { first, iterations, iteration_s: median(times)?, cpu_s: median(most)?, imbalance })
}

/// The time before a stretch other than the first.
fn balancing(record: &Record, setup: &Setup, number: usize, report: Option<&Report>) -> Option<Balancing> {
    let ended = end_ns(record, number as u32 * setup.period - 1)?;
    let whole = seconds(began_ns(record, number)? - ended);
    let decision_s = report.map_or(0.0, |r| r.decision_s);
    Some(Balancing {
        moved: report.map_or(0, |r| r.moved),
        expected: report.filter(|r| r.strategy.is_some()).map(|r| r.imbalance),
        decision_s,
        migration_s: (whole - decision_s).max(0.0),
    })
}

fn averages(stretches: &[Stretch]) -> Option<Averages> {
    let all: u32 = stretches.iter().map(|s| s.iterations).sum();
    let weight = |s: &Stretch| f64::from(s.iterations) / f64::from(all);
    let imbalances = stretches.iter().map(|s| Some(s.imbalance? * weight(s)));
    (!stretches.is_empty()).then(|| Averages {
        iteration_s: stretches.iter().map(|s| s.iteration_s * weight(s)).sum(),
        imbalance: imbalances.sum(),
    })
}

fn summary(stretches: &[Stretch], balancings: &[Balancing]) -> Option<Summary> {
    let (first, rest) = stretches.split_at_checked(1)?;
    let [decision_s, migration_s] = [|b: &Balancing| b.decision_s, |b: &Balancing| b.migration_s]
        .map(|of| balancings.iter().map(of).sum::<f64>());
    let iterations_s: f64 = rest.iter().map(|s| s.iteration_s * f64::from(s.iterations)).sum();
    Some(Summary {
        before: averages(first)?,
        after: averages(rest),
        decision_s,
        migration_s,
        balanced_s: (!rest.is_empty()).then_some(iterations_s + decision_s + migration_s),
        gain: None,
    })
}

/// The figures of a run from the records of all its PEs; none if records are missing.
pub(super) fn figures(
    (setup, strategy): (&Setup, &str),
    record: &Record,
    reports: &[Report],
    pes: u64,
) -> Option<Run> {
    let count = setup.iterations.div_ceil(setup.period) as usize;
    let stretches = (0..count).map(|n| stretch(record, setup, n, pes)).collect::<Option<Vec<_>>>()?;
    let of_round = |n: usize| reports.iter().find(|r| r.round + 1 == n as u64);
    let balancings =
        (1..count).map(|n| balancing(record, setup, n, of_round(n))).collect::<Option<Vec<_>>>()?;
    Some(Run {
        program: setup.program,
        strategy: strategy.to_owned(),
        checksum: format!("{:016x}", record.checksum),
        moved: record.pes.values().map(|pe| pe.arrived).sum(),
        bytes_moved: record.pes.values().map(|pe| pe.arrived_bytes).sum(),
        elapsed_s: vec![seconds(end_ns(record, setup.iterations - 1)? - began_ns(record, 0)?)],
        summary: summary(&stretches, &balancings)?,
        stretches,
        balancings,
    })
}

/// One run of several repetitions: the one that took the least time, with the shortest times of all.
pub(super) fn least(repetitions: Vec<Run>) -> Option<Run> {
    let elapsed_s: Vec<f64> = repetitions.iter().flat_map(|run| run.elapsed_s.iter().copied()).collect();
    let fastest = repetitions.iter().min_by(|a, b| a.elapsed_s[0].total_cmp(&b.elapsed_s[0]))?;
    let mut run = Run { elapsed_s, ..fastest.clone() };
    for other in &repetitions {
        for (stretch, other) in run.stretches.iter_mut().zip(&other.stretches) {
            stretch.iteration_s = stretch.iteration_s.min(other.iteration_s);
        }
        for (balancing, other) in run.balancings.iter_mut().zip(&other.balancings) {
            balancing.decision_s = balancing.decision_s.min(other.decision_s);
            balancing.migration_s = balancing.migration_s.min(other.migration_s);
        }
    }
    run.summary = summary(&run.stretches, &run.balancings)?;
    Some(run)
}

/// Sets the gain of each run over the first without strategy, among the runs of one program.
pub(super) fn compare(runs: &mut [Run], none: &str) {
    let base = runs.iter().find(|run| run.strategy == none).and_then(|run| run.summary.balanced_s);
    for run in runs {
        let gain = |base: f64| (base > 0.0).then_some(1.0 - run.summary.balanced_s? / base);
        run.summary.gain = base.and_then(gain);
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Program;
    use super::super::params::tests::small;
    use super::*;

    /// Two PEs, six iterations in stretches of two that take 10 ns each, 6 ns after the second balancing; 3 ns between
    /// stretches. PE 0 works twice as much as PE 1 until then.
    fn recorded() -> (Setup, Record, Vec<Report>) {
        let setup = small().setup(Program::LbTest, "greedy");
        let mut record = Record::new();
        let mut now = 1000;
        for iteration in 0..6u32 {
            if iteration.is_multiple_of(2) {
                now += if iteration > 0 { 3 } else { 0 };
                record.begins(0, iteration / 2, now);
                record.begins(1, iteration / 2, now + 1);
            }
            now += if iteration < 4 { 10 } else { 6 };
            record.ends(0, iteration, now, if iteration < 4 { 8 } else { 6 });
            record.ends(1, iteration, now - 2, if iteration < 4 { 4 } else { 6 });
        }
        record.arrives(1, 512);
        let report = |round, moved, imbalance| Report {
            round,
            strategy: Some("greedy".into()),
            moved,
            imbalance,
            decision_s: 1e-9,
        };
        (setup, record, vec![report(0, 0, [1.33, 1.33]), report(1, 1, [1.33, 1.0])])
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn times_and_imbalance_come_from_all_pes() {
        let (setup, record, reports) = recorded();
        let run = figures((&setup, "greedy"), &record, &reports, 2).expect("complete");
        let (s, b) = (&run.stretches, &run.balancings);
        assert_eq!(s.iter().map(|s| (s.first, s.iterations)).collect::<Vec<_>>(), [(0, 2), (2, 2), (4, 2)]);
        assert!(close(s[1].iteration_s, 10e-9) && close(s[2].iteration_s, 6e-9), "{s:?}");
        assert!(close(s[0].imbalance.expect("work"), 4.0 / 3.0) && s[2].imbalance == Some(1.0), "{s:?}");
        assert!(close(b[1].decision_s, 1e-9) && close(b[1].migration_s, 2e-9), "{b:?}");
        assert_eq!((b[1].moved, b[1].expected), (1, Some([1.33, 1.0])));
        assert_eq!((run.moved, run.bytes_moved), (1, 512));
        assert!(close(s[0].cpu_s, 8e-9) && close(s[2].cpu_s, 6e-9), "{s:?}");
        let summary = run.summary;
        assert!(close(summary.before.iteration_s, 10e-9));
        assert!(close(summary.after.expect("two stretches").iteration_s, 8e-9));
        assert!(close(summary.balanced_s.expect("balanced"), 38e-9), "{summary:?}");
        assert!(close(run.elapsed_s[0], 58e-9));
    }

    #[test]
    fn of_repetitions_the_least_times_count() {
        let (setup, record, reports) = recorded();
        let one = figures((&setup, "greedy"), &record, &reports, 2).expect("complete");
        let mut other = one.clone();
        (other.elapsed_s, other.moved) = (vec![57e-9], 2);
        other.stretches[0].iteration_s = 90e-9;
        other.stretches[2].iteration_s = 5e-9;
        other.balancings[0].migration_s = 0.0;
        let run = least(vec![one, other]).expect("two");
        assert_eq!((run.moved, run.elapsed_s.len()), (2, 2), "counts are of the run that took least");
        assert!(close(run.summary.before.iteration_s, 10e-9) && close(run.stretches[2].iteration_s, 5e-9));
        assert!(close(run.summary.balanced_s.expect("balanced"), 34e-9), "{:?}", run.summary);
        assert_eq!(least(Vec::new()), None);
    }

    #[test]
    fn the_gain_is_the_share_of_time_saved() {
        let (setup, record, reports) = recorded();
        let run = figures((&setup, "greedy"), &record, &reports, 2).expect("complete");
        let mut runs = [run.clone(), run];
        runs[1].strategy = "none".into();
        runs[1].summary.balanced_s = Some(76e-9);
        compare(&mut runs, "none");
        assert!(close(runs[0].summary.gain.expect("there is none"), 0.5));
        assert_eq!(runs[1].summary.gain, Some(0.0));
        runs[1].strategy = "refine".into();
        compare(&mut runs, "none");
        assert_eq!(runs[0].summary.gain, None, "nothing to compare with");
    }

    #[test]
    fn a_run_without_balancing_has_no_figures_after_it() {
        let (mut setup, record, reports) = recorded();
        setup.period = 6;
        let run = figures((&setup, "greedy"), &record, &reports, 2).expect("complete");
        assert_eq!((run.summary.after, run.summary.balanced_s, run.balancings.len()), (None, None, 0));
    }

    #[test]
    fn missing_records_are_found() {
        let (setup, mut record, reports) = recorded();
        for pe in record.pes.values_mut() {
            pe.iterations.truncate(5);
        }
        assert_eq!(figures((&setup, "greedy"), &record, &reports, 2), None);
    }

    #[test]
    fn an_idle_pe_counts_for_the_mean() {
        let (_, record, _) = recorded();
        let (most, ratio) = cpu(&record, 4, 4);
        assert!(close(most, 6e-9) && ratio == Some(2.0), "{most} {ratio:?}");
        assert_eq!(cpu(&record, 99, 4), (0.0, None));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 9.0, 2.0]), Some(3.0));
    }
}
