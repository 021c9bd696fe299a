// SPDX-License-Identifier: MIT OR Apache-2.0
//! The detour or the wake-up that ended a measurement, as text.

use std::fmt::Write;

use colony_measure::{LimitDetour, Quantity, Ran, StackEvent, StackReport, UntilReport};
use colony_node::cpu::CpuSet;

use crate::table::{self, name, wrap};
use crate::units::{counted, time};

/// Most rows of events before the detour, the latest; and most during it, the earliest.
const ROWS: usize = 12;
/// Width of a frame of the stack, behind two blanks.
const FRAME_WIDTH: usize = table::WIDTH as usize - 2;

/// What the text says of the measurement beside its end.
pub(crate) struct Observed<'a> {
    /// The CPUs.
    pub(crate) cpus: &'a CpuSet,
    /// Seconds, the longest of them.
    pub(crate) seconds: f64,
    /// The reason for a measurement without attribution.
    pub(crate) not_attributed: Option<&'a str>,
}

/// The end of a measurement with a condition, as lines of at most 80 columns; empty if there was no condition.
pub(crate) fn render(until: Option<&UntilReport>, observed: &Observed<'_>) -> String {
    let mut out = String::new();
    let Some(until) = until else { return out };
    // writing to a String cannot fail
    let _ = match &until.detour {
        None => writeln!(out, "{}", wrap(&not_reached(until, observed))),
        Some(detour) => reached(&mut out, until, detour, observed),
    };
    out
}

/// The noun of what the condition is about.
fn noun(until: &UntilReport) -> &'static str {
    match until.condition.quantity {
        Quantity::Detour => "detour",
        Quantity::Latency => "wake-up latency",
    }
}

/// What meets the condition, in words: `detour longer than 50.0 µs`, `wake-up latency of 50.0 µs or more`.
fn limit(until: &UntilReport) -> String {
    let limit = time(until.condition.limit_ns as f64);
    let noun = noun(until);
    if until.condition.includes_limit {
        format!("{noun} of {limit} or more")
    } else {
        format!("{noun} longer than {limit}")
    }
}

fn not_reached(until: &UntilReport, observed: &Observed<'_>) -> String {
    format!("no {} in {} on {}", limit(until), time(observed.seconds * 1e9), observed.cpus.named())
}

fn reached(
    w: &mut String,
    until: &UntilReport,
    detour: &LimitDetour,
    observed: &Observed<'_>,
) -> std::fmt::Result {
    let length = time(detour.duration_ns as f64);
    let after = time(detour.after_ns as f64);
    let what = format!(
        "stopped at the first {}: {length} on CPU {}, {after} after the start",
        limit(until),
        detour.cpu
    );
    writeln!(w, "{}", wrap(&what))?;
    match (&detour.source, observed.not_attributed) {
        (Some(source), _) => {
            let share = detour.source_ns.map(|ns| format!(", {} of it", time(ns as f64))).unwrap_or_default();
            writeln!(w, "{}", wrap(&format!("source: {source}{share}")))?;
            events(w, until)?;
            stack(w, until)?;
        }
        (None, Some(reason)) => writeln!(w, "{}", wrap(&format!("source: not known: {reason}")))?,
        (None, None) => writeln!(w, "source: not known")?,
    }
    match &until.then {
        Some(then) if then.error.is_none() => {
            writeln!(w, "{}", wrap(&format!("--then: `{}` succeeded", then.command)))
        }
        Some(_) | None => Ok(()),
    }
}

/// What ran before and during the detour.
fn events(w: &mut String, until: &UntilReport) -> std::fmt::Result {
    let mut t = table::numbers(&["", "source", "begin", "length"], 2);
    let skipped = until.before.len().saturating_sub(ROWS);
    let mut add = |part: &str, ran: &Ran| {
        let at = if ran.at_ns < 0 {
            format!("\u{2212}{}", time(-ran.at_ns as f64))
        } else {
            time(ran.at_ns as f64)
        };
        t.add_row([part.into(), name(&ran.source.to_string(), 40), at, time(ran.duration_ns as f64)]);
    };
    until.before.iter().skip(skipped).for_each(|ran| add("before", ran));
    let during = until.condition.quantity.word();
    until.during.iter().take(ROWS).for_each(|ran| add(during, ran));
    let more = until.during.len().saturating_sub(ROWS);
    if t.row_count() == 0 {
        return writeln!(
            w,
            "{}",
            wrap("no event of the kernel in the millisecond before it, and none during it")
        );
    }
    let zero = match until.condition.quantity {
        Quantity::Detour => "begin 0 is the detour's",
        Quantity::Latency => "begin 0 is the instant of the timer",
    };
    writeln!(w, "events on its CPU from 1 ms before it; {zero}:")?;
    writeln!(w, "{}", table::trimmed(&t))?;
    if skipped + more > 0 {
        let shown = format!(
            "not shown (--json has them): {} earlier, {more} later",
            counted(skipped as u64, "event")
        );
        writeln!(w, "{}", wrap(&shown))?;
    }
    Ok(())
}

fn stack(w: &mut String, until: &UntilReport) -> std::fmt::Result {
    let Some(stack) = &until.stack else {
        let reason = until.no_stack.as_deref().unwrap_or("not recorded");
        return writeln!(w, "{}", wrap(&format!("no kernel stack: {reason}")));
    };
    writeln!(w, "{}", wrap(&instant(stack, until.condition.quantity)))?;
    for frame in &stack.frames {
        writeln!(w, "  {}", name(frame, FRAME_WIDTH))?;
    }
    Ok(())
}

/// The instant to which a stack belongs.
fn instant(stack: &StackReport, quantity: Quantity) -> String {
    let begin = match quantity {
        Quantity::Detour => "the detour's begin",
        Quantity::Latency => "the instant of the timer",
    };
    let after = format!("kernel stack {} after {begin}", time(stack.at_ns.max(0) as f64));
    let task = format!("{} (thread {})", name(&stack.task, 16), stack.pid);
    match stack.event {
        StackEvent::Interrupted => format!("{after}, where an interrupt found it, in {task}:"),
        StackEvent::Left => format!("{after}, as {task} left the CPU:"),
        StackEvent::Began => format!("{after}, as the source began, on top of {task}:"),
    }
}
