// SPDX-License-Identifier: MIT OR Apache-2.0
//! HdrHistogram interval log: for each CPU and second one histogram of the detours' lengths.

use std::io::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::trace::{Detour, Lane, Problem, Trace};

/// Length of an interval.
const INTERVAL_NS: u64 = 1_000_000_000;

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), Problem> {
    let failed = |e: String| Problem::Io(std::io::Error::other(e));
    let base_ns = trace.detours.first().map_or(trace.meta.start_ns, |d| d.start_ns.min(trace.meta.start_ns));
    let base = SystemTime::UNIX_EPOCH + Duration::from_nanos(base_ns.max(0) as u64);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("lengths of detours in nanoseconds; a tag is a CPU; times are TAI")
        .with_start_time(base)
        .with_base_time(base)
        .with_max_value_divisor(1e6)
        .begin_log_with(out, &mut serializer)?;
    let interval = |d: &Detour| d.start_ns.abs_diff(base_ns) / INTERVAL_NS;
    let mut histogram = Histogram::<u64>::new(3).map_err(|e| failed(e.to_string()))?;
    for second in trace.detours.chunk_by(|a, b| interval(a) == interval(b)) {
        let mut rows: Vec<&Detour> = second.iter().collect();
        rows.sort_by_key(|d| d.lane());
        for rows in rows.chunk_by(|a, b| a.lane() == b.lane()) {
            histogram.clear();
            for d in rows {
                histogram.record(d.duration_ns).map_err(|e| failed(e.to_string()))?;
            }
            let Lane { node, cpu } = rows[0].lane();
            let name = format!("node{node}-cpu{cpu}");
            let start = Duration::from_secs(interval(rows[0]));
            log.write_histogram(&histogram, start, Duration::from_nanos(INTERVAL_NS), Tag::new(&name))
                .map_err(|e| failed(format!("{e:?}")))?;
        }
    }
    Ok(())
}
