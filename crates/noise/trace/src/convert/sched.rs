// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of the kernel's scheduler and interrupt tracepoints (`sched_switch`, `irq_handler_entry`, `softirq_entry`, those of
//! `irq_vectors`, and their exits), as the `trace` file, `trace-cmd report` and `perf script` print it.
//!
//! These events say what ran on a CPU at each instant. Noise is what ran there beside the program: the interrupts, and the threads other
//! than the program and the idle thread. The program is what ran most ([`Ran`]).
//!
//! After events were lost on a CPU, nothing is known of it until its next switch or interrupt.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::ftrace::{self, Losses, LostOn, Place, Ran, instants, is_idle_thread, overwritten};
use super::text::{Header, Lines};
use super::traced::Traced;
use crate::Source;
use crate::trace::{Detour, Lengths, Problem, Stated, Trace, TraceBuilder};

/// An event of a line.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// One thread follows another.
    Switch { from: Thread, to: Thread },
    /// An interrupt or a softirq begins.
    Begin(Interrupt, Source),
    /// It ends.
    End(Interrupt),
}

/// A thread in a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    pid: u32,
    /// `None` for the idle thread, which is no noise.
    source: Option<Source>,
}

/// By which the end of an interrupt finds its beginning: the number of a device's interrupt, that of a softirq, or the name of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Interrupt {
    Irq(u32),
    Softirq(u32),
    Vector(String),
}

/// True if a line of `text` is an event that this module reads.
pub(super) fn is_in(text: &str) -> bool {
    text.lines().any(|line| !line.starts_with('#') && event(line).is_some_and(|(_, event)| event.is_ok()))
}

/// The text before the event, and the event; `None` for a line of another event.
fn event(line: &str) -> Option<(&str, Result<Event, String>)> {
    // the name of a command may look like an instant too
    instants(line).find_map(|(before, after)| {
        let (name, fields) = after.trim_start().split_once(": ")?;
        let name = name.rsplit_once(':').map_or(name, |(_system, name)| name);
        Some((before, named(name, fields.trim())?))
    })
}

/// The event of this name.
fn named(name: &str, fields: &str) -> Option<Result<Event, String>> {
    let missing =
        |what: &str| format!("`{what}` is missing in `{}`", fields.chars().take(80).collect::<String>());
    let number = |key: &str| {
        let digits = fields
            .split_once(key)
            .map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
        digits.and_then(|digits| digits.parse::<u32>().ok()).ok_or_else(|| missing(key))
    };
    let text = |key: &str| fields.split_once(key).map(|(_, rest)| rest.trim()).ok_or_else(|| missing(key));
    Some(match name {
        "sched_switch" => switch(fields).ok_or_else(|| missing("prev_comm= … ==> next_comm=")),
        "irq_handler_entry" => number("irq=")
            .and_then(|irq| Ok(Event::Begin(Interrupt::Irq(irq), Source::Irq(text("name=")?.to_owned())))),
        "irq_handler_exit" => number("irq=").map(|irq| Event::End(Interrupt::Irq(irq))),
        "softirq_entry" => number("vec=").and_then(|vec| {
            let action = text("action=")?.trim_end_matches(']').to_owned();
            Ok(Event::Begin(Interrupt::Softirq(vec), Source::Softirq(action)))
        }),
        "softirq_exit" => number("vec=").map(|vec| Event::End(Interrupt::Softirq(vec))),
        // of ARM: `(Rescheduling interrupts)`, without a number
        "ipi_entry" => {
            Ok(Event::Begin(Interrupt::Vector(ipi(fields)?.to_owned()), Source::Irq(ipi(fields)?.to_owned())))
        }
        "ipi_exit" => Ok(Event::End(Interrupt::Vector(ipi(fields)?.to_owned()))),
        // local_timer_entry, reschedule_entry, call_function_single_entry, …: `vector=236`
        _ if fields.starts_with("vector=") => match (name.strip_suffix("_entry"), name.strip_suffix("_exit"))
        {
            (Some(name), _) => {
                Ok(Event::Begin(Interrupt::Vector(name.to_owned()), Source::Irq(name.to_owned())))
            }
            (_, Some(name)) => Ok(Event::End(Interrupt::Vector(name.to_owned()))),
            _ => return None,
        },
        _ => return None,
    })
}

/// The name of an interprocessor interrupt: `(Rescheduling interrupts)`.
fn ipi(fields: &str) -> Option<&str> {
    fields.strip_prefix('(')?.strip_suffix(')').filter(|name| !name.is_empty())
}

/// `prev_comm=app prev_pid=9 … ==> next_comm=kworker/3:1 next_pid=210 …`, or `app:9 [120] R ==> kworker/3:1:210 [120]`.
fn switch(fields: &str) -> Option<Event> {
    let long = |part: &str, key: &str| {
        let (name, rest) =
            part.strip_prefix(&format!("{key}_comm="))?.rsplit_once(&format!(" {key}_pid="))?;
        thread(name, rest.split_whitespace().next()?)
    };
    let short = |part: &str| {
        let (name, pid) = part.rsplit_once(" [")?.0.trim().rsplit_once(':')?;
        thread(name, pid)
    };
    // a name may hold an arrow
    if let Some(at) = fields.rfind(" ==> next_comm=") {
        let (prev, next) = fields.split_at(at);
        return Some(Event::Switch {
            from: long(prev, "prev")?,
            to: long(next.strip_prefix(" ==> ")?, "next")?,
        });
    }
    let (prev, next) = fields.rsplit_once(" ==> ")?;
    Some(Event::Switch { from: short(prev)?, to: short(next)? })
}

fn thread(name: &str, pid: &str) -> Option<Thread> {
    let source = (!is_idle_thread(name, pid)).then(|| Source::Thread(name.into()));
    Some(Thread { pid: pid.parse().ok()?, source })
}

/// The state of a CPU.
#[derive(Default)]
struct Cpu {
    /// Its thread and since when; `None` before the first switch and after lost events.
    thread: Option<(Thread, i64)>,
    /// Since when events are known, if no switch has been: the thread that the next one replaces ran since then.
    since_ns: Option<i64>,
    /// Interrupts that have begun, the innermost last.
    open: Vec<(Interrupt, Source, i64)>,
    /// Nanoseconds during which the thread of the CPU is known.
    known_ns: u64,
}

/// The file as far as it is read.
#[derive(Default)]
struct File {
    header: Header,
    losses: Losses,
    traced: Traced,
    trace: TraceBuilder,
    cpus: BTreeMap<u16, Cpu>,
    ran: Ran,
    span_ns: Option<(i64, i64)>,
    /// Intervals whose beginning or end is not in the file.
    cut: u64,
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
        let Some((prefix, event)) = event(&line) else {
            file.other_line(&line);
            continue;
        };
        let place =
            event.and_then(|event| Ok((event, Place::of(prefix)?))).map_err(|reason| lines.wrong(reason))?;
        let (event, Place { cpu: Some(cpu), at_ns: Some(at_ns) }) = place else {
            return Err(lines.wrong(
                "the line must name its CPU and its instant in seconds, as in `app-9 [003] 100.000120: sched_switch: …`; print the \
                 trace without the option latency-format and with a clock of seconds, and text of perf with `perf script -F +cpu,+time`",
            ));
        };
        file.take(cpu, at_ns, event)?;
    }
    file.end()
}

impl File {
    /// A line without an event of this module.
    fn other_line(&mut self, line: &str) {
        match self.losses.line(line) {
            Some(LostOn::Cpu(cpu)) => self.forget(cpu),
            Some(LostOn::AnyCpu) => {
                let all: Vec<u16> = self.cpus.keys().copied().collect();
                all.into_iter().for_each(|cpu| self.forget(cpu));
            }
            None => {
                if let Some(cpu) = ftrace::empty_cpu(line) {
                    self.cpus.entry(cpu).or_default();
                }
            }
        }
    }

    /// Events of this CPU were lost.
    fn forget(&mut self, cpu: u16) {
        let on = self.cpus.entry(cpu).or_default();
        self.cut += on.open.len() as u64 + u64::from(on.thread.is_some());
        *on = Cpu { known_ns: on.known_ns, ..Cpu::default() };
    }

    fn take(&mut self, cpu: u16, at_ns: i64, event: Event) -> Result<(), Problem> {
        let is_whole = overwritten(&self.header).is_none_or(|n| n == 0);
        let (first, last) = self.span_ns.unwrap_or((at_ns, at_ns));
        self.span_ns = Some((first.min(at_ns), last.max(at_ns)));
        let is_new = !self.cpus.contains_key(&cpu);
        let on = self.cpus.entry(cpu).or_default();
        // a CPU was traced from the beginning, unless its first events were overwritten or lost
        let known_from = if is_new && is_whole { first.min(at_ns) } else { at_ns };
        let since_ns = *on.since_ns.get_or_insert(known_from);
        match event {
            Event::Switch { from, to } => {
                let since_ns = match on.thread.replace((to, at_ns)) {
                    Some((running, since_ns)) if running.pid == from.pid => since_ns,
                    // a switch between them was lost
                    Some(_) => {
                        self.cut += 1;
                        return Ok(());
                    }
                    None => since_ns,
                };
                self.thread(cpu, &from, since_ns, at_ns)
            }
            Event::Begin(interrupt, source) => {
                on.open.push((interrupt, source, at_ns));
                Ok(())
            }
            Event::End(interrupt) => {
                let Some(at) = on.open.iter().rposition(|(open, ..)| *open == interrupt) else {
                    self.cut += 1;
                    return Ok(());
                };
                // those that began later have lost their end
                self.cut += (on.open.len() - at - 1) as u64;
                on.open.truncate(at + 1);
                match on.open.pop() {
                    Some((_, source, start_ns)) => self.row(cpu, &source, start_ns, at_ns),
                    None => Ok(()),
                }
            }
        }
    }

    fn thread(&mut self, cpu: u16, thread: &Thread, start_ns: i64, end_ns: i64) -> Result<(), Problem> {
        let Some(ns) = end_ns.checked_sub(start_ns).and_then(|ns| u64::try_from(ns).ok()) else {
            self.cut += 1;
            return Ok(());
        };
        if let Some(on) = self.cpus.get_mut(&cpu) {
            on.known_ns = on.known_ns.saturating_add(ns);
        }
        let Some(source) = thread.source.as_ref().filter(|_| ns > 0) else { return Ok(()) };
        self.ran.add(cpu, source, ns);
        self.row(cpu, source, start_ns, end_ns)
    }

    fn row(&mut self, cpu: u16, source: &Source, start_ns: i64, end_ns: i64) -> Result<(), Problem> {
        // the clocks of two CPUs may differ, that of one does not go back
        let Ok(duration_ns) = u64::try_from(i128::from(end_ns) - i128::from(start_ns)) else {
            self.cut += 1;
            return Ok(());
        };
        let source = self.trace.source(source)?;
        self.trace.push(Detour { node: 0, cpu, start_ns, duration_ns, source })
    }

    fn end(mut self) -> Result<Trace, Problem> {
        let Some((first_ns, last_ns)) = self.span_ns else {
            return Err(Problem::Empty("lines of sched_switch, irq_handler_entry, softirq_entry, …"));
        };
        for cpu in self.cpus.keys().copied().collect::<Vec<_>>() {
            let Some(on) = self.cpus.get_mut(&cpu) else { continue };
            self.cut += on.open.len() as u64;
            if let Some((thread, since_ns)) = on.thread.take() {
                self.thread(cpu, &thread, since_ns, last_ns)?;
            }
        }
        self.traced.check_machines()?;
        let span_ns = last_ns.abs_diff(first_ns);
        let known_ns: BTreeMap<u16, u64> = self.cpus.iter().map(|(cpu, on)| (*cpu, on.known_ns)).collect();
        self.ran.remove_program(
            &mut self.trace,
            |cpu| known_ns.get(&cpu).copied().unwrap_or(span_ns),
            span_ns,
        );
        match self.cut {
            0 => {}
            1 => self.trace.note(
                "1 interval of a thread or an interrupt lacks its beginning or its end: it is left out",
            ),
            cut => self.trace.note(format!(
                "{cut} intervals of threads and interrupts lack their beginning or their end: they are left out"
            )),
        }
        let lost_events = self.losses.count(&self.header, &mut self.trace);
        self.traced.seen.extend(self.cpus.keys());
        let cpus = self.traced.cpus(&self.header, false, &mut self.trace);
        let observed_s = Traced::observed_s(&self.header, span_ns, &mut self.trace)?;
        self.trace.build_foreign(Stated {
            cpus: Some(cpus),
            observed_s,
            start_ns: Some(first_ns),
            lost_events,
            classes: self.header.classes,
            lengths: Lengths::Nested,
            ..Stated::default()
        })
    }
}
