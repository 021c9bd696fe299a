// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text around the events of the kernel's tracer: the CPU and the instant of an event, and the events that were lost.
//!
//! Printers put different columns in front of an event:
//!
//! ```text
//! osnoise/8-961   [008] d.h..  5789.857532: irq_noise: …       trace, trace_pipe, trace-cmd report
//! osnoise/8   961 [008]  5789.857532: osnoise:irq_noise: …     perf script
//! osnoise/8-961     8d.h.. 100us+: irq_noise: …                trace with the option latency-format
//! osnoise/8   961   8 1 00000001 00000000 [0000a5f3c8] 5.857ms (+0.012ms): irq_noise: …   the same, and verbose
//! ```

use std::collections::BTreeMap;

use super::text::{Header, decimal};
use crate::Source;
use crate::trace::{Detour, TraceBuilder};

/// The columns before an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The CPU; `None` if the line does not name one.
    pub(super) cpu: Option<u16>,
    /// The instant of the record on the trace clock, nanoseconds; `None` if the line has none, or one that counts from the first event.
    pub(super) at_ns: Option<i64>,
}

impl Place {
    /// Reads the text before an event's name.
    ///
    /// # Errors
    /// The CPU's number is beyond those that a kernel has.
    pub(super) fn of(prefix: &str) -> Result<Self, String> {
        let at_ns = prefix.split_whitespace().rev().find_map(seconds);
        let digits = match (bracketed(prefix), at_ns) {
            (Some(cpu), Some(_)) => Some(cpu),
            (found, _) => verbose_latency(prefix).or_else(|| latency(prefix)).or(found),
        };
        let cpu = digits.map(|d| {
            let shown: String = d.chars().take(20).collect();
            d.parse().map_err(|_| format!("CPU number {shown} is too large"))
        });
        Ok(Self { cpu: cpu.transpose()?, at_ns })
    }
}

/// `5789.857532:` in nanoseconds.
pub(super) fn seconds(word: &str) -> Option<i64> {
    let number = word.strip_suffix(':')?;
    number.contains('.').then(|| decimal(number, 9))?.and_then(|ns| ns.try_into().ok())
}

/// The digits in the last `[008]`.
fn bracketed(prefix: &str) -> Option<&str> {
    prefix.rsplit('[').find_map(|rest| {
        let (inside, _) = rest.split_once(']')?;
        (!inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit())).then_some(inside)
    })
}

/// The CPU in `8d.h.. 100us+:`, of the latency format. The mark behind the time says how long the delay was.
fn latency(prefix: &str) -> Option<&str> {
    let time = prefix.trim_end().strip_suffix(':')?.trim_end();
    let time = time.strip_suffix(['+', '!', '#', '*', '@', '$']).unwrap_or(time).strip_suffix("us")?;
    let before = time.trim_end_matches(|c: char| c.is_ascii_digit());
    let word = before.split_whitespace().next_back().filter(|_| before.len() < time.len())?;
    let cpu = &word[..word.find(|c: char| !c.is_ascii_digit())?];
    (!cpu.is_empty()).then_some(cpu)
}

/// The CPU in `8 1 00000001 00000000 [0000a5f3c8] 5.857ms (+0.012ms):`, of the latency format with the option verbose.
fn verbose_latency(prefix: &str) -> Option<&str> {
    let mut words = prefix.split_whitespace().rev();
    words.next().filter(|w| w.starts_with("(+") && w.ends_with("ms):"))?;
    words.next().filter(|w| w.ends_with("ms"))?;
    words.next().filter(|w| w.starts_with('[') && w.ends_with(']'))?;
    words.nth(3).filter(|w| w.bytes().all(|b| b.is_ascii_digit()))
}

/// Events that the tracer lost, as its text says.
#[derive(Debug, Default)]
pub(super) struct Losses {
    marked: u64,
    is_unknown: bool,
}

impl Losses {
    /// Takes a line without an event in: `CPU:2 [LOST 6100 EVENTS]` of the kernel, `CPU:2 [6100 EVENTS DROPPED]` of trace-cmd, or
    /// `… PERF_RECORD_LOST lost 6100` of perf.
    pub(super) fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some((_, rest)) = line.split_once("PERF_RECORD_LOST") {
            let number = rest.split_whitespace().skip_while(|w| *w != "lost").nth(1);
            return self.add(number.and_then(|n| n.parse().ok()));
        }
        let inside =
            line.strip_prefix("CPU:").and_then(|l| l.split_once('[')).and_then(|(_, l)| l.strip_suffix(']'));
        match inside.map(|words| words.split_whitespace().collect::<Vec<_>>()).as_deref() {
            Some(["LOST", n, "EVENTS"] | [n, "EVENTS", "DROPPED"]) => self.add(n.parse().ok()),
            Some(["LOST" | "EVENTS", ..]) => self.add(None),
            _ => {}
        }
    }

    fn add(&mut self, number: Option<u64>) {
        match number {
            Some(n) => self.marked = self.marked.saturating_add(n),
            None => self.is_unknown = true,
        }
    }

    /// The number of lost events: that of the lines, or that of the header (`entries-in-buffer/entries-written: 40/6140`) if it is
    /// larger. Losses without a number become a note of `trace`.
    pub(super) fn count(&self, header: &Header, trace: &mut TraceBuilder) -> u64 {
        if self.is_unknown {
            trace.note(
                "the file says that events were lost, and not how many: rates and shares are lower bounds",
            );
        }
        let entries = header.pairs.iter().find(|(key, _)| key == "entries-in-buffer/entries-written");
        let overwritten = entries.and_then(|(_, value)| {
            let (kept, written) = value.split_whitespace().next()?.split_once('/')?;
            written.parse::<u64>().ok()?.checked_sub(kept.parse().ok()?)
        });
        self.marked.max(overwritten.unwrap_or(0))
    }
}

/// True if the name and the process number are those of the thread that a CPU runs while it has nothing to do.
pub(super) fn is_idle_thread(name: &str, pid: &str) -> bool {
    pid == "0" && (name == "<idle>" || name == "swapper" || name.starts_with("swapper/"))
}

/// The thread of each CPU that ran for more than half of `span_ns`: where a trace records every thread, this is the program, which
/// is no noise. Each comes with its share, 0 to 1.
pub(super) fn programs(ran_ns: &BTreeMap<(u16, Source), u64>, span_ns: u64) -> BTreeMap<u16, (Source, f64)> {
    let share = |ns: u64| ns as f64 / span_ns.max(1) as f64;
    let most = ran_ns.iter().filter(|(_, ns)| share(**ns) > 0.5);
    // at most one source of a CPU has more than half, unless the recorded times overlap: then the longest counts
    let mut programs: BTreeMap<u16, (Source, f64)> = BTreeMap::new();
    for ((cpu, source), ns) in most {
        let best = programs.entry(*cpu).or_insert_with(|| (source.clone(), 0.0));
        if share(*ns) > best.1 {
            *best = (source.clone(), share(*ns));
        }
    }
    programs
}

/// Removes the detours by the `programs` of their CPU, and notes each of them.
pub(super) fn remove(trace: &mut TraceBuilder, programs: &BTreeMap<u16, (Source, f64)>) {
    trace.retain(|d: &Detour, source| programs.get(&d.cpu).is_none_or(|(program, _)| program != source));
    for (cpu, (source, share)) in programs {
        trace.note(format!(
            "{source} ran on CPU {cpu} for {:.1} % of the time: it is taken for the program, and its time is no noise",
            share.min(1.0) * 100.0
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_printers_columns_name_the_cpu_and_the_instant() {
        for (prefix, cpu, at_ns) in [
            ("  osnoise/8-961   [008] d.h..  5789.857532: ", Some(8), Some(5_789_857_532_000)),
            (" Web [2] irq-77 [002] d.h2. 4.5: ", Some(2), Some(4_500_000_000)),
            ("osnoise/8   961 [008]  5789.857532189: osnoise:", Some(8), Some(5_789_857_532_189)),
            ("osnoise/8  [103]   17.25: ", Some(103), Some(17_250_000_000)),
            (" osnoise/3-1023    3d.h1. 33100us : ", Some(3), None),
            (" osnoise/3-1023  112dNh1. 33100us+: ", Some(112), None),
            ("    <idle>-0        0..s.1    7us!: ", Some(0), None),
            ("  osnoise/3  1023   3 4 00000001 00000000 [00009120] 12.033ms (+0.007ms): ", Some(3), None),
            ("", None, None),
            (" app-3us : ", None, None),
        ] {
            assert_eq!(Place::of(prefix), Ok(Place { cpu, at_ns }), "{prefix}");
        }
        assert!(Place::of("x [99999] 5.0: ").is_err_and(|e| e.contains("99999")));
    }

    #[test]
    fn losses_are_counted_and_an_unknown_number_is_a_note() {
        let mut losses = Losses::default();
        for line in [
            "CPU:2 [LOST 40 EVENTS]",
            "CPU:0 [2 EVENTS DROPPED]",
            "perf 7 [001] 1.5: PERF_RECORD_LOST lost 8",
            "CPU 0 is empty",
            "[LOST 7 EVENTS]",
        ] {
            losses.line(line);
        }
        let (mut trace, mut header) = (TraceBuilder::new(), Header::default());
        assert_eq!(losses.count(&header, &mut trace), 50);
        header.comment("# entries-in-buffer/entries-written: 40/6140   #P:1").expect("a pair");
        assert_eq!(losses.count(&header, &mut trace), 6100);
        losses.line("CPU:1 [EVENTS DROPPED]");
        assert_eq!(losses.count(&header, &mut trace), 6100);
    }

    #[test]
    fn a_thread_with_more_than_half_of_a_cpu_is_the_program() {
        let thread = |name: &str| Source::Thread(name.into());
        let ran =
            BTreeMap::from([((0, thread("app")), 60), ((0, thread("sshd")), 40), ((1, thread("app")), 50)]);
        assert_eq!(programs(&ran, 100), BTreeMap::from([(0, (thread("app"), 0.6))]));
    }

    proptest! {
        #[test]
        fn no_prefix_panics(text in "[-a-z0-9.:\\[\\]() +us]{0,60}|.{0,40}") {
            let _ = Place::of(&text);
            Losses::default().line(&text);
        }
    }
}
