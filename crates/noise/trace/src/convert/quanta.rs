// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the fixed-quantum benchmarks, which measure noise without seeing a single detour (Sottile and Minnich, "Analysis of
//! microbenchmarks for performance tuning of clusters", Cluster 2004).
//!
//! FTQ counts the work that is done in each quantum of time. FWQ times pieces of equal work:
//!
//! ```text
//! # Frequency 1000.000000      ftq      Speed: process 0, cycles …, seconds …, GHz 2.100000     fwq-mpi
//! # Ticks per ns: 2.6                   Process 0 running on CPUs 3
//! # thread 0, core 3                    21012345
//! 0 31232                               21012388
//! 1000012 31229
//! ```
//!
//! The work that is missing in a quantum, or the time by which a piece took longer than the shortest, is one detour. It is placed at a
//! random instant of its quantum: a fixed one would be a period that no noise has.

use std::io::BufRead;

use colony_node::cpu::CpuSet;
use colony_time::text::rounded_ns;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::text::{Header, Lines, decimal};
use crate::Source;
use crate::trace::{Detour, OtherFile, Problem, Trace, TraceBuilder};

/// The two benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Benchmark {
    /// Fixed time quanta.
    Ftq,
    /// Fixed work quanta.
    Fwq,
}

/// Lines that say the unit of times, for an error.
const UNITS: &str =
    "add the line `# Ticks per ns: 2.1` with the clock rate in GHz, or `# unit: ns`, to its top";
/// The line that says the length of a quantum, for an error.
const FREQUENCY: &str = "add the line `# Frequency 1000` with the number of quanta a second to its top";
/// Rows that show whether a file is a list of numbers.
const ROWS: usize = 100;
/// Values that a CPU needs: each is compared with the best of them, and the best of fewer may have noise in it, too.
const LEAST_VALUES: usize = 16;

/// The benchmark that wrote a file which begins with `text`, if a header says so.
pub(super) fn of_content(text: &str) -> Option<Benchmark> {
    let comments = || text.lines().filter_map(comment);
    let has = |part: &str| comments().any(|line| line.contains(part));
    let begins = |start: &str| comments().any(|line| line.starts_with(start));
    let is_fwq = has("fixed work quantum")
        || has("benchmark method: fwq")
        || text.lines().any(|line| speed(line).is_some() || process(line).is_some());
    if is_fwq {
        return Some(Benchmark::Fwq);
    }
    let is_ftq = has("fixed time quantum")
        || has("benchmark method: ftq")
        || begins("octave: pkg load signal")
        || begins("total count is");
    if is_ftq || begins("frequency") && columns(text, 1).is_some() {
        return Some(Benchmark::Ftq);
    }
    let is_list = columns(text, ROWS) == Some(1);
    (is_list && (begins("ticks per ns") || begins("unit:"))).then_some(Benchmark::Fwq)
}

/// A list of numbers without a header: it may be that of either benchmark.
pub(super) fn without_header(text: &str) -> Option<OtherFile> {
    (columns(text, ROWS) == Some(1)).then(|| {
        OtherFile::new(
            "a list of numbers, as FWQ writes times and FTQ counts of work, and nothing in it says which",
            "add to its top, for FWQ, the lines `# Fixed Work Quantum` and `# Ticks per ns: 2.1` (the clock rate in GHz); for FTQ, the lines \
             `# Fixed Time Quantum` and `# Frequency 1000` (quanta a second)",
        )
    })
}

/// The number of columns of the first `rows` rows, if all are numbers and have as many.
fn columns(text: &str, rows: usize) -> Option<usize> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.take(rows);
    let count = |row: &str| {
        let mut words = row.split_whitespace();
        words.all(|word| decimal(word, 0).is_some()).then(|| row.split_whitespace().count())
    };
    let counts: Vec<usize> = rows.map(count).collect::<Option<_>>()?;
    let first = *counts.first()?;
    (first <= 2 && counts.iter().all(|n| *n == first)).then_some(first)
}

/// The text of a comment, in small letters.
fn comment(line: &str) -> Option<String> {
    let text = line.trim_start().strip_prefix('#')?;
    (text.len() < 200).then(|| text.trim().to_ascii_lowercase())
}

/// `Speed: process 0, cycles 21, seconds 1.0, GHz 2.1`: the number of the process or thread and its clock rate.
fn speed(line: &str) -> Option<(u32, f64)> {
    let (which, rest) = line.trim().strip_prefix("Speed: ")?.split_once(',')?;
    let number = which.strip_prefix("process ").or_else(|| which.strip_prefix("thread "))?;
    let ghz =
        rest.rsplit_once("GHz ")?.1.trim().parse().ok().filter(|ghz: &f64| ghz.is_finite() && *ghz > 0.0)?;
    Some((number.trim().parse().ok()?, ghz))
}

/// `Process 0 running on CPUs 3`: the number of the process or thread and its CPUs.
fn process(line: &str) -> Option<(u32, CpuSet)> {
    let (which, cpus) = line.trim().split_once(" running on CPUs ")?;
    let number = which.strip_prefix("Process ").or_else(|| which.strip_prefix("Thread "))?;
    Some((number.trim().parse().ok()?, cpus.trim().trim_end_matches(',').parse().ok()?))
}

/// The rows of one CPU.
#[derive(Debug, Default)]
struct Rows {
    /// Process or thread, and the CPUs on which it ran.
    process: Option<(u32, CpuSet)>,
    /// The column before the values, if there is one.
    first: Vec<u64>,
    values: Vec<u64>,
}

/// A file as it stands.
#[derive(Debug, Default)]
struct File {
    header: Header,
    /// Quanta a second.
    frequency_hz: Option<f64>,
    /// Nanoseconds of the unit of times.
    unit_ns: Option<f64>,
    core: Option<u16>,
    is_not_wired: bool,
    /// Clock rates of processes, GHz.
    speeds: Vec<(u32, f64)>,
    lanes: Vec<Rows>,
}

impl File {
    fn read(input: impl BufRead) -> Result<Self, Problem> {
        let (mut file, mut lines) = (Self::default(), Lines::new(input));
        let mut room = TraceBuilder::new();
        let mut rows = 0usize;
        while let Some(line) = lines.next()? {
            let line = line.trim();
            if line.starts_with('#') {
                file.header.comment(line)?;
                file.comment(&comment(line).unwrap_or_default()).map_err(|reason| lines.wrong(reason))?;
            } else if let Some(speed) = speed(line) {
                file.speeds.push(speed);
            } else if let Some(process) = process(line) {
                file.lanes.push(Rows { process: Some(process), ..Rows::default() });
            } else if !line.is_empty() {
                rows += 1;
                if rows.is_power_of_two() {
                    room.expect(rows)?;
                }
                file.row(line).map_err(|reason| lines.wrong(reason))?;
            }
        }
        file.lanes.retain(|lane| !lane.values.is_empty());
        match file.lanes.is_empty() {
            true => Err(Problem::Empty("a row with a number for each quantum")),
            false => Ok(file),
        }
    }

    fn comment(&mut self, text: &str) -> Result<(), String> {
        let number = |key: &str| {
            let rest = text.strip_prefix(key)?.trim_start_matches([':', ' ', '=']);
            let value = rest.split_whitespace().next()?.parse::<f64>().ok();
            Some(
                value
                    .filter(|v| v.is_finite() && *v > 0.0)
                    .ok_or(format!("`{key}` must be a number above 0")),
            )
        };
        if let Some(hz) = number("frequency").transpose()? {
            self.frequency_hz = Some(hz);
        } else if let Some(ticks) = number("ticks per ns").transpose()? {
            self.unit_ns = Some(1.0 / ticks);
        } else if let Some(unit) = text.strip_prefix("unit:") {
            self.unit_ns = Some(match unit.trim() {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                _ => return Err("`unit` must be ns, us, ms or s".into()),
            });
        } else if text.contains("duration [us]") {
            self.unit_ns = Some(1e3);
        } else if let Some((_, core)) = text.split_once(", core ").filter(|_| text.starts_with("thread ")) {
            self.core = core.trim().parse().ok();
        }
        self.is_not_wired |= text.starts_with("warning: not wired");
        Ok(())
    }

    fn row(&mut self, line: &str) -> Result<(), String> {
        let number = |word: &str| decimal(word, 0).and_then(|v| u64::try_from(v).ok());
        let words: Vec<Option<u64>> = line.split_whitespace().take(3).map(number).collect();
        let (first, value) = match words[..] {
            [Some(value)] => (None, value),
            [Some(first), Some(value)] => (Some(first), value),
            _ => {
                let shown: String = line.chars().take(60).collect();
                return Err(format!(
                    "expected the number of a quantum, or a time and a number, found `{shown}`"
                ));
            }
        };
        if self.lanes.is_empty() {
            self.lanes.push(Rows::default());
        }
        let Some(lane) = self.lanes.last_mut() else { return Ok(()) };
        if !lane.values.is_empty() && first.is_some() == lane.first.is_empty() {
            return Err("this row has another number of columns than those before".into());
        }
        lane.first.extend(first);
        lane.values.push(value);
        Ok(())
    }

    /// The CPUs of the lanes, with notes on those that the file does not name for certain.
    fn cpus(&self, trace: &mut TraceBuilder) -> Result<Vec<u16>, Problem> {
        let mut used: Vec<u16> = Vec::new();
        for lane in &self.lanes {
            let cpu = match &lane.process {
                Some((number, cpus)) => {
                    let cpu =
                        cpus.iter().find_map(|cpu| u16::try_from(cpu).ok().filter(|cpu| !used.contains(cpu)));
                    let Some(cpu) = cpu else {
                        return Err(Problem::Meta(format!(
                            "process {number} ran on CPUs {cpus}, and each of them has another process; bind each to a CPU of its own"
                        )));
                    };
                    if cpus.len() > 1 {
                        trace.note(format!("process {number} could run on CPUs {cpus}: its times are taken for those of CPU {cpu}"));
                    }
                    cpu
                }
                None => self.core.unwrap_or_else(|| {
                    if self.header.stated().is_ok_and(|stated| stated.cpus.is_none()) {
                        trace.note("the file does not name its CPU: it is taken for CPU 0");
                    }
                    self.header
                        .stated()
                        .ok()
                        .and_then(|stated| stated.cpus?.iter().next()?.try_into().ok())
                        .unwrap_or(0)
                }),
            };
            used.push(cpu);
        }
        if self.is_not_wired {
            trace.note(
                "the benchmark was not bound to its CPU: what moved it to another one is in its counts, too",
            );
        }
        Ok(used)
    }

    /// The trace of lanes with these CPUs, each observed for so many nanoseconds.
    fn trace(self, mut trace: TraceBuilder, cpus: &[u16], spans_ns: &[f64]) -> Result<Trace, Problem> {
        let (shortest, longest) =
            spans_ns.iter().fold((f64::INFINITY, 0f64), |(least, most), ns| (least.min(*ns), most.max(*ns)));
        if longest > shortest * 1.01 {
            trace.note(format!(
                "the processes took {:.3} to {:.3} s: shares are those of the longest time",
                shortest / 1e9,
                longest / 1e9
            ));
        }
        let mut stated = self.header.stated()?;
        let start_ns = *stated.start_ns.get_or_insert(0);
        trace.shift(start_ns);
        stated.observed_s.get_or_insert(longest / 1e9);
        stated.cpus.get_or_insert(cpus.iter().map(|cpu| usize::from(*cpu)).collect());
        trace.build_foreign(stated)
    }
}

/// Adds a detour of `length_ns` at a random instant of a quantum.
fn push(
    trace: &mut TraceBuilder,
    random: &mut ChaCha8Rng,
    cpu: u16,
    (from_ns, to_ns): (f64, f64),
    length_ns: f64,
) -> Result<(), Problem> {
    // a shorter one is rounding
    if length_ns < 0.5 {
        return Ok(());
    }
    let room_ns = (to_ns - from_ns - length_ns).max(0.0);
    let start_ns = from_ns + room_ns * random.random::<f64>();
    if start_ns + length_ns >= i64::MAX as f64 {
        return Err(Problem::Meta("its times are beyond those that there are; is their unit right?".into()));
    }
    let source = trace.source(&Source::Unexplained)?;
    let (start_ns, end_ns) = (start_ns.floor() as i64, (start_ns + length_ns).floor() as i64);
    trace.push(Detour { node: 0, cpu, start_ns, duration_ns: end_ns.abs_diff(start_ns), source })
}

/// Reads a result of FWQ.
pub(super) fn read_fwq(input: impl BufRead) -> Result<Trace, Problem> {
    let file = File::read(input)?;
    let mut trace = TraceBuilder::new();
    let cpus = file.cpus(&mut trace)?;
    let mut spans_ns = Vec::new();
    for (lane, &cpu) in file.lanes.iter().zip(&cpus) {
        if lane.first.iter().zip(0..).any(|(first, i)| *first != i) {
            return Err(Problem::Meta(
                "its first column is not 0, 1, 2, …, and FWQ counts its pieces there".into(),
            ));
        }
        let speed = lane.process.as_ref().and_then(|(n, _)| file.speeds.iter().find(|(of, _)| of == n));
        let Some(unit_ns) = speed.map(|(_, ghz)| 1.0 / ghz).or(file.unit_ns) else {
            return Err(Problem::Meta(format!("the file does not state the unit of FWQ's times; {UNITS}")));
        };
        let least = lane.values.iter().copied().min().unwrap_or(0);
        if least == 0 {
            let row = lane.values.iter().position(|value| *value == 0).unwrap_or(0) + 1;
            return Err(Problem::Meta(format!(
                "row {row} says that a piece of work took no time; remove it, or measure again"
            )));
        }
        lane.check_count(cpu, "pieces of work", "time")?;
        lane.doubt(&mut trace, cpu, "the shortest piece of work", least);
        trace.note(format!(
            "the shortest piece of work on CPU {cpu}, {:.3} µs, is taken for one without noise; the excess of each other one is one detour. \
             Noise that is in every piece is not seen",
            least as f64 * unit_ns / 1e3
        ));
        let mut random = ChaCha8Rng::seed_from_u64(cpu.into());
        let mut sum = 0u64;
        for &value in &lane.values {
            let from_ns = sum as f64 * unit_ns;
            sum = sum.saturating_add(value);
            let quantum = (from_ns, sum as f64 * unit_ns);
            push(&mut trace, &mut random, cpu, quantum, (value - least) as f64 * unit_ns)?;
        }
        spans_ns.push(sum as f64 * unit_ns);
    }
    trace.note(
        "instants are sums of the times before, and known to a piece of work: detours are placed at random in theirs. The time between two \
         pieces is not in the file",
    );
    file.trace(trace, &cpus, &spans_ns)
}

/// Reads a result of FTQ.
pub(super) fn read_ftq(input: impl BufRead) -> Result<Trace, Problem> {
    let file = File::read(input)?;
    let mut trace = TraceBuilder::new();
    let cpus = file.cpus(&mut trace)?;
    let Some(quantum_ns) = file.frequency_hz.map(|hz| 1e9 / hz) else {
        return Err(Problem::Meta(format!(
            "the file does not state how long a quantum of FTQ is; {FREQUENCY}"
        )));
    };
    let mut spans_ns = Vec::new();
    for (lane, &cpu) in file.lanes.iter().zip(&cpus) {
        lane.check_ftq(quantum_ns)?;
        let most = lane.values.iter().copied().max().unwrap_or(0);
        if most == 0 {
            return Err(Problem::Meta("no quantum has any work: the counts are all 0".into()));
        }
        lane.check_count(cpu, "quanta", "count")?;
        lane.doubt(&mut trace, cpu, "the largest work of a quantum", most);
        trace.note(format!(
            "the largest work of a quantum of {:.3} µs, {most}, is taken for one without noise; what is missing in each other one is one \
             detour. Noise that is in every quantum is not seen",
            quantum_ns / 1e3
        ));
        let mut random = ChaCha8Rng::seed_from_u64(cpu.into());
        for (i, &value) in lane.values.iter().enumerate() {
            let quantum = (i as f64 * quantum_ns, (i + 1) as f64 * quantum_ns);
            let missing = (most - value) as f64 / most as f64;
            push(&mut trace, &mut random, cpu, quantum, missing * quantum_ns)?;
        }
        spans_ns.push(lane.values.len() as f64 * quantum_ns);
    }
    trace.note("instants are known to a quantum: detours are placed at random in theirs");
    file.trace(trace, &cpus, &spans_ns)
}

/// Share by which a value that all others are compared with may differ from most of them.
const USUAL: f64 = 0.1;

impl Rows {
    /// Checks that the best of so many values can stand for a CPU without noise.
    fn check_count(&self, cpu: u16, what: &str, value: &str) -> Result<(), Problem> {
        let count = self.values.len();
        match count < LEAST_VALUES {
            true => Err(Problem::Meta(format!(
                "it has {count} {what} of CPU {cpu}, and the best {value} of so few may have noise in it, too; measure at least \
                 {LEAST_VALUES}, better thousands"
            ))),
            false => Ok(()),
        }
    }

    /// Adds a note if `extreme`, which all rows are compared with, is far from nearly all of them.
    fn doubt(&self, trace: &mut TraceBuilder, cpu: u16, what: &str, extreme: u64) {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let (at, last) = (sorted.len() / 100, sorted.len().saturating_sub(1));
        let near = if extreme == sorted[0] { sorted[at] } else { sorted[last - at] };
        if at > 0 && (extreme as f64 / near as f64 - 1.0).abs() > USUAL {
            trace.note(format!(
                "{what} on CPU {cpu}, {extreme}, is far from 99 of 100 others ({near}), and all shares depend on it: if it is an error of the \
                 benchmark, remove its row"
            ));
        }
    }

    /// Checks that the rows can be those of FTQ with this quantum.
    fn check_ftq(&self, quantum_ns: f64) -> Result<(), Problem> {
        let (rows, values) = (self.values.len(), &self.values);
        if self.first.is_empty() && rows >= LEAST_VALUES && values.windows(2).all(|w| w[0] < w[1]) {
            return Err(Problem::OtherFile(OtherFile::new(
                "a list of the instants of FTQ's quanta (ftq_*_times.dat), without their work",
                "read the file with the counts (ftq_*_counts.dat), with the line `# Frequency` on top",
            )));
        }
        let is_index = self.first.iter().zip(0..).all(|(first, i)| *first == i);
        let last_ns = self.first.last().map_or(0, |ns| ns.saturating_sub(self.first[0]));
        let ratio = last_ns as f64 / ((rows - 1) as f64 * quantum_ns);
        if !is_index && rows >= LEAST_VALUES && !(0.8..1.25).contains(&ratio) {
            return Err(Problem::Meta(format!(
                "its {rows} quanta take {} by its first column, and {} by its frequency; write the times in ns, or correct \
                 the line `# Frequency`",
                rounded_ns(last_ns as f64),
                rounded_ns((rows - 1) as f64 * quantum_ns)
            )));
        }
        Ok(())
    }
}
