// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of the kernel's hwlat tracer (Documentation/trace/hwlat_detector.rst), which looks for time that the hardware or a hypervisor
//! takes while interrupts are off:
//!
//! ```text
//! <...>-1729  [001] d....   678.473449: #1     inner/outer(us):   11/12    ts:1700000483.343962693 count:6
//! ```
//!
//! `hwlatdetect` of rt-tests runs the tracer and prints its samples in another form:
//!
//! ```text
//! hwlatdetect:  test duration 60 seconds
//! ts: 1700000483.343962693, inner:11, outer:12, cpu:3
//! ```

use std::io::BufRead;

use colony_node::cpu::CpuSet;

use super::ftrace::{Losses, Place};
use super::text::{Header, Lines, decimal};
use super::traced::Traced;
use crate::Source;
use crate::trace::{Detour, Problem, Trace, TraceBuilder};

/// The tracer's window by default, in which it looks at one CPU.
const WINDOW_NS: u64 = 1_000_000_000;

/// The text that each of the tracer's lines holds.
const MARK: &str = "inner/outer(us):";

/// True if a line of `text` is a sample of the tracer.
pub(super) fn is_in(text: &str) -> bool {
    let mut samples =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(MARK));
    let mut detected = text.lines().filter_map(detected);
    samples.any(|(prefix, fields)| sample(prefix, fields).is_ok())
        || text.lines().any(|line| line.starts_with(HWLATDETECT))
            && (detected.any(|sample| sample.is_ok()) || text.lines().any(has_no_sample))
}

/// The first word of a result of `hwlatdetect`.
const HWLATDETECT: &str = "hwlatdetect:";

/// Reads a sample of `hwlatdetect`: its detour, and whether the line names the CPU. `None` for a line of another kind.
fn detected(line: &str) -> Option<Result<(Detour, bool), String>> {
    let line = line.trim();
    let fields: Vec<(&str, &str)> = line.strip_prefix("ts:").map(|_| {
        line.split(',').filter_map(|field| field.split_once(':')).map(|(k, v)| (k.trim(), v.trim())).collect()
    })?;
    let value = |key: &str| fields.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
    let us = |key: &str| value(key)?.parse::<u64>().ok()?.checked_mul(1000);
    let start_ns = || decimal(value("ts")?, 9)?.try_into().ok();
    let cpu = value("cpu").map(str::parse::<u16>).transpose();
    Some(match (start_ns(), us("inner"), us("outer"), cpu) {
        (Some(start_ns), Some(inner), Some(outer), Ok(cpu)) => {
            let detour =
                Detour { node: 0, cpu: cpu.unwrap_or(0), start_ns, duration_ns: inner.max(outer), source: 0 };
            Ok((detour, cpu.is_some()))
        }
        _ => Err(format!(
            "expected `ts: SECONDS, inner:NUMBER, outer:NUMBER`, found `{}`",
            line.chars().take(80).collect::<String>()
        )),
    })
}

/// True of the line of `hwlatdetect` that says that it saw no detour.
fn has_no_sample(line: &str) -> bool {
    field(line, "Samples recorded:") == Some("0")
}

/// `        CPU list:          0-3`: the CPUs that were looked at.
fn cpu_list(line: &str) -> Option<CpuSet> {
    field(line, "CPU list:")?.parse().ok()
}

/// `        Latency threshold: 10us`: nanoseconds.
fn threshold_ns(line: &str) -> Option<u64> {
    field(line, "Latency threshold:")?.strip_suffix("us")?.trim().parse::<u64>().ok()?.checked_mul(1000)
}

/// What stands behind `name` in a line that begins with it.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.trim().strip_prefix(name).map(str::trim)
}

/// `hwlatdetect:  test duration 60 seconds`: the seconds.
fn duration_s(line: &str) -> Option<f64> {
    let words = line.strip_prefix(HWLATDETECT)?.trim().strip_prefix("test duration")?.trim();
    words.split_whitespace().next()?.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0)
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut lines = Lines::new(input);
    let (mut header, mut losses, mut trace) = (Header::default(), Losses::default(), TraceBuilder::new());
    let source = trace.source(&Source::Other("hardware".into()))?;
    let (mut traced, mut dropped) = (Traced::default(), 0u64);
    let (mut of_hwlatdetect_s, mut has_unnamed_cpu) = (None, false);
    let (mut listed, mut is_quiet, mut from_ns) = (None, false, None);
    while let Some(line) = lines.next()? {
        of_hwlatdetect_s = of_hwlatdetect_s.or_else(|| duration_s(&line));
        listed = listed.or_else(|| cpu_list(&line));
        is_quiet |= has_no_sample(&line);
        from_ns = from_ns.or_else(|| threshold_ns(&line));
        if let Some(sample) = detected(&line) {
            let (detour, names_cpu) = sample.map_err(|reason| lines.wrong(reason))?;
            has_unnamed_cpu |= !names_cpu;
            traced.seen.insert(detour.cpu);
            trace.push(Detour { source, ..detour })?;
            continue;
        }
        if line.starts_with('#') {
            header.comment(&line)?;
            continue;
        }
        traced.line(&line);
        let Some((prefix, fields)) = line.split_once(MARK) else {
            let _ = losses.line(&line);
            continue;
        };
        let (detour, count) = sample(prefix, fields).map_err(|reason| lines.wrong(reason))?;
        dropped = dropped.saturating_add(count.saturating_sub(1));
        traced.seen.insert(detour.cpu);
        trace.push(Detour { source, ..detour })?;
    }
    if trace.is_empty() && !(is_quiet && of_hwlatdetect_s.is_some()) {
        return Err(Problem::Empty(
            "lines of the hwlat tracer: `inner/outer(us): 11/12 ts:1700000483.34 count:6`",
        ));
    }
    trace.note(
        "the hwlat tracer looks at one CPU at a time, and by default for half of each second: there are more detours than it saw",
    );
    traced.check_machines()?;
    let mut stated = header.stated()?;
    stated.observed_s = stated.observed_s.or(of_hwlatdetect_s);
    stated.threshold_ns = stated.threshold_ns.or(from_ns);
    if trace.is_empty() || !has_unnamed_cpu {
        stated.cpus = stated.cpus.or(listed);
    }
    if has_unnamed_cpu {
        trace.note("the samples do not name their CPU: they are taken for those of CPU 0");
    }
    let counted = traced.cpus(&header, stated.cpus.is_some(), &mut trace);
    if counted.len() > traced.seen.len() {
        stated.cpus.get_or_insert(counted);
    }
    if stated.observed_s.is_none() {
        let (first, last) = (trace.first_ns().unwrap_or(0), trace.last_ns().unwrap_or(0));
        stated.observed_s = Some((last.abs_diff(first) + WINDOW_NS) as f64 / 1e9);
        trace.note(
            "the file does not state how long was observed: it is the time from the first to the last sample and one window of 1 s; \
             a line `# observed_s: SECONDS` states it",
        );
    }
    stated.lost_events = losses.count(&header, &mut trace);
    stated.dropped = dropped;
    trace.build_foreign(stated)
}

/// The longest detour of a sample, and the number of detours in it.
fn sample(prefix: &str, fields: &str) -> Result<(Detour, u64), String> {
    let wrong = || {
        let shown: String = fields.trim().chars().take(80).collect();
        format!("expected `{MARK} NUMBER/NUMBER ts:SECONDS`, found `{shown}`")
    };
    let mut words = fields.split_whitespace();
    let (inner, outer) = words.next().and_then(|w| w.split_once('/')).ok_or_else(wrong)?;
    let us = |text: &str| text.parse::<u64>().ok().and_then(|us| us.checked_mul(1000)).ok_or_else(wrong);
    let ts = words.next().and_then(|w| w.strip_prefix("ts:")).and_then(|ts| decimal(ts, 9));
    let start_ns = ts.and_then(|ns| ns.try_into().ok()).ok_or_else(wrong)?;
    let count = match words.find_map(|w| w.strip_prefix("count:")) {
        Some(count) => count.parse().map_err(|_| wrong())?,
        None => 1,
    };
    // `678.473449: #1     `
    let prefix = prefix.rsplit_once('#').map_or(prefix, |(prefix, _)| prefix);
    let cpu = Place::of(prefix)?.cpu.ok_or("the line does not name a CPU, as in `[001]`")?;
    Ok((Detour { node: 0, cpu, start_ns, duration_ns: us(inner)?.max(us(outer)?), source: 0 }, count))
}

#[cfg(test)]
mod tests {
    use crate::convert::{Format, parse};

    #[test]
    fn samples_of_hwlatdetect_are_read_with_their_time() {
        let text = "hwlatdetect:  test duration 60 seconds\n   detector: tracer\n\nStarting test\n\
                    ts: 1700000483.343962693, inner:11, outer:12, cpu:3\nts: 1700000490.5, inner:20, outer:0, cpu:3\n\
                    test finished\nSamples recorded: 2\n";
        assert_eq!(Format::of_content(text.as_bytes()), Some(Format::Hwlat));
        let trace = parse(text.as_bytes(), Format::Hwlat).expect("read");
        let found: Vec<_> = trace.detours.iter().map(|d| (d.cpu, d.duration_ns)).collect();
        assert_eq!((found, trace.meta.observed_s), (vec![(3, 12_000), (3, 20_000)], 60.0));
        let unnamed = parse(text.replace(", cpu:3", "").as_bytes(), Format::Hwlat).expect("read");
        assert!(
            unnamed.meta.notes.iter().any(|n| n.contains("do not name their CPU")),
            "{:?}",
            unnamed.meta.notes
        );
        let error =
            parse(text.replace("inner:11", "inner:x").as_bytes(), Format::Hwlat).expect_err("no number");
        assert!(error.to_string().contains("line 5"), "{error}");
    }
}
