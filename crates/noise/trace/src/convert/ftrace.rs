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
use crate::trace::TraceBuilder;

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
        let words: Vec<&str> = prefix.split_whitespace().collect();
        let time = words.iter().rposition(|word| is_instant(word));
        let digits = time.and_then(|time| before_instant(&words[..time]));
        let digits = digits.or_else(|| verbose_latency(&words)).or_else(|| latency(prefix));
        let cpu = digits.map(|d| {
            let shown: String = d.chars().take(20).collect();
            d.parse().map_err(|_| format!("CPU number {shown} is too large"))
        });
        Ok(Self { cpu: cpu.transpose()?, at_ns: time.and_then(|time| seconds(words[time])) })
    }

    /// The place of a line of any event, and the text behind its instant; `None` for a line without an instant.
    pub(super) fn of_line(line: &str) -> Option<(Self, &str)> {
        let (before, after) = instants(line).next()?;
        Some((Self::of(before).ok()?, after))
    }
}

/// Each way to divide a line behind a word that can be the instant of an event, the first word first.
pub(super) fn instants(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = line.match_indices(": ").map(|(at, _)| at + 1);
    ends.map(|end| line.split_at(end)).filter(|(before, _)| {
        before
            .split_whitespace()
            .next_back()
            .is_some_and(|word| is_instant(word) || word.ends_with("ms):") || is_delay(before))
    })
}

/// True for `5789.857532:`, and for `123456789:` of a clock that counts.
fn is_instant(word: &str) -> bool {
    let Some(number) = word.strip_suffix(':') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    number.split_once('.').map_or_else(|| digits(number), |(whole, part)| digits(whole) && digits(part))
}

/// `5789.857532:` in nanoseconds.
pub(super) fn seconds(word: &str) -> Option<i64> {
    let number = word.strip_suffix(':')?;
    number.contains('.').then(|| decimal(number, 9))?.and_then(|ns| ns.try_into().ok())
}

/// The CPU in the words before an instant: `[008]`, `[008] d.h..`, or `8d.h..`.
fn before_instant<'a>(words: &[&'a str]) -> Option<&'a str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let bracketed = |word: &'a str| word.strip_prefix('[')?.strip_suffix(']').filter(|inside| digits(inside));
    let last = *words.last()?;
    let before = words.len().checked_sub(2).map(|at| words[at]);
    let is_flags = |word: &str| {
        !digits(word)
            && word.len() >= 4
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b".#".contains(&b))
    };
    let with_flags = || before.filter(|_| is_flags(last)).and_then(bracketed);
    let (cpu, flags) = last.split_at(last.find(|c: char| !c.is_ascii_digit()).unwrap_or(last.len()));
    bracketed(last).or_else(with_flags).or_else(|| (!cpu.is_empty() && is_flags(flags)).then_some(cpu))
}

/// True if `prefix` ends in the delay of the latency format, `100us+:`.
fn is_delay(prefix: &str) -> bool {
    latency(prefix).is_some()
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
fn verbose_latency<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter().rev().copied();
    words.next().filter(|w| w.starts_with("(+") && w.ends_with("ms):"))?;
    words.next().filter(|w| w.ends_with("ms"))?;
    words.next().filter(|w| w.starts_with('[') && w.ends_with(']'))?;
    words.nth(3).filter(|w| w.bytes().all(|b| b.is_ascii_digit()))
}

/// Where events were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostOn {
    /// On this CPU.
    Cpu(u16),
    /// The text does not say where.
    AnyCpu,
}

/// The CPU of `CPU 3 is empty`, by which trace-cmd names a CPU that was traced and has no event.
pub(super) fn empty_cpu(line: &str) -> Option<u16> {
    line.trim().strip_prefix("CPU ")?.strip_suffix(" is empty")?.parse().ok()
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
    ///
    /// Returns where events were lost, if the line says that some were.
    pub(super) fn line(&mut self, line: &str) -> Option<LostOn> {
        let line = line.trim();
        if let Some((before, rest)) = line.split_once("PERF_RECORD_LOST") {
            let number = rest.split_whitespace().skip_while(|w| *w != "lost").nth(1);
            self.add(number.and_then(|n| n.parse().ok()));
            let cpu = Place::of(before).ok().and_then(|place| place.cpu);
            return Some(cpu.map_or(LostOn::AnyCpu, LostOn::Cpu));
        }
        let (cpu, words) = line.strip_prefix("CPU:")?.split_once('[')?;
        let words: Vec<&str> = words.strip_suffix(']')?.split_whitespace().collect();
        match words.as_slice() {
            ["LOST", n, "EVENTS"] | [n, "EVENTS", "DROPPED"] => self.add(n.parse().ok()),
            ["LOST" | "EVENTS", ..] => self.add(None),
            _ => return None,
        }
        Some(cpu.trim().parse().map_or(LostOn::AnyCpu, LostOn::Cpu))
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
        self.marked.max(overwritten(header).unwrap_or(0))
    }
}

/// Events that were written and are not in the buffer any more, by the header (`entries-in-buffer/entries-written: 40/6140`).
pub(super) fn overwritten(header: &Header) -> Option<u64> {
    let (_, value) = header.pairs.iter().find(|(key, _)| key == "entries-in-buffer/entries-written")?;
    let (kept, written) = value.split_whitespace().next()?.split_once('/')?;
    written.parse::<u64>().ok()?.checked_sub(kept.parse().ok()?)
}

/// True if the name and the process number are those of the thread that a CPU runs while it has nothing to do.
pub(super) fn is_idle_thread(name: &str, pid: &str) -> bool {
    pid == "0" && (name == "<idle>" || name == "swapper" || name.starts_with("swapper/"))
}

/// Time that threads ran, by CPU, in a trace of all threads.
#[derive(Debug, Default)]
pub(super) struct Ran(BTreeMap<(u16, Source), u64>);

impl Ran {
    pub(super) fn add(&mut self, cpu: u16, thread: &Source, ns: u64) {
        let ran = self.0.entry((cpu, thread.clone())).or_default();
        *ran = ran.saturating_add(ns);
    }

    /// The program, whose time is no noise: threads of a name that ran on some CPU for more than half of the time, or on all CPUs
    /// together for as long and at least a tenth of the time of the busiest name. `known_ns` is the time that is known of a CPU.
    fn programs(&self, known_ns: impl Fn(u16) -> u64, span_ns: u64) -> BTreeMap<Source, u64> {
        let mut all: BTreeMap<&Source, u64> = BTreeMap::new();
        for ((_, source), ns) in &self.0 {
            let sum = all.entry(source).or_default();
            *sum = sum.saturating_add(*ns);
        }
        let busiest = all.values().copied().max().unwrap_or(0);
        let has_a_cpu =
            |name: &Source| self.0.iter().any(|((cpu, s), ns)| s == name && *ns > known_ns(*cpu) / 2);
        let is_program = |name: &Source, ns: u64| has_a_cpu(name) || ns > span_ns / 2 && ns >= busiest / 10;
        all.into_iter()
            .filter(|(name, ns)| is_program(name, *ns))
            .map(|(name, ns)| (name.clone(), ns))
            .collect()
    }

    /// Removes the program's detours from `trace`, with a note.
    pub(super) fn remove_program(
        &self,
        trace: &mut TraceBuilder,
        known_ns: impl Fn(u16) -> u64,
        span_ns: u64,
    ) {
        let programs = self.programs(known_ns, span_ns);
        trace.retain(|_, source| !programs.contains_key(source));
        for (name, ns) in &programs {
            trace.note(format!(
                "{name} ran for {:.3} s on all CPUs together: it is taken for the program, and its time is no noise",
                *ns as f64 / 1e9
            ));
        }
        if programs.is_empty() && !self.0.is_empty() {
            trace.note("no thread ran for more than half of a CPU's time, as a program does: every thread is taken for noise");
        }
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
            (" osnoise/8-961     8d.h1.   5789.857532: ", Some(8), Some(5_789_857_532_000)),
            ("app-900  (  900) [003] d..2. 5.25: ", Some(3), Some(5_250_000_000)),
            ("app-900  [003] d..2. 123456789: ", Some(3), None),
            ("worker [7]   900   100.5: irq:", None, Some(100_500_000_000)),
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
        assert_eq!(Losses::default().line("CPU:2 [LOST 40 EVENTS]"), Some(LostOn::Cpu(2)));
        assert_eq!(Losses::default().line("CPU 0 is empty"), None);
        let (mut trace, mut header) = (TraceBuilder::new(), Header::default());
        assert_eq!(losses.count(&header, &mut trace), 50);
        header.comment("# entries-in-buffer/entries-written: 40/6140   #P:1").expect("a pair");
        assert_eq!(losses.count(&header, &mut trace), 6100);
        losses.line("CPU:1 [EVENTS DROPPED]");
        assert_eq!(losses.count(&header, &mut trace), 6100);
    }

    #[test]
    fn the_program_is_what_runs_most_wherever_it_runs() {
        let programs = |ran: &[(u16, &str, u64)]| {
            let mut all = Ran::default();
            ran.iter().for_each(|(cpu, name, ns)| all.add(*cpu, &Source::Thread((*name).into()), *ns));
            let found = all.programs(|_| 100, 100);
            found.into_keys().map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(programs(&[(0, "app", 60), (0, "sshd", 40), (1, "app", 50)]), ["thread:app"]);
        assert_eq!(
            programs(&[(0, "app", 25), (1, "app", 25), (2, "app", 25)]),
            ["thread:app"],
            "it migrates"
        );
        let node: Vec<(u16, &str, u64)> =
            (0..16).flat_map(|cpu| [(cpu, "rank", 90), (cpu, "daemon", 4)]).collect();
        assert_eq!(programs(&node), ["thread:rank"], "a daemon of all CPUs is no program beside it");
        assert_eq!(programs(&[(0, "a", 20), (1, "b", 30)]), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn no_prefix_panics(text in "[-a-z0-9.:\\[\\]() +us]{0,60}|.{0,40}") {
            let _ = Place::of(&text);
            Losses::default().line(&text);
        }
    }
}
