// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::Path;

use colony_node::record::NodeRecord;
use colony_time::tsc::Calibration;
use serde::{Deserialize, Serialize};

use crate::{BenchError, Distribution, Params};

/// The result of a run of a benchmark program, with all that is needed to run it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`SCHEMA`](Self::SCHEMA).
    pub schema: String,
    /// Version of `colony-bench`.
    pub version: String,
    /// The parameters, seed included.
    pub params: Params,
    /// Ranks of the run.
    pub ranks: u32,
    /// Nodes the ranks were on, each once.
    pub hosts: Vec<String>,
    /// The MPI library.
    pub mpi: MpiRecord,
    /// The state of rank 0's node before the run.
    pub node: NodeRecord,
    /// Rank 0's counter.
    pub counter: Calibration,
    /// Start of the run, TAI nanoseconds.
    pub start_ns: i64,
    /// Length of the run, everything included.
    pub wall_s: f64,
    /// One measurement; `glob` has one for each communicator size, ascending.
    pub results: Vec<Measurement>,
    /// The same loop in C, where asked for.
    pub comparison: Option<Comparison>,
}

/// The MPI library a run used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiRecord {
    /// The first line of the library's own description.
    pub library: String,
    /// Version of the standard.
    pub standard: String,
}

/// Operations on one communicator, all ranks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Operations each rank took part in.
    pub ops: u64,
    /// Time in operations, of the rank with the most.
    pub seconds: f64,
    /// Time between stretches, spent on the record and no part of `seconds`; of the rank with the most.
    pub excluded_s: f64,
    /// Stretches that left a wrong value, over all ranks; not 0 means the MPI library computes wrongly.
    pub wrong: u64,
    /// All operations of all ranks.
    pub all: Distribution,
    /// Operations that started in a favored window.
    pub favored: Option<Distribution>,
    /// Operations that started in a regular window.
    pub regular: Option<Distribution>,
    /// The slowest, the longest first; one slow operation usually shows on many ranks.
    pub slowest: Vec<SlowOp>,
    /// The course of the run.
    pub timeline: Option<Timeline>,
    /// Each rank, ascending.
    pub per_rank: Vec<RankRecord>,
    /// The work of `bsp`.
    pub work: Option<WorkRecord>,
}

/// A slow operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowOp {
    /// Rank that saw it.
    pub rank: u32,
    /// Its start there, TAI nanoseconds.
    pub start_ns: i64,
    /// Its length there.
    pub duration_ns: u64,
}

/// The course of a run in buckets of equal length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a bucket; buckets start at its multiples in TAI.
    pub bucket_ns: u64,
    /// Start (TAI), operations that started in it (of the rank with the most), the longest of them (of any
    /// rank) in nanoseconds; ascending, buckets without operations left out.
    pub buckets: Vec<(i64, u64, u64)>,
}

/// The record of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// Its number in the world.
    pub rank: u32,
    /// Its node.
    pub host: String,
    /// The CPU it was on at the end.
    pub cpu: usize,
    /// Time in operations.
    pub seconds: f64,
    /// Mean operation.
    pub mean_ns: f64,
    /// Longest operation.
    pub max_ns: u64,
    /// Its detours, where it had some.
    pub detours: Option<DetourRecord>,
}

/// The detours a rank made, as its signal handler saw them; the signal's delivery (1 to 2 µs) comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DetourRecord {
    /// Detours that began while operations were timed.
    pub timed: u64,
    /// All detours, those in the warm-up and between stretches included.
    pub ran: u64,
    /// Detours that were due and did not run, since an earlier one or another task was in the way.
    pub missed: u64,
    /// Mean length.
    pub mean_ns: f64,
    /// Median length of the last 4096.
    pub p50_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Sum of those that were timed.
    pub stolen_s: f64,
}

/// The fixed work of a `bsp` operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkRecord {
    /// Turns of the work loop; the same on every rank.
    pub loops: u64,
    /// Nanoseconds of a turn on an undisturbed CPU.
    pub turn_ns: f64,
    /// Mean operation over the undisturbed work: 1 is a run without noise and with a free barrier.
    pub slowdown: f64,
}

/// The same allreduce loop in Rust and in C, in alternating blocks of one run; rank 0's times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Operations of a block.
    pub ops: u64,
    /// Median over the blocks of the mean operation in Rust.
    pub rust_ns: f64,
    /// The same in C, with the same stamp after each operation.
    pub c_ns: f64,
    /// The same in C, without stamps: what the record costs.
    pub bare_c_ns: f64,
    /// `rust_ns / c_ns`.
    pub ratio: f64,
    /// `rust_ns / bare_c_ns`.
    pub bare_ratio: f64,
    /// Mean operation of each block, in order: Rust, C, bare C.
    pub blocks_ns: Vec<[f64; 3]>,
}

impl Comparison {
    /// From the blocks' means.
    #[must_use]
    pub fn new(ops: u64, blocks_ns: Vec<[f64; 3]>) -> Self {
        let median = |which: usize| {
            let mut v: Vec<f64> = blocks_ns.iter().map(|b| b[which]).collect();
            v.sort_unstable_by(f64::total_cmp);
            v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let (rust_ns, c_ns, bare_c_ns) = (median(0), median(1), median(2));
        Self {
            ops,
            rust_ns,
            c_ns,
            bare_c_ns,
            ratio: rust_ns / c_ns,
            bare_ratio: rust_ns / bare_c_ns,
            blocks_ns,
        }
    }
}

impl Timeline {
    /// Counts an operation that started at `at_ns` (TAI) and took `ns`.
    pub(crate) fn add(&mut self, at_ns: i64, ns: u64) {
        let start_ns = at_ns - at_ns.rem_euclid(self.bucket_ns as i64);
        match self.buckets.last_mut() {
            Some(last) if last.0 == start_ns => {
                last.1 += 1;
                last.2 = last.2.max(ns);
            }
            _ => self.buckets.push((start_ns, 1, ns)),
        }
    }

    fn merge(&mut self, other: Self) {
        self.buckets.extend(other.buckets);
        self.buckets.sort_unstable_by_key(|b| b.0);
        self.buckets.dedup_by(|from, into| {
            let same = from.0 == into.0;
            if same {
                *into = (into.0, into.1.max(from.1), into.2.max(from.2));
            }
            same
        });
    }
}

impl Measurement {
    /// Adds what other ranks measured, keeping the `keep` slowest operations.
    #[must_use]
    pub fn merged(mut self, other: Self, keep: usize) -> Self {
        let both = |a: Option<Distribution>, b: Option<Distribution>| match (a, b) {
            (Some(a), Some(b)) => Some(a.merged(b)),
            (a, b) => a.or(b),
        };
        self.ops = self.ops.max(other.ops);
        self.seconds = self.seconds.max(other.seconds);
        self.excluded_s = self.excluded_s.max(other.excluded_s);
        self.wrong += other.wrong;
        self.all = self.all.merged(other.all);
        self.favored = both(self.favored, other.favored);
        self.regular = both(self.regular, other.regular);
        self.slowest.extend(other.slowest);
        self.slowest.sort_by_key(|s| std::cmp::Reverse(s.duration_ns));
        self.slowest.truncate(keep);
        match (&mut self.timeline, other.timeline) {
            (Some(mine), Some(other)) => mine.merge(other),
            (mine, other) => *mine = mine.take().or(other),
        }
        self.per_rank.extend(other.per_rank);
        self.per_rank.sort_by_key(|r| r.rank);
        self.work = self.work.or(other.work);
        self
    }
}

impl BenchResult {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.bench/2";

    /// The measurement on all ranks.
    #[must_use]
    pub fn whole(&self) -> Option<&Measurement> {
        self.results.last()
    }

    /// Reads a result from JSON; `from` names its origin in errors.
    ///
    /// # Errors
    /// [`BenchError::Output`] where the text is no result of this schema.
    pub fn parse(text: &str, from: &str) -> Result<Self, BenchError> {
        let error = |reason: String| BenchError::Output { from: from.to_owned(), reason };
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| error(e.to_string()))?;
        Self::check_schema(&value).map_err(error)?;
        serde_json::from_value(value).map_err(|e| error(e.to_string()))
    }

    /// Checks that a JSON document is a result of the schema that this version reads.
    ///
    /// # Errors
    /// The schema found, the schema needed, and the remedy, as one clause.
    pub fn check_schema(document: &serde_json::Value) -> Result<(), String> {
        let needed = Self::SCHEMA;
        match document.get("schema").and_then(|s| s.as_str()) {
            Some(found) if found == needed => Ok(()),
            Some(found @ "colony.bench/1") => Err(format!(
                "its schema is `{found}` (times in microseconds), not `{needed}` (nanoseconds); run the benchmark \
                 again with this version"
            )),
            Some(found) => {
                let found: String = found.chars().take(40).collect();
                Err(format!("its schema is `{found}`, not `{needed}`"))
            }
            None => Err("it has no field `schema`".into()),
        }
    }

    /// Reads a result file, as `colony-bench --out` writes it.
    ///
    /// # Errors
    /// [`BenchError::Read`] or [`BenchError::Output`].
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| BenchError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Program;
    use colony_time::tsc::CounterKind;
    use proptest::prelude::*;

    fn rank(rank: u32) -> RankRecord {
        RankRecord {
            rank,
            host: "n0".into(),
            cpu: 1,
            seconds: 0.5,
            mean_ns: 2000.0,
            max_ns: 9000,
            detours: Some(DetourRecord { timed: 3, ran: 4, p50_ns: 16_000, ..DetourRecord::default() }),
        }
    }

    fn measurement(r: u32) -> Measurement {
        Measurement {
            ranks: 2,
            ops: 4,
            seconds: f64::from(r),
            all: Distribution::new(vec![(1000, 3), (9000, 1)], 3000.0, 1000, 9000),
            slowest: vec![SlowOp { rank: r, start_ns: 5, duration_ns: 9000 - u64::from(r) }],
            timeline: Some(Timeline {
                bucket_ns: 10,
                buckets: vec![(10, 3, 7 + u64::from(r)), (20 + i64::from(r), 1, 9)],
            }),
            per_rank: vec![rank(r)],
            ..Measurement::default()
        }
    }

    pub(crate) fn example() -> BenchResult {
        BenchResult {
            schema: BenchResult::SCHEMA.into(),
            version: "0.1.0".into(),
            params: Params::new(Program::Allreduce),
            ranks: 2,
            hosts: vec!["n0".into()],
            mpi: MpiRecord { library: "Open MPI v4.1.4, package: Debian".into(), standard: "3.1".into() },
            node: NodeRecord::now(),
            counter: Calibration::measure_kind(CounterKind::Vdso),
            start_ns: 1,
            wall_s: 1.5,
            results: vec![measurement(0).merged(measurement(1), 32)],
            comparison: Some(Comparison::new(
                10,
                vec![[1e3, 2e3, 1e3], [3e3, 2.5e3, 2e3], [2e3, 9e3, 1.5e3]],
            )),
        }
    }

    #[test]
    fn a_result_reads_back_from_its_json() {
        let result = example();
        let text = serde_json::to_string(&result).expect("plain data");
        assert_eq!(BenchResult::parse(&text, "x").expect("own words"), result);
        assert_eq!(result.comparison.expect("given").ratio, 2.0 / 2.5, "of the medians");
    }

    #[test]
    fn merged_ranks_are_all_there_in_any_order() {
        let (a, b, c) = (measurement(0), measurement(1), measurement(2));
        let m = c.clone().merged(a.clone().merged(b.clone(), 2), 2);
        assert_eq!(m, b.merged(a, 2).merged(c, 2));
        assert_eq!(m.per_rank.iter().map(|r| r.rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((m.ops, m.all.count, m.seconds), (4, 12, 2.0));
        assert_eq!(m.slowest.iter().map(|s| s.duration_ns).collect::<Vec<_>>(), [9000, 8999]);
        let timeline = m.timeline.expect("given").buckets;
        assert_eq!(timeline, [(10, 3, 9), (20, 1, 9), (21, 1, 9), (22, 1, 9)]);
    }

    #[test]
    fn other_json_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "no field `schema`"),
            (r#"{"schema":"colony.trace/1"}"#, "colony.trace/1"),
            (r#"{"schema":"colony.bench/2"}"#, "missing field"),
            (
                r#"{"schema":"colony.bench/1"}"#,
                "`colony.bench/1` (times in microseconds), not `colony.bench/2`",
            ),
            (r#"{"schema":"colony.bench/1"}"#, "run the benchmark again with this version"),
        ] {
            let error = BenchResult::parse(text, "here").expect_err("no result").to_string();
            assert!(error.contains(reason) && error.starts_with("here"), "{error}");
        }
        assert!(BenchResult::read(Path::new("/nowhere")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = BenchResult::parse(&text, "x");
        }
    }
}
