// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netgauge's noise trace, which LogGOPSim reads: `offset<TAB>duration` in nanoseconds, `#` comments.

use std::io::{BufRead, Write};

use super::text::{HEAD, Header, Lines, decimal};
use crate::Source;
use crate::trace::{Detour, Lane, Problem, Trace, TraceBuilder};

/// The first line that [`write`] writes.
pub(super) const HEADER: &str = "# noise trace: offset_ns duration_ns";

/// Writes the detours of one CPU, or of all merged into one list; offsets count from the start of the
/// observation.
///
/// LogGOPSim stops at a line over 1023 bytes and reads a last empty line as one more detour: comments are
/// short, and the last line has no newline.
///
/// # Errors
/// [`Problem::Io`].
pub fn write(trace: &Trace, lane: Option<Lane>, out: &mut impl Write) -> Result<(), Problem> {
    let chosen = || trace.detours.iter().filter(|d| lane.is_none_or(|l| d.lane() == l));
    let base_ns = chosen().next().map_or(trace.meta.start_ns, |d| d.start_ns.min(trace.meta.start_ns));
    write!(out, "{HEADER}")?;
    match lane {
        Some(lane) => write!(out, "\n# of: {lane}")?,
        None => write!(out, "\n# of: {} CPUs merged", trace.lanes().len())?,
    }
    write!(out, "\n# start_ns: {base_ns}\n# observed_s: {}", trace.meta.observed_s)?;
    write!(out, "\n# threshold_ns: {}", trace.meta.threshold_ns)?;
    for d in chosen() {
        write!(out, "\n{}\t{}", i128::from(d.start_ns) - i128::from(base_ns), d.duration_ns)?;
    }
    Ok(())
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut header = Header::default();
    let mut lines = Lines::new(input);
    let mut trace = TraceBuilder::new();
    let source = trace.source(&Source::Unexplained)?;
    while let Some(line) = lines.next()? {
        let line = line.trim();
        if line.starts_with('#') {
            header.comment(line)?;
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let mut fields = line.split_whitespace().map(|f| decimal(f, 0));
        let (Some(Some(offset)), Some(Some(duration))) = (fields.next(), fields.next()) else {
            let shown: String = line.chars().take(60).collect();
            return Err(
                lines.wrong(format!("expected `offset<TAB>duration` in nanoseconds, found `{shown}`"))
            );
        };
        let (Ok(start_ns), Ok(duration_ns)) = (offset.try_into(), duration.try_into()) else {
            return Err(
                lines.wrong("a number is out of range (an offset fits 63 bits, a duration is positive)")
            );
        };
        trace.push(Detour { node: 0, cpu: 0, start_ns, duration_ns, source })?;
    }
    if trace.is_empty() {
        return Err(Problem::Empty("lines `offset<TAB>duration` in nanoseconds"));
    }
    let mut stated = header.stated()?;
    // offsets count from the start of the observation
    let start_ns = stated.start_ns.unwrap_or(0);
    trace.shift(start_ns);
    stated.start_ns = trace.first_ns().map(|first| first.min(start_ns));
    // one CPU wrote the file, or its lines are those of several
    stated.cpus.get_or_insert_with(|| [0].into_iter().collect());
    trace.build_foreign(stated)
}

/// Checks that the lines at the head of a file can be offsets and lengths of detours.
///
/// # Errors
/// The contradiction. `None` if the lines are not two numbers each.
pub(super) fn plausible(head: &str) -> Option<Result<(), String>> {
    // the last line of a longer file may be cut off
    let whole =
        if head.len() < HEAD { head } else { head.rsplit_once('\n').map_or(head, |(whole, _)| whole) };
    let lines = whole.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line: &str| {
        let mut fields = line.split_whitespace().map(|f| decimal(f, 0));
        let pair = (fields.next()??, fields.next()??);
        fields.next().is_none().then_some(pair)
    };
    let rows: Vec<(i128, i128)> = lines.map(pair).collect::<Option<_>>()?;
    if rows.is_empty() {
        return None;
    }
    let at = |i: usize| format!("row {} and row {}", i + 1, i + 2);
    for (i, w) in rows.windows(2).enumerate() {
        if w[1].0 < w[0].0 {
            return Some(Err(format!("its first column decreases between {}", at(i))));
        }
        if w[0].0.saturating_add(w[0].1) > w[1].0 {
            return Some(Err(format!("as detours, {} would overlap", at(i))));
        }
    }
    let steps = rows.windows(2).map(|w| w[1].0 - w[0].0);
    let doubles = rows.len() > 2 && rows.windows(2).skip_while(|w| w[0].0 == 0).all(|w| w[1].0 == 2 * w[0].0);
    if doubles {
        return Some(Err("its first column doubles, as in a table by sizes of messages".into()));
    }
    let is_regular = rows.len() > 3 && steps.collect::<std::collections::BTreeSet<_>>().len() == 1;
    Some(if is_regular {
        Err("its first column grows by one step, as in a table of counts".into())
    } else {
        Ok(())
    })
}
