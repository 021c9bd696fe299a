// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of the kernel's osnoise tracepoints (Documentation/trace/osnoise-tracer.rst), as the `trace` file,
//! `trace-cmd report`, `perf script` and rtla's saved traces print it:
//!
//! ```text
//! osnoise/8-961  [008] d.h.  5789.857532: irq_noise: local_timer:236 start 5789.857529929 duration 1845 ns
//! osnoise/8-961  [008] ....  5789.858413: sample_threshold: start 5789.858404555 duration 8812 ns interferences 2
//! ```
//!
//! `sample_threshold` is what the tracer's loop saw (a detour), the `*_noise` lines before it are its causes,
//! net of each other. So a sample with interferences takes in the causes that began within it and is named
//! after the longest; a cause that belongs to no sample is a detour of its own.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use super::text::{Header, Lines, decimal, write_meta};
use crate::Source;
use crate::trace::{Detour, Problem, Trace, TraceBuilder, TraceMeta};

/// The tracepoints, as they stand before their fields.
pub(super) const EVENTS: [&str; 5] =
    ["softirq_noise: ", "irq_noise: ", "thread_noise: ", "nmi_noise: ", "sample_threshold: "];

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> Result<(), Problem> {
    writeln!(out, "# tracer: osnoise\n#")?;
    write_meta(&trace.meta, out)?;
    if let Some(d) = trace.detours.iter().find(|d| d.start_ns < 0) {
        return Err(Problem::BeforeEpoch(d.start_ns));
    }
    if let Some(d) = trace.detours.iter().find(|d| d.node != trace.detours[0].node) {
        return Err(Problem::Meta(format!(
            "this format holds one node, and node {} is not the only one",
            d.node
        )));
    }
    let clean = |name: &String| name.replace(char::is_control, "_");
    for d in &trace.detours {
        let (event, name) = match trace.source(d) {
            Source::Irq(n) => ("irq_noise", format!("{}:0 ", clean(n))),
            Source::Softirq(n) => ("softirq_noise", format!("{:>8}:0 ", clean(n))),
            Source::Thread(n) => ("thread_noise", format!("{:>8}:0 ", clean(n))),
            Source::Nmi => ("nmi_noise", String::new()),
            _ => ("sample_threshold", String::new()),
        };
        let tail = if event == "sample_threshold" { " interference 0" } else { "" };
        let (start, end) = (d.start_ns as u64, d.end_ns() as u64);
        let (cpu, s) = (d.cpu, 1_000_000_000);
        write!(out, " osnoise/{cpu}-0 [{cpu:03}] ..... {}.{:06}: {event}: {name}", end / s, end % s / 1000)?;
        writeln!(out, "start {}.{:09} duration {} ns{tail}", start / s, start % s, d.duration_ns)?;
    }
    Ok(())
}

/// One tracepoint line.
struct Line {
    cpu: u16,
    start_ns: i64,
    duration_ns: u64,
    /// `None`: a sample of the tracer's loop.
    cause: Option<Source>,
    /// Causes that the loop counted in a sample.
    interferences: u64,
}

impl Line {
    fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add_unsigned(self.duration_ns)
    }
}

/// The event name's place in a line: its start, its fields, and which it is.
fn event(line: &str) -> Option<(&str, &str, &'static str)> {
    // a command's name may look like an event's, and stands before it: the last one counts; of those that end
    // together (`irq_noise` in `softirq_noise`) the longest, which is listed first
    let (at, name) = EVENTS
        .iter()
        .filter_map(|e| line.rfind(e).map(|at| (at + e.len(), *e)))
        .reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    Some((&line[..at - name.len()], &line[at..], name))
}

/// Reads one line; `None` where it is of another event, or the tracer's periodic summary.
fn parse(line: &str) -> Result<Option<Line>, String> {
    let Some((prefix, fields, event)) = event(line) else { return Ok(None) };
    let shown = || fields.chars().take(80).collect::<String>();
    let (name, times) = match fields.strip_prefix("start ") {
        Some(times) => ("", times),
        None => {
            fields.rsplit_once(" start ").ok_or_else(|| format!("`start` is missing in `{}`", shown()))?
        }
    };
    let words: Vec<&str> = times.split_whitespace().take(6).collect();
    let [start, "duration", duration, "ns", rest @ ..] = words.as_slice() else {
        return Err(format!("expected `start SECONDS duration NUMBER ns`, found `{}`", shown()));
    };
    let out_of_range = || format!("a time is no number or out of range in `{}`", shown());
    let start_ns = decimal(start, 9).and_then(|v| v.try_into().ok()).ok_or_else(out_of_range)?;
    let duration_ns = duration.parse().map_err(|_| out_of_range())?;
    let interferences = match rest {
        ["interference" | "interferences", n, ..] => n.parse().map_err(|_| out_of_range())?,
        _ => 0,
    };
    let name = || name.rsplit_once(':').map_or(name, |(name, _number)| name).trim().to_owned();
    let cause = match event.trim_end_matches([':', ' ']) {
        "irq_noise" => Some(Source::Irq(name())),
        "softirq_noise" => Some(Source::Softirq(name())),
        "thread_noise" => Some(Source::Thread(name())),
        "nmi_noise" => Some(Source::Nmi),
        _ => None,
    };
    Ok(Some(Line { cpu: cpu(prefix)?, start_ns, duration_ns, cause, interferences }))
}

/// The CPU in `osnoise/8-961 [008] d.h. 5789.857532:`; 0 where there is none.
fn cpu(prefix: &str) -> Result<u16, String> {
    let digits = prefix.rsplit('[').find_map(|rest| {
        let (inside, _) = rest.split_once(']')?;
        (!inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit())).then_some(inside)
    });
    digits.map_or(Ok(0), |d| {
        d.parse().map_err(|_| format!("CPU number [{}] is too large", d.chars().take(20).collect::<String>()))
    })
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut header = Header::default();
    let mut lines = Lines::new(input);
    let mut trace = TraceBuilder::new();
    // causes whose sample may still come, by CPU
    let mut open: HashMap<u16, Vec<Line>> = HashMap::new();
    while let Some(line) = lines.next()? {
        if line.starts_with('#') {
            header.comment(&line)?;
            continue;
        }
        let Some(found) = parse(&line).map_err(|reason| lines.wrong(reason))? else { continue };
        let causes = open.entry(found.cpu).or_default();
        if found.cause.is_none() {
            let (within, before): (Vec<Line>, Vec<Line>) =
                std::mem::take(causes).into_iter().partition(|c| {
                    found.interferences > 0 && (found.start_ns..found.end_ns()).contains(&c.start_ns)
                });
            for cause in &before {
                push(&mut trace, cause, cause.cause.as_ref())?;
            }
            let longest = within.iter().max_by_key(|c| c.duration_ns).and_then(|c| c.cause.as_ref());
            push(&mut trace, &found, longest)?;
        } else {
            causes.push(found);
        }
    }
    let mut left: Vec<Line> = open.into_values().flatten().collect();
    left.sort_by_key(|l| (l.start_ns, l.cpu));
    for cause in &left {
        push(&mut trace, cause, cause.cause.as_ref())?;
    }
    match header.meta() {
        Some(meta) => trace.build(meta),
        None if trace.is_empty() => Err(Problem::Empty(
            "lines of the osnoise tracepoints (irq_noise, softirq_noise, thread_noise, nmi_noise, \
             sample_threshold); a summary of rtla or of the tracer holds no single detours",
        )),
        None => {
            let classes = header.classes;
            let meta = TraceMeta { classes, ..trace.foreign_meta() };
            trace.build(meta)
        }
    }
}

fn push(trace: &mut TraceBuilder, line: &Line, source: Option<&Source>) -> Result<(), Problem> {
    let source = trace.source(source.unwrap_or(&Source::Unexplained))?;
    trace.push(Detour {
        node: 0,
        cpu: line.cpu,
        start_ns: line.start_ns,
        duration_ns: line.duration_ns,
        source,
    })
}
