// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a trace against its metadata: what no measurement can have left, and what its edges cut.

use super::{Detour, Problem, Trace, TraceMeta};

/// Distance from the observation within which a row is accepted, as a share of the observation. The observers of the
/// CPUs do not start at one instant, and `start_ns` is that of the first.
const SLACK_SHARE: f64 = 0.01;
/// The same for short observations, nanoseconds.
const SLACK_NS: i128 = 1_000_000_000;
/// `observed_s` has been through decimal text: a longest detour may exceed it by this.
const ROUNDING_NS: i128 = 1_000;

/// The observation: start and end, nanoseconds; `None` if the length is unknown.
fn observation(meta: &TraceMeta) -> Option<(i128, i128)> {
    let span_ns = meta.observed_s * 1e9;
    let start = i128::from(meta.start_ns);
    // beyond i128 an f64 becomes the largest number: no row is outside then
    (span_ns > 0.0).then(|| (start, start.saturating_add(span_ns.ceil() as i128)))
}

/// Refuses the first row that contradicts `meta`. `detours` stand in the order of the file.
pub(super) fn check(meta: &TraceMeta, detours: &[Detour]) -> Result<(), Problem> {
    let observed = observation(meta);
    let slack = SLACK_NS.max((meta.observed_s * 1e9 * SLACK_SHARE) as i128);
    let wrong = |d: &Detour| -> Option<String> {
        let (start, length) = (i128::from(d.start_ns), i128::from(d.duration_ns));
        let detour = || format!("a detour of {length} ns from {start} ns on CPU {}", d.cpu);
        if start + length > i128::from(i64::MAX) {
            return Some(format!("{} ends beyond the last instant there is, 2^63 ns", detour()));
        }
        if !meta.cpus.is_empty() && !meta.cpus.contains(d.cpu.into()) {
            return Some(format!("{}, and the CPUs observed are {}", detour(), meta.cpus));
        }
        let (begin, end) = observed?;
        if length > end.saturating_sub(begin).saturating_add(ROUNDING_NS) {
            return Some(format!("{} is longer than the observation of {} s", detour(), meta.observed_s));
        }
        if start + length < begin.saturating_sub(slack) || start > end.saturating_add(slack) {
            let (from, s) = (meta.start_ns, meta.observed_s);
            return Some(format!("{} is outside of the observation, {s} s from {from} ns", detour()));
        }
        None
    };
    match detours.iter().enumerate().find_map(|(i, d)| Some((i, wrong(d)?))) {
        Some((i, contradiction)) => Err(Problem::Row { row: i + 1, contradiction }),
        None => Ok(()),
    }
}

impl Trace {
    /// Leaves out what lies before or after the observation, which every share is of: detours outside of it, and the parts of
    /// others. Returns the number of detours that it has removed or shortened. A few are usual, since CPUs are not observed
    /// from and to one instant.
    pub fn cut_to_observation(&mut self) -> usize {
        let Some((begin, end)) = observation(&self.meta) else { return 0 };
        let mut cut = 0;
        self.detours.retain_mut(|d| {
            let start = i128::from(d.start_ns);
            let stop = start + i128::from(d.duration_ns);
            if start >= begin && stop <= end + ROUNDING_NS {
                return true;
            }
            cut += 1;
            let (from, to) = (start.max(begin), stop.min(end));
            let inside = i64::try_from(from).ok().zip(u64::try_from(to - from).ok());
            let Some((start_ns, duration_ns)) = inside.filter(|(_, ns)| *ns > 0) else { return false };
            (d.start_ns, d.duration_ns) = (start_ns, duration_ns);
            true
        });
        cut
    }
}

#[cfg(test)]
mod tests {
    use crate::Source;
    use crate::convert::{Format, parse};
    use crate::trace::synthetic::meta;
    use crate::trace::{Detour, Problem, Trace, TraceMeta, parquet};

    const START_NS: i64 = 1_700_000_037_000_000_000;

    /// 10 s on CPUs 0 and 1: a row that is right, and `row`.
    fn with(cpu: u16, start_ns: i64, duration_ns: u64) -> Trace {
        let row = |cpu, start_ns, duration_ns| Detour { node: 0, cpu, start_ns, duration_ns, source: 0 };
        Trace {
            meta: meta(2, 10.0),
            sources: vec![Source::Nmi],
            detours: vec![row(0, START_NS + 5, 100), row(cpu, start_ns, duration_ns)],
        }
    }

    /// The trace in every format that keeps its metadata, read again.
    fn read(trace: &Trace) -> Vec<Result<Trace, Problem>> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("trace");
        let again = |format| {
            crate::convert::write(trace, &path, Some(format)).expect("written");
            parse(&std::fs::read(&path).expect("there"), format)
        };
        [Format::Parquet, Format::Csv, Format::Chrome].map(again).into()
    }

    #[test]
    fn impossible_rows_are_refused_with_their_number() {
        for (row, says) in [
            (with(0, START_NS + 5_000, 1 << 63), "beyond the last instant"),
            (with(0, START_NS + 5_000, 1 << 62), "longer than the observation of 10 s"),
            (with(0, START_NS + 5_000, 10_000_100_000), "longer than the observation"),
            (with(2, START_NS + 5_000, 100), "the CPUs observed are 0-1"),
            (with(0, START_NS + 15_000_000_000, 100), "outside of the observation"),
            (with(0, START_NS - 5_000_000_000, 100), "outside of the observation"),
            (with(0, 7, 100), "outside of the observation"),
        ] {
            for found in read(&row) {
                let error = found.expect_err(says).to_string();
                assert!(error.contains("row 2") && error.contains(says), "{error}");
            }
        }
    }

    #[test]
    fn rows_at_the_edges_are_cut_and_counted() {
        for (row, cut) in [
            (with(1, START_NS + 5_000, 100), 0),
            (with(1, START_NS, 10_000_000_000), 0),
            (with(1, START_NS + 9_999_000_000, 2_000_000), 1),
            (with(1, START_NS - 5, 100), 1),
            (with(1, START_NS + 10_100_000_000, 100), 1),
        ] {
            for found in read(&row) {
                let mut trace = found.expect("possible");
                assert_eq!(trace.cut_to_observation(), cut);
                assert_eq!(trace.cut_to_observation(), 0, "what is left is inside");
            }
        }
    }

    #[test]
    fn no_share_exceeds_the_time_that_was_observed() {
        // 90 of 100 rows lie behind the end
        let rows = (0..100i64).map(|i| Detour {
            node: 0,
            cpu: 0,
            start_ns: START_NS + i * 10_000_000,
            duration_ns: 9_000_000,
            source: 0,
        });
        let mut trace = Trace { meta: meta(1, 0.1), sources: vec![Source::Nmi], detours: rows.collect() };
        assert_eq!((trace.cut_to_observation(), trace.detours.len()), (90, 10));
        let mut over = with(1, START_NS - 5_000, 8_000);
        over.cut_to_observation();
        assert_eq!((over.detours[1].start_ns, over.detours[1].duration_ns), (START_NS, 3_000));
    }

    #[test]
    fn text_of_other_tools_has_its_own_bounds() {
        let csv = "start_ns,duration_ns\n5,100\n7,9223372036854775808\n";
        let error = parse(csv.as_bytes(), Format::Csv).expect_err("too long").to_string();
        assert!(error.contains("row 2"), "{error}");
        let csv = "# observed_s: 2\n# cpus: 0-1\ncpu,start_ns,duration_ns\n0,5,100\n1,7,3000000000\n";
        let error = parse(csv.as_bytes(), Format::Csv).expect_err("too long").to_string();
        assert!(error.contains("row 2") && error.contains("longer than"), "{error}");
        let error =
            parse(csv.replace("1,7", "2,7").as_bytes(), Format::Csv).expect_err("no CPU 2").to_string();
        assert!(error.contains("row 2") && error.contains("0-1"), "{error}");
        let netgauge = "# observed_s: 2\n5\t100\n7\t3000000000\n";
        let error = parse(netgauge.as_bytes(), Format::Netgauge).expect_err("too long").to_string();
        assert!(error.contains("row 2") && error.contains("longer than"), "{error}");
        let osnoise = "x/1-1 [001] d.h. 5.000000: irq_noise: a:1 start 9223372036.5 duration 900000000 ns\n";
        let error = parse(osnoise.as_bytes(), Format::Osnoise).expect_err("beyond the end").to_string();
        assert!(error.contains("row 1"), "{error}");
    }

    #[test]
    fn without_a_length_of_the_observation_only_the_cpus_count() {
        let mut trace = with(1, 7, 1 << 40);
        trace.meta.observed_s = 0.0;
        let mut bytes = Vec::new();
        parquet::write(&trace, &mut bytes).expect("memory");
        assert!(parse(&bytes, Format::Parquet).is_ok());
        let unknown = TraceMeta { cpus: Default::default(), ..TraceMeta::default() };
        assert!(super::check(&unknown, &with(9, 7, 5).detours).is_ok());
    }
}
