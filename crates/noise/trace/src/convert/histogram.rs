// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms of the lengths of detours: of `rtla osnoise hist`, and of oslat.
//!
//! ```text
//! # RTLA osnoise histogram                     oslat V 2.40
//! # Time unit is microseconds (us)             Total runtime:  30 seconds
//! # Duration:   0 00:01:00                             Core:   2 3
//! Index   CPU-000   CPU-001                        001 (us):   1012345678 1011111111
//! 0        430434    479123                        018 (us):   1 0
//! over:         1         0                         Maximum:   18 1 (us)
//! avg:       0.02      0.01                        Duration:   29.98 29.99 (sec)
//! max:        275         8
//! ```
//!
//! A histogram has no instants. Its detours are placed at random instants, independently on each CPU and without overlap, so that their
//! number, their lengths and the share of stolen time are those of the histogram: noise that can be fitted and simulated.

mod beyond;

use std::io::BufRead;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::beyond::{Beyond, Bounds, average};
use super::text::{Lines, decimal};
use crate::Source;
use crate::trace::{Detour, Problem, Stated, Trace, TraceBuilder};

/// True if a file that begins with `text` holds such a histogram.
pub(super) fn is_in(text: &str) -> bool {
    let has = |start: &str| text.lines().any(|line| line.trim_start().starts_with(start));
    text.trim_start().starts_with(RTLA) || has("oslat V") && text.contains(" (us):")
}

const RTLA: &str = "# RTLA osnoise hist";

/// A histogram as it stands in the file. Each row has a value for each CPU.
#[derive(Debug, Default)]
struct Histogram {
    cpus: Vec<u16>,
    /// Shortest and longest length, nanoseconds, and the counts.
    buckets: Vec<(u64, u64, Vec<u64>)>,
    /// Detours longer than the last bucket, and their shortest length, nanoseconds, if the file names it.
    over: Vec<u64>,
    over_from_ns: Option<u64>,
    /// The longest detour, nanoseconds.
    max_ns: Vec<u64>,
    /// The average of all detours of a CPU.
    mean: Vec<Option<Bounds>>,
    /// Each length in the file is the whole part of one in this unit, nanoseconds.
    unit_ns: u64,
    /// Length of the observation, seconds.
    observed_s: Option<f64>,
    /// Detours shorter than this are not in it, nanoseconds.
    threshold_ns: Option<u64>,
    /// The width of a bucket, nanoseconds, if the file does not state it and it is not the unit.
    guessed_width_ns: Option<u64>,
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut lines = Lines::new(input);
    let mut all: Vec<String> = Vec::new();
    while let Some(line) = lines.next()? {
        // neither program prints more rows than lengths that a histogram can have
        if all.len() > 100_000 {
            return Err(lines.wrong("a histogram has fewer lines"));
        }
        all.push(line);
    }
    let is_oslat = all.iter().any(|line| line.trim_start().starts_with("oslat V"));
    let histogram = if is_oslat { oslat(&all)? } else { rtla(&all)? };
    histogram.trace()
}

fn wrong(line: usize, reason: impl Into<String>) -> Problem {
    Problem::Line { line: line as u64 + 1, reason: reason.into() }
}

/// The numbers of a row, one for each of `cpus` CPUs; words behind them, as `(us)`, are left out.
fn row<T>(
    line: usize,
    words: &[&str],
    cpus: usize,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Problem> {
    let values: Option<Vec<T>> =
        words.get(..cpus).and_then(|words| words.iter().map(|word| read(word)).collect());
    values.ok_or_else(|| {
        wrong(line, format!("expected a number for each of the {cpus} CPUs, found `{}`", shown(words)))
    })
}

fn shown(words: &[&str]) -> String {
    words.join(" ").chars().take(60).collect()
}

fn rtla(lines: &[String]) -> Result<Histogram, Problem> {
    let unit_ns = if lines.iter().any(|l| l.starts_with("# Time unit is nanoseconds")) { 1 } else { 1000 };
    let mut found = Histogram { unit_ns, ..Histogram::default() };
    let times =
        |line: usize, words: &[&str], cpus: usize| {
            // a CPU without any detour has a dash
            row(line, words, cpus, |w| {
                if w == "-" { Some(0) } else { w.parse::<u64>().ok()?.checked_mul(unit_ns) }
            })
        };
    let mut rows: Vec<(u64, Vec<u64>)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(duration) = line.strip_prefix("# Duration:") {
            found.observed_s = days_and_time(duration);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((first, rest)) = words.split_first() else { continue };
        let cpus = found.cpus.len();
        match *first {
            "Index" if cpus > 0 => {
                return Err(wrong(at, "a second histogram begins here; read each by itself"));
            }
            "Index" => {
                let cpu = |word: &str| word.strip_prefix("CPU-")?.parse().ok();
                let numbers: Option<Vec<u16>> = rest.iter().map(|word| cpu(word)).collect();
                found.cpus = numbers.ok_or_else(|| wrong(at, "expected CPU-000, CPU-001, … after Index"))?;
            }
            "over:" => found.over = row(at, rest, cpus, |w| w.parse().ok())?,
            "max:" => found.max_ns = times(at, rest, cpus)?,
            "avg:" => found.mean = row(at, rest, cpus, |w| average(w, unit_ns))?,
            index => {
                if let Some(index) = index.parse::<u64>().ok().and_then(|i| i.checked_mul(unit_ns)) {
                    rows.push((index, row(at, rest, cpus, |w| w.parse().ok())?));
                }
            }
        }
    }
    // the file does not say how wide a bucket is: the widest that all beginnings allow, and the unit if there are few
    let width = match rows.len() {
        0..3 => unit_ns,
        _ => rows.iter().fold(0, |width, (from, _)| gcd(width, *from)).max(unit_ns),
    };
    found.guessed_width_ns = (width > unit_ns).then_some(width);
    found.buckets =
        rows.into_iter().map(|(from, counts)| (from, from.saturating_add(width), counts)).collect();
    Ok(found)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `0 00:01:30`: days, hours, minutes and seconds.
pub(super) fn days_and_time(text: &str) -> Option<f64> {
    let (days, time) = text.trim().split_once(' ')?;
    let parts: Vec<f64> = time.trim().split(':').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts[..] else { return None };
    let seconds = ((days.parse::<f64>().ok()? * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds;
    (seconds.is_finite() && seconds > 0.0).then_some(seconds)
}

fn oslat(lines: &[String]) -> Result<Histogram, Problem> {
    // the loop itself takes up to a microsecond
    let mut found = Histogram { threshold_ns: Some(1000), ..Histogram::default() };
    for (at, line) in lines.iter().enumerate() {
        let Some((name, values)) = line.split_once(':') else { continue };
        let words: Vec<&str> = values.split_whitespace().collect();
        let cpus = found.cpus.len();
        match name.trim() {
            "Total runtime" => found.observed_s = words.first().and_then(|s| s.parse().ok()),
            "Core" => found.cpus = row(at, &words, words.len(), |w| w.parse().ok())?,
            "Maximum" => found.max_ns = row(at, &words, cpus, |w| decimal(w, 3)?.try_into().ok())?,
            "Duration" => {
                let seconds = row(at, &words, cpus, |w| w.parse::<f64>().ok().filter(|s| s.is_finite()))?;
                found.observed_s = seconds.into_iter().reduce(f64::min).or(found.observed_s);
            }
            name => {
                let us = name.strip_suffix(" (us)").and_then(|us| us.trim().parse::<u64>().ok());
                let Some(to) = us.and_then(|us| us.checked_mul(1000)).filter(|to| *to > 1000) else {
                    continue;
                };
                let counts = row(at, &words, cpus, |w| w.parse().ok())?;
                match values.contains("including overflows") {
                    true => (found.over, found.over_from_ns) = (counts, Some(to - 1000)),
                    false => found.buckets.push((to - 1000, to, counts)),
                }
            }
        }
    }
    Ok(found)
}

impl Histogram {
    fn trace(self) -> Result<Trace, Problem> {
        if self.cpus.is_empty() || self.buckets.is_empty() && self.over.is_empty() {
            return Err(Problem::Empty(
                "a histogram: a line with the CPUs, and lines with a length and its counts",
            ));
        }
        let Some(observed_s) = self.observed_s.filter(|s| s.is_finite() && *s > 0.0) else {
            return Err(Problem::Meta(
                "the histogram does not say how long it was measured (`# Duration:` of rtla, `Duration:` or `Total runtime:` of \
                 oslat): its rates are not known"
                    .into(),
            ));
        };
        let mut trace = TraceBuilder::new();
        let source = trace.source(&Source::Unexplained)?;
        let mut all_beyond = Vec::new();
        for (column, &cpu) in self.cpus.iter().enumerate() {
            // each CPU has random numbers of its own, and the same each time the file is read
            let mut random = ChaCha8Rng::seed_from_u64(cpu.into());
            let span_ns = (observed_s * 1e9) as u64;
            let mut lengths_ns = self.lengths(column, &mut random, &mut trace)?;
            if let Some(beyond) = self.beyond(column) {
                let count = usize::try_from(beyond.count).map_err(|_| Problem::TooManyDetours)?;
                trace.expect(lengths_ns.len().saturating_add(count))?;
                lengths_ns.extend(beyond.lengths_ns());
                all_beyond.push(beyond);
            }
            lengths_ns.shuffle(&mut random);
            let Some(starts_ns) = placed(&lengths_ns, span_ns, &mut random) else {
                return Err(Problem::Meta(format!(
                    "the detours of CPU {cpu} are longer than the {observed_s} s of the observation"
                )));
            };
            for (start_ns, duration_ns) in starts_ns.into_iter().zip(lengths_ns) {
                trace.push(Detour { node: 0, cpu, start_ns, duration_ns, source })?;
            }
        }
        if let Some(note) = beyond::note(&all_beyond) {
            trace.note(note);
        }
        if let Some(width) = self.guessed_width_ns {
            trace.note(format!(
                "the file does not state the width of its buckets: it is taken to be {} µs",
                width as f64 / 1e3
            ));
        }
        trace.note(
            "a histogram has no instants: its detours are placed at random, on each CPU by itself. What is periodic, and what CPUs have \
             in common, is not known",
        );
        trace.build_foreign(Stated {
            threshold_ns: self.threshold_ns,
            cpus: Some(self.cpus.iter().map(|cpu| usize::from(*cpu)).collect()),
            observed_s: Some(observed_s),
            start_ns: Some(0),
            has_random_instants: true,
            ..Stated::default()
        })
    }

    /// The end of the last bucket, nanoseconds.
    fn last_ns(&self) -> u64 {
        self.over_from_ns.or_else(|| self.buckets.iter().map(|(_, to, _)| *to).max()).unwrap_or(0)
    }

    fn stated_max_ns(&self, column: usize) -> Option<u64> {
        self.max_ns.get(column).copied().filter(|max| *max > 0)
    }

    /// The lengths of the detours in the buckets of a column, anywhere in their buckets.
    fn lengths(
        &self,
        column: usize,
        random: &mut ChaCha8Rng,
        trace: &mut TraceBuilder,
    ) -> Result<Vec<u64>, Problem> {
        let mut lengths_ns = Vec::new();
        let stated_max_ns = self.stated_max_ns(column);
        for (from_ns, to_ns, counts) in &self.buckets {
            let count = usize::try_from(counts[column]).map_err(|_| Problem::TooManyDetours)?;
            trace.expect(lengths_ns.len().saturating_add(count))?;
            // none is longer than the longest, which is known to a microsecond
            let to_ns = stated_max_ns.map_or(*to_ns, |max| (*to_ns).min(max + 1000)).max(*from_ns);
            lengths_ns.extend((0..count).map(|_| random.random_range(*from_ns..=to_ns)));
        }
        Ok(lengths_ns)
    }

    /// The detours of a column beyond the last bucket.
    fn beyond(&self, column: usize) -> Option<Beyond> {
        let count = self.over.get(column).copied().filter(|count| *count > 0)?;
        let from_ns = self.last_ns();
        let longest_ns = self.stated_max_ns(column).unwrap_or(from_ns).max(from_ns);
        let sum = self.mean.get(column).copied().flatten().map(|mean| self.sum_beyond(column, count, mean));
        Some(Beyond { cpu: self.cpus.get(column).copied()?, count, from_ns, longest_ns, sum })
    }

    /// Bounds of the sum of the `over` detours beyond the last bucket: that of all detours, less that of the buckets. rtla rounds each length
    /// down before it takes the average, so that half a unit is added for each but the longest, which the file has rounded down, too.
    fn sum_beyond(&self, column: usize, over: u64, mean: Bounds) -> Bounds {
        let unit = self.unit_ns as f64;
        let (mut count, mut least, mut most) = (over as f64, 0.0, 0.0);
        for (from_ns, to_ns, counts) in &self.buckets {
            let n = counts[column] as f64;
            count += n;
            least += n * *from_ns as f64;
            most += n * (to_ns.saturating_sub(self.unit_ns).max(*from_ns)) as f64;
        }
        let rounding = (over - 1) as f64 * unit / 2.0;
        Bounds {
            low_ns: mean.low_ns * count - most + rounding,
            high_ns: mean.high_ns * count - least + rounding,
        }
    }
}

/// Starts of detours of these lengths, in order, that do not overlap within `span_ns`; `None` if they are too long for it.
fn placed(lengths_ns: &[u64], span_ns: u64, random: &mut ChaCha8Rng) -> Option<Vec<i64>> {
    let taken_ns = lengths_ns.iter().try_fold(0u64, |sum, ns| sum.checked_add(*ns))?;
    let free_ns = span_ns.checked_sub(taken_ns)?;
    let mut free_before: Vec<u64> = lengths_ns.iter().map(|_| random.random_range(0..=free_ns)).collect();
    free_before.sort_unstable();
    let mut before_ns = 0;
    let start = |(free, length): (u64, &u64)| {
        let start_ns = free + before_ns;
        before_ns += length;
        i64::try_from(start_ns).ok()
    };
    free_before.into_iter().zip(lengths_ns).map(start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{Format, parse};
    use proptest::prelude::*;

    const RTLA: &str = "\
# RTLA osnoise histogram
# Time unit is microseconds (us)
# Duration:   0 00:01:00
Index   CPU-000   CPU-003
0           430         0
1            20         0
7             3         0
over:         2         0
count:      455         0
min:          0         -
avg:          0         -
max:        275         -
";

    #[test]
    fn the_average_gives_the_detours_beyond_the_last_bucket_their_mean() {
        // 20 + 21 µs in the buckets; 300 + 3 · 20 µs beyond them, rounded down
        let text = RTLA.replace("430 ", "  3 ").replace("over:         2", "over:         4");
        let with =
            |avg: &str| parse(text.replace("avg:          0", avg).as_bytes(), Format::Histogram).expect(avg);
        let beyond = |trace: &Trace| lengths(trace, 0)[26..].to_vec();
        // (20 + 21 + 275 + 3 · 20) / 30 = 12.53: between 59.75 and 60.05 µs of the three others
        let derived = with("avg:      12.53");
        let found = beyond(&derived);
        assert_eq!((found.len(), found[3]), (4, 275_000));
        let mean = found[..3].iter().sum::<u64>() as f64 / 3.0;
        assert!((mean - 20_467.0).abs() < 100.0, "half a microsecond of rounding each: {mean}");
        let notes = derived.meta.notes.join("\n");
        assert!(
            notes.contains("4 detours of CPU 0 are beyond")
                && notes.contains("a mean (20 to 21 µs on CPU 0)"),
            "{notes}"
        );
        // without an average, and with one that contradicts the buckets, they lie evenly
        for avg in ["avg:          -", "avg:       1.00"] {
            let even = with(avg);
            let found = beyond(&even);
            assert!(found[0] > 50_000 && found[2] < 240_000 && found[3] == 275_000, "{found:?}");
            let notes = even.meta.notes.join("\n");
            assert!(notes.contains("evenly between 8 and 275 µs on CPU 0"), "{notes}");
        }
        // whole numbers are the whole part of the average: 12 to 13 µs of 30 detours
        let notes = with("avg:         12").meta.notes.join("\n");
        assert!(notes.contains("a mean (15 to 25 µs on CPU 0)"), "{notes}");
        assert!(
            parse(RTLA.replace("avg:          0", "avg:          x").as_bytes(), Format::Histogram).is_err()
        );
    }

    const OSLAT: &str = "\
oslat V 2.40
Total runtime: \t\t30 seconds
Workload: \t\tno
        Core:\t 2 3
Counter Freq:\t 2095 2095 (Mhz)
    001 (us):\t 1012345678 1011111111
    002 (us):\t 5 0
    018 (us):\t 1 0
     Minimum:\t 1 1 (us)
     Maximum:\t 18 1 (us)
    Duration:\t 29.98 29.99 (sec)
";

    fn lengths(trace: &Trace, cpu: u16) -> Vec<u64> {
        let mut lengths: Vec<u64> =
            trace.detours.iter().filter(|d| d.cpu == cpu).map(|d| d.duration_ns).collect();
        lengths.sort_unstable();
        lengths
    }

    #[test]
    fn a_histogram_of_rtla_has_its_counts_lengths_and_time() {
        let trace = parse(RTLA.as_bytes(), Format::Histogram).expect("a histogram");
        assert_eq!((trace.meta.cpus.to_string(), trace.meta.observed_s), ("0,3".to_owned(), 60.0));
        let found = lengths(&trace, 0);
        assert_eq!((found.len(), lengths(&trace, 3).len()), (455, 0));
        assert!(
            found[429] <= 1000 && (1000..=2000).contains(&found[449]) && (7000..=8000).contains(&found[452])
        );
        assert!((8000..=275_000).contains(&found[453]) && found[454] == 275_000, "{:?}", &found[450..]);
        let has_note = |part: &str| trace.meta.notes.iter().any(|note| note.contains(part));
        assert!(
            has_note("placed at random") && has_note("2 detours of CPU 0 are beyond"),
            "{:?}",
            trace.meta.notes
        );
        assert_eq!(parse(RTLA.as_bytes(), Format::Histogram).expect("again"), trace, "the same each time");
    }

    #[test]
    fn a_histogram_of_oslat_has_no_detours_below_a_microsecond() {
        let trace = parse(OSLAT.as_bytes(), Format::Histogram).expect("a histogram");
        assert_eq!((trace.meta.cpus.to_string(), trace.meta.observed_s), ("2-3".to_owned(), 29.98));
        let found = lengths(&trace, 2);
        assert_eq!((found.len(), lengths(&trace, 3).len()), (6, 0));
        assert!((1000..=2000).contains(&found[0]) && (17_000..=18_000).contains(&found[5]), "{found:?}");
        assert_eq!(trace.meta.threshold_ns, 1000);
    }

    #[test]
    fn the_longest_detour_is_that_of_the_file() {
        let over = OSLAT
            .replace("018 (us):\t 1 0", "032 (us):\t 2 0 (including overflows)")
            .replace("18 1 (us)", "275 1 (us)");
        let found = lengths(&parse(over.as_bytes(), Format::Histogram).expect("a histogram"), 2);
        assert!(found.len() == 7 && found[6] == 275_000 && found[5] > 31_000, "{found:?}");
        let wide = "# RTLA osnoise histogram\n# Duration: 0 00:00:01\nIndex CPU-000\n0 3\n10 2\n20 1\n40 1\nmax: 40\n";
        let trace = parse(wide.as_bytes(), Format::Histogram).expect("a histogram");
        assert!(lengths(&trace, 0)[6] <= 41_000, "{trace:?}");
        assert!(trace.meta.notes[0].contains("taken to be 10 µs"), "{:?}", trace.meta.notes);
        assert!(trace.meta.has_random_instants && crate::periodic::of_trace(&trace).is_empty());
    }

    #[test]
    fn what_is_missing_in_a_histogram_is_named() {
        for (text, says) in [
            (RTLA.replace("# Duration:   0 00:01:00\n", ""), "does not say how long it was measured"),
            (RTLA.replace("20         0", "20"), "line 6: expected a number for each of the 2 CPUs"),
            (RTLA.replace("0 00:01:00", "0 00:00:00.0003"), "longer than the 0.0003 s"),
            ("# RTLA osnoise histogram\n".to_owned(), "expected a histogram"),
            (RTLA.replace("CPU-003", "irq"), "expected CPU-000"),
            (RTLA.repeat(2), "line 16: a second histogram begins here"),
        ] {
            let error = parse(text.as_bytes(), Format::Histogram).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        let many = RTLA.replace("430 ", "99999999999999999999");
        assert!(parse(many.as_bytes(), Format::Histogram).is_err());
        let too_many = RTLA.replace("430 ", "999999999999");
        assert!(matches!(parse(too_many.as_bytes(), Format::Histogram), Err(Problem::TooManyDetours)));
    }

    proptest! {
        #[test]
        fn placed_detours_keep_their_lengths_and_do_not_overlap(
            lengths in prop::collection::vec(0u64..1000, 0..50),
            free in 0u64..10_000,
            seed: u64,
        ) {
            let span = lengths.iter().sum::<u64>() + free;
            let starts = placed(&lengths, span, &mut ChaCha8Rng::seed_from_u64(seed)).expect("room");
            let ends: Vec<i64> = starts.iter().zip(&lengths).map(|(s, l)| s + *l as i64).collect();
            prop_assert!(starts.iter().skip(1).zip(&ends).all(|(next, end)| next >= end));
            prop_assert!(ends.last().is_none_or(|end| *end <= span as i64));
        }

        #[test]
        fn no_text_panics(text in "(# RTLA osnoise histogram\n)?(oslat V\n)?([a-zA-Z0-9:#.\\-() \n]{0,200})") {
            let _ = parse(text.as_bytes(), Format::Histogram);
        }
    }
}
