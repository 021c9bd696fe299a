// SPDX-License-Identifier: MIT OR Apache-2.0
//! The detour that ended a measurement, as text.

use std::fmt::Write;

use colony_measure::{LimitDetour, Measurement, Ran, StackEvent, StackReport, UntilReport};

use crate::table::{self, name, wrap};
use crate::units::{counted, time};

/// Most rows of events before the detour, the latest; and most during it, the earliest.
const ROWS: usize = 12;
/// Width of a frame of the stack, behind two blanks.
const FRAME_WIDTH: usize = table::WIDTH as usize - 2;

/// The end of a measurement with a condition, as lines of at most 80 columns; empty if there was no condition.
pub(crate) fn render(m: &Measurement) -> String {
    let mut out = String::new();
    let Some(until) = &m.until else { return out };
    // writing to a String cannot fail
    let _ = match &until.detour {
        None => writeln!(out, "{}", wrap(&not_reached(until, m))),
        Some(detour) => reached(&mut out, until, detour, m),
    };
    out
}

/// The condition's detours in words: `longer than 50.0 µs`, `of 50.0 µs or more`.
fn limit(until: &UntilReport) -> String {
    let limit = time(until.condition.limit_ns as f64);
    if until.condition.includes_limit {
        format!("of {limit} or more")
    } else {
        format!("longer than {limit}")
    }
}

fn not_reached(until: &UntilReport, m: &Measurement) -> String {
    let observed_s = m.per_cpu.iter().map(|c| c.observed_s).fold(0.0, f64::max);
    format!("no detour {} in {} on {}", limit(until), time(observed_s * 1e9), m.cpus.named())
}

fn reached(w: &mut String, until: &UntilReport, detour: &LimitDetour, m: &Measurement) -> std::fmt::Result {
    let length = time(detour.duration_ns as f64);
    let after = time(detour.after_ns as f64);
    let what = format!(
        "stopped at the first detour {}: {length} on CPU {}, {after} after the start",
        limit(until),
        detour.cpu
    );
    writeln!(w, "{}", wrap(&what))?;
    match (&detour.source, &m.attribution.reason) {
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
    until.during.iter().take(ROWS).for_each(|ran| add("detour", ran));
    let more = until.during.len().saturating_sub(ROWS);
    if t.row_count() == 0 {
        return writeln!(
            w,
            "{}",
            wrap("no event of the kernel in the millisecond before it, and none during it")
        );
    }
    writeln!(w, "events on its CPU from 1 ms before it; begin 0 is the detour's:")?;
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
    writeln!(w, "{}", wrap(&instant(stack)))?;
    for frame in &stack.frames {
        writeln!(w, "  {}", name(frame, FRAME_WIDTH))?;
    }
    Ok(())
}

/// The instant to which a stack belongs.
fn instant(stack: &StackReport) -> String {
    let at = time(stack.at_ns.max(0) as f64);
    let task = format!("{} (thread {})", name(&stack.task, 16), stack.pid);
    match stack.event {
        StackEvent::Interrupted => {
            format!("kernel stack {at} after the detour's begin, where an interrupt found it, in {task}:")
        }
        StackEvent::Left => {
            format!("kernel stack {at} after the detour's begin, as {task} left the CPU:")
        }
        StackEvent::Began => {
            format!("kernel stack {at} after the detour's begin, as the source began, on top of {task}:")
        }
    }
}
