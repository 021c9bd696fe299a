// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of the kernel's scheduler and interrupt tracepoints (`sched_switch`, `irq_handler_entry`, `softirq_entry`, those of
//! `irq_vectors`, and their exits), as the `trace` file, `trace-cmd report` and `perf script` print it.
//!
//! These events say what ran on a CPU at each instant. Noise is what ran there beside the program: the interrupts, and the threads other
//! than the program and the idle thread. The program of a CPU is the thread that ran there for more than half of the time; if there is
//! none, every thread is noise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use super::ftrace::{self, Losses, Place, is_idle_thread};
use super::text::{Header, Lines};
use crate::Source;
use crate::trace::{Detour, Lengths, Problem, Stated, Trace, TraceBuilder};

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// One thread follows another.
    Switch { from: Thread, to: Thread },
    /// An interrupt, a softirq or an NMI begins.
    Begin(Source),
    /// The last that began ends.
    End(Kind),
}

/// A thread in a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    pid: u32,
    /// `None` for the idle thread, which is no noise.
    source: Option<Source>,
}

/// The kind of an interrupt, by which its end finds its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Irq,
    Softirq,
}

impl Kind {
    fn of(source: &Source) -> Self {
        match source {
            Source::Softirq(_) => Self::Softirq,
            _ => Self::Irq,
        }
    }
}

/// True if a line of `text` is an event that this module reads.
pub(super) fn is_in(text: &str) -> bool {
    text.lines().any(|line| !line.starts_with('#') && event(line).is_some_and(|(_, event)| event.is_ok()))
}

/// The text before the event, and the event; `None` for a line of another event.
fn event(line: &str) -> Option<(&str, Result<Event, String>)> {
    let mut from = 0;
    // the name of a command stands before the event and may hold `: ` too
    while let Some(found) = line[from..].find(": ") {
        let at = from + found;
        let before = &line[..at];
        let name = before.rsplit([' ', '\t', ':']).next().unwrap_or(before);
        let fields = line[at + 2..].trim();
        if let Some(event) = named(name, fields) {
            let prefix = before.strip_suffix(name).unwrap_or(before);
            return Some((prefix, event));
        }
        from = at + 2;
    }
    None
}

/// The event of this name.
fn named(name: &str, fields: &str) -> Option<Result<Event, String>> {
    let missing =
        |what: &str| format!("`{what}` is missing in `{}`", fields.chars().take(80).collect::<String>());
    Some(match name {
        "sched_switch" => switch(fields).ok_or_else(|| missing("prev_comm= … ==> next_comm=")),
        "irq_handler_entry" => {
            let name = fields.split_once("name=").map(|(_, name)| name.trim());
            name.map(|n| Event::Begin(Source::Irq(n.into()))).ok_or_else(|| missing("name="))
        }
        "irq_handler_exit" => Ok(Event::End(Kind::Irq)),
        "softirq_entry" => {
            let action = fields.split_once("action=").map(|(_, action)| action.trim_end_matches(']'));
            action.map(|a| Event::Begin(Source::Softirq(a.into()))).ok_or_else(|| missing("action="))
        }
        "softirq_exit" => Ok(Event::End(Kind::Softirq)),
        // local_timer_entry, reschedule_entry, call_function_single_entry, …: `vector=236`
        _ if fields.starts_with("vector=") => match (name.strip_suffix("_entry"), name.strip_suffix("_exit"))
        {
            (Some(name), _) => Ok(Event::Begin(Source::Irq(name.into()))),
            (_, Some(_)) => Ok(Event::End(Kind::Irq)),
            _ => return None,
        },
        _ => return None,
    })
}

/// `prev_comm=app prev_pid=9 … ==> next_comm=kworker/3:1 next_pid=210 …`, or `app:9 [120] R ==> kworker/3:1:210 [120]`.
fn switch(fields: &str) -> Option<Event> {
    let (prev, next) = fields.split_once("==>")?;
    let long = |part: &str, key: &str| {
        let (name, rest) = part.split_once(&format!("{key}_comm="))?.1.split_once(&format!(" {key}_pid="))?;
        thread(name, rest.split_whitespace().next()?)
    };
    let short = |part: &str| {
        let (name, pid) = part.split_once(" [")?.0.trim().rsplit_once(':')?;
        thread(name, pid)
    };
    let from = long(prev, "prev").or_else(|| short(prev))?;
    let to = long(next, "next").or_else(|| short(next))?;
    Some(Event::Switch { from, to })
}

fn thread(name: &str, pid: &str) -> Option<Thread> {
    let source = (!is_idle_thread(name, pid)).then(|| Source::Thread(name.into()));
    Some(Thread { pid: pid.parse().ok()?, source })
}

/// What runs on a CPU.
struct Cpu {
    /// Instant of its first event.
    first_ns: i64,
    /// The thread that runs, and since when; `None` before the first switch.
    thread: Option<(Thread, i64)>,
    /// Interrupts that have begun, the innermost last.
    open: Vec<(Source, i64)>,
}

/// What was read so far.
#[derive(Default)]
struct File {
    trace: TraceBuilder,
    cpus: BTreeMap<u16, Cpu>,
    observed: BTreeSet<usize>,
    ran_ns: BTreeMap<(u16, Source), u64>,
    span_ns: Option<(i64, i64)>,
    /// Intervals whose beginning or end is not in the file.
    cut: u64,
}

pub(super) fn read(input: impl BufRead) -> Result<Trace, Problem> {
    let mut lines = Lines::new(input);
    let (mut header, mut losses, mut file) = (Header::default(), Losses::default(), File::default());
    while let Some(line) = lines.next()? {
        if line.starts_with('#') {
            header.comment(&line)?;
            continue;
        }
        let Some((prefix, event)) = event(&line) else {
            losses.line(&line);
            continue;
        };
        let place =
            event.and_then(|event| Ok((event, Place::of(prefix)?))).map_err(|reason| lines.wrong(reason))?;
        let (event, Place { cpu: Some(cpu), at_ns: Some(at_ns) }) = place else {
            return Err(lines.wrong(
                "the line must name its CPU and its instant, as in `app-9 [003] 100.000120: sched_switch: …`; print the trace \
                 without the option latency-format",
            ));
        };
        file.take(cpu, at_ns, event)?;
    }
    file.end(&header, &losses)
}

impl File {
    fn take(&mut self, cpu: u16, at_ns: i64, event: Event) -> Result<(), Problem> {
        let (first, last) = self.span_ns.unwrap_or((at_ns, at_ns));
        self.span_ns = Some((first.min(at_ns), last.max(at_ns)));
        let on =
            self.cpus.entry(cpu).or_insert_with(|| Cpu { first_ns: at_ns, thread: None, open: Vec::new() });
        match event {
            Event::Switch { from, to } => {
                let since_ns = match on.thread.replace((to, at_ns)) {
                    Some((running, since_ns)) if running.pid == from.pid => since_ns,
                    // a switch between them was lost
                    Some(_) => {
                        self.cut += 1;
                        return Ok(());
                    }
                    None => on.first_ns,
                };
                self.thread(cpu, from, since_ns, at_ns)
            }
            Event::Begin(source) => {
                on.open.push((source, at_ns));
                Ok(())
            }
            Event::End(kind) => {
                let Some(at) = on.open.iter().rposition(|(source, _)| Kind::of(source) == kind) else {
                    self.cut += 1;
                    return Ok(());
                };
                // those that began later have lost their end
                self.cut += (on.open.len() - at - 1) as u64;
                on.open.truncate(at + 1);
                match on.open.pop() {
                    Some((source, start_ns)) => self.row(cpu, &source, start_ns, at_ns),
                    None => Ok(()),
                }
            }
        }
    }

    fn thread(&mut self, cpu: u16, thread: Thread, start_ns: i64, end_ns: i64) -> Result<(), Problem> {
        let Some(source) = thread.source.filter(|_| end_ns > start_ns) else { return Ok(()) };
        self.row(cpu, &source, start_ns, end_ns)?;
        *self.ran_ns.entry((cpu, source)).or_default() += end_ns.abs_diff(start_ns);
        Ok(())
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

    fn end(mut self, header: &Header, losses: &Losses) -> Result<Trace, Problem> {
        let Some((first_ns, last_ns)) = self.span_ns else {
            return Err(Problem::Empty("lines of sched_switch, irq_handler_entry, softirq_entry, …"));
        };
        for (cpu, on) in std::mem::take(&mut self.cpus) {
            self.observed.insert(usize::from(cpu));
            self.cut += on.open.len() as u64;
            if let Some((thread, since_ns)) = on.thread {
                self.thread(cpu, thread, since_ns, last_ns)?;
            }
        }
        let span_ns = last_ns.abs_diff(first_ns);
        ftrace::remove(&mut self.trace, &ftrace::programs(&self.ran_ns, span_ns));
        if self.cut > 0 {
            self.trace.note(format!(
                "{} intervals of threads and interrupts lack their beginning or their end: they are left out",
                self.cut
            ));
        }
        let lost_events = losses.count(header, &mut self.trace);
        self.trace.build_foreign(Stated {
            cpus: Some(self.observed.into_iter().collect()),
            observed_s: (span_ns > 0).then_some(span_ns as f64 / 1e9),
            start_ns: Some(first_ns),
            lost_events,
            classes: header.classes.clone(),
            lengths: Lengths::Nested,
            ..Stated::default()
        })
    }
}
