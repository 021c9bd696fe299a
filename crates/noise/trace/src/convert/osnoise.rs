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
//!
//! With the tracer's option `NO_OSNOISE_WORKLOAD` and with the timerlat tracer, `thread_noise` lines record every thread that ran, the
//! idle thread and the program too: neither is noise.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};

use super::ftrace::{self, Losses, Place, Ran, is_idle_thread};
use super::text::{Header, Lines, decimal, write_meta};
use super::traced::Traced;
use crate::Source;
use crate::trace::{Detour, Lengths, OtherFile, Problem, Stated, Trace, TraceBuilder};

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
    place: Place,
    start_ns: i64,
    duration_ns: u64,
    /// `None`: a sample of the tracer's loop.
    cause: Option<Source>,
    /// True if the cause is the idle thread.
    is_idle: bool,
    /// Causes that the loop counted in a sample.
    interferences: u64,
}

impl Line {
    fn cpu(&self) -> u16 {
        self.place.cpu.unwrap_or(0)
    }

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
    // what a program wrote into the trace
    if prefix.contains("tracing_mark_write: ") {
        return Ok(None);
    }
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
    let (name, number) = name.rsplit_once(':').unwrap_or((name, ""));
    let (name, number) = (name.trim(), number.trim());
    let (mut is_idle, owned) = (false, || name.to_owned());
    let cause = match event.trim_end_matches([':', ' ']) {
        "irq_noise" => Some(Source::Irq(owned())),
        "softirq_noise" => Some(Source::Softirq(owned())),
        "thread_noise" => {
            is_idle = is_idle_thread(name, number);
            Some(Source::Thread(owned()))
        }
        "nmi_noise" => Some(Source::Nmi),
        _ => None,
    };
    Ok(Some(Line { place: Place::of(prefix)?, start_ns, duration_ns, cause, is_idle, interferences }))
}

/// Time that the tracer sampled in a period, nanoseconds, as the text behind the instant of a summary line says: `1000000 190 99.98100 9
/// 18 0 1007 18 1`, which is that time and the noise in microseconds, the share left, the longest noise and the longest single one, and
/// counts.
fn period(fields: &str) -> Option<u64> {
    let fields: Vec<&str> = fields.split_whitespace().collect();
    if fields.len() < 8 || fields.iter().any(|f| decimal(f, 0).is_none()) || !fields[2].contains('.') {
        return None;
    }
    decimal(fields[0], 3)?.try_into().ok()
}

/// True if the text behind the instant of a line sums up a period: as the `trace` file has it, or as trace-cmd prints it, `noise:190
/// max_sample:9 hw:18 nmi:0 irq:1007 softirq:18 thread:1`.
fn sums_up(fields: &str) -> bool {
    period(fields).is_some() || fields.contains("noise:") && fields.contains("max_sample:")
}

/// The error of a file that has the tracer's summaries of periods only.
fn only_summaries() -> OtherFile {
    OtherFile::new(
        "the osnoise tracer's summary of each period, which holds no single detours",
        "record the tracer's events too, with `trace-cmd record -p osnoise -e osnoise` and `trace-cmd report > trace.txt`, or the lengths of \
         the detours with `rtla osnoise hist`",
    )
}

/// What a file of the osnoise tracer is that begins with `text`, if it has summaries of periods.
pub(super) fn summaries(text: &str) -> Option<OtherFile> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(Place::of_line);
    lines.any(|(place, fields)| place.cpu.is_some() && sums_up(fields)).then(only_summaries)
}

/// True if a line of `text` is one of the tracepoints.
pub(super) fn is_in(text: &str) -> bool {
    text.lines().any(|line| !line.starts_with('#') && parse(line).is_ok_and(|found| found.is_some()))
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut lines = Lines::new(input);
    let mut file = File::default();
    while let Some(line) = lines.next()? {
        if line.starts_with('#') {
            file.header.comment(&line)?;
            continue;
        }
        file.traced.line(&line);
        if let Some(found) = parse(&line).map_err(|reason| lines.wrong(reason))? {
            file.event(found)?;
        } else if let Some((place, fields)) = Place::of_line(&line) {
            file.other_line(place, fields);
        } else if file.losses.line(&line).is_none() {
            file.traced.seen.extend(ftrace::empty_cpu(&line));
        }
        // the tracer's own thread is the program where it is there, and else all threads are recorded
        file.has_workload |= line.trim_start().starts_with("osnoise/");
    }
    file.end()
}

/// The file as far as it is read.
#[derive(Default)]
struct File {
    header: Header,
    trace: TraceBuilder,
    losses: Losses,
    /// Causes whose sample may still come, by CPU.
    open: HashMap<u16, Vec<Line>>,
    /// Time that threads ran.
    ran: Ran,
    traced: Traced,
    /// First and last instant of the tracepoints, on the tracer's clock.
    events: Option<(i64, i64)>,
    /// First and last instant of the records, on the clock of the trace, and of the periods.
    records: Option<(i64, i64)>,
    /// The two clocks differ.
    has_other_clock: bool,
    /// Time that the tracer sampled, by CPU.
    sampled_ns: BTreeMap<u16, u64>,
    /// The tracer's summaries of periods are there.
    has_summaries: bool,
    /// Lines that do not name a CPU.
    without_cpu: u64,
    /// The tracer's own threads ran as the program that is disturbed.
    has_workload: bool,
    /// The idle thread was recorded.
    has_idle: bool,
}

impl File {
    fn event(&mut self, line: Line) -> Result<(), Problem> {
        self.traced.seen.insert(line.cpu());
        self.without_cpu += u64::from(line.place.cpu.is_none());
        spans(&mut self.events, line.start_ns, line.end_ns());
        if let Some(at_ns) = line.place.at_ns {
            spans(&mut self.records, at_ns, at_ns);
            self.has_other_clock |= at_ns.abs_diff(line.end_ns()) > CLOCKS_AGREE_NS;
        }
        if line.is_idle && !self.header.is_own() {
            self.has_idle = true;
            return Ok(());
        }
        if let Some(thread @ Source::Thread(_)) = &line.cause {
            self.ran.add(line.cpu(), thread, line.duration_ns);
        }
        let causes = self.open.entry(line.cpu()).or_default();
        if line.cause.is_some() {
            causes.push(line);
            return Ok(());
        }
        // a cause may begin just before the tracer's loop read the clock
        let is_within =
            |c: &Line| line.interferences > 0 && c.start_ns < line.end_ns() && line.start_ns < c.end_ns();
        let (within, before): (Vec<Line>, Vec<Line>) =
            std::mem::take(causes).into_iter().partition(is_within);
        for cause in &before {
            push(&mut self.trace, cause, cause.cause.as_ref())?;
        }
        self.has_workload = true;
        let longest = within.iter().max_by_key(|c| c.duration_ns).and_then(|c| c.cause.as_ref());
        push(&mut self.trace, &line, longest)
    }

    /// A summary of the tracer, or an event that is no noise.
    fn other_line(&mut self, place: Place, fields: &str) {
        let Place { cpu: Some(cpu), at_ns: Some(at_ns) } = place else { return };
        self.traced.seen.insert(cpu);
        self.has_summaries |= sums_up(fields);
        let sampled_ns = period(fields);
        if let Some(ns) = sampled_ns {
            self.has_workload = true;
            *self.sampled_ns.entry(cpu).or_default() += ns;
        }
        spans(&mut self.records, at_ns.saturating_sub_unsigned(sampled_ns.unwrap_or(0)), at_ns);
    }

    fn end(mut self) -> Result<Trace, Problem> {
        let mut left: Vec<Line> = std::mem::take(&mut self.open).into_values().flatten().collect();
        left.sort_by_key(|l| (l.start_ns, l.cpu()));
        for cause in &left {
            push(&mut self.trace, cause, cause.cause.as_ref())?;
        }
        if let Some(meta) = self.header.meta() {
            return self.trace.build(meta);
        }
        let Some((mut first_ns, mut last_ns)) = self.events else {
            if self.has_summaries {
                return Err(Problem::OtherFile(only_summaries()));
            }
            return Err(Problem::Empty(
                "lines of the osnoise tracepoints (irq_noise, softirq_noise, thread_noise, nmi_noise, \
                 sample_threshold); a summary of rtla or of the tracer holds no single detours",
            ));
        };
        if let Some((first, last)) = self.records.filter(|_| !self.has_other_clock) {
            (first_ns, last_ns) = (first_ns.min(first), last_ns.max(last));
        }
        self.traced.check_machines()?;
        let span_ns = last_ns.abs_diff(first_ns);
        if self.has_idle || !self.has_workload {
            self.ran.remove_program(&mut self.trace, |_| span_ns, span_ns);
        }
        if self.without_cpu > 0 {
            self.trace.note(format!(
                "{} lines do not name a CPU: they are taken for those of CPU 0",
                self.without_cpu
            ));
        }
        let sampled_ns =
            self.sampled_ns.values().max().copied().filter(|ns| (*ns as f64) < 0.95 * span_ns as f64);
        if let Some(ns) = sampled_ns {
            self.trace.note(format!(
                "the tracer sampled each CPU for {:.3} s of {:.3} s: rates and shares of the whole time are lower bounds",
                ns as f64 / 1e9,
                span_ns as f64 / 1e9
            ));
        }
        let lost_events = self.losses.count(&self.header, &mut self.trace);
        // the tracer sums up each period of each CPU on which it works
        let has_only_seen = !self.sampled_ns.is_empty();
        let cpus = self.traced.cpus(&self.header, has_only_seen, &mut self.trace);
        // the tracer's periods are what was observed
        let observed_s = match has_only_seen {
            true => Some(span_ns as f64 / 1e9).filter(|s| *s > 0.0),
            false => Traced::observed_s(&self.header, span_ns, &mut self.trace)?,
        };
        self.trace.build_foreign(Stated {
            cpus: Some(cpus),
            observed_s,
            start_ns: Some(first_ns),
            lost_events,
            classes: self.header.classes,
            lengths: Lengths::Net,
            ..Stated::default()
        })
    }
}

/// A record is written when its event ends. If it is further away, nanoseconds, the trace has another clock than the tracer.
const CLOCKS_AGREE_NS: u64 = 1_000_000_000;

fn spans(all: &mut Option<(i64, i64)>, start_ns: i64, end_ns: i64) {
    let (first, last) = all.unwrap_or((start_ns, end_ns));
    *all = Some((first.min(start_ns), last.max(end_ns)));
}

fn push(trace: &mut TraceBuilder, line: &Line, source: Option<&Source>) -> Result<(), Problem> {
    let source = trace.source(source.unwrap_or(&Source::Unexplained))?;
    trace.push(Detour {
        node: 0,
        cpu: line.cpu(),
        start_ns: line.start_ns,
        duration_ns: line.duration_ns,
        source,
    })
}
