// SPDX-License-Identifier: MIT OR Apache-2.0
//! The detour or the wake-up that ended a measurement: its source, the events before it, and the kernel's stack.

use serde::{Deserialize, Serialize};

use crate::attrib::join::Seen;
use crate::attrib::spans::Span;
use crate::attrib::stack::{KernelStack, StackKind};
use crate::attrib::symbols::Symbols;
use crate::condition::Condition;
use colony_trace::Source;

/// The time before the detour from which events are reported, nanoseconds.
pub const BEFORE_NS: u64 = 1_000_000;

/// The end of a measurement with a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UntilReport {
    /// The condition.
    pub condition: Condition,
    /// True if a detour met it; false if the measurement lasted as long as it may.
    pub reached: bool,
    /// The first detour that met the condition. If the condition is one on a latency: the wait from the instant of the timer to
    /// the thread.
    pub detour: Option<LimitDetour>,
    /// Sources that ran on the detour's CPU in the millisecond before it, in order; empty without attribution.
    pub before: Vec<Ran>,
    /// Sources that ran on the detour's CPU during it, in order; empty without attribution.
    pub during: Vec<Ran>,
    /// The kernel's stack of the detour's source.
    pub stack: Option<StackReport>,
    /// The reason for a detour without stack.
    pub no_stack: Option<String>,
    /// The command that was run because the condition was met.
    pub then: Option<ThenReport>,
}

/// The detour that met the condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitDetour {
    /// The CPU.
    pub cpu: usize,
    /// Begin, TAI nanoseconds.
    pub start_ns: i64,
    /// Begin, nanoseconds after the measurement's.
    pub after_ns: u64,
    /// Length, nanoseconds.
    pub duration_ns: u64,
    /// The source that took the largest part; `None` without attribution.
    pub source: Option<Source>,
    /// The time of that source in the detour, nanoseconds, as its events show it; of a wake-up, with the entry and exit of the kernel around
    /// them, as in the parts of the longest wake-ups. `None` if no event shows it.
    pub source_ns: Option<u64>,
}

/// A stretch of time in which one source ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// Begin, nanoseconds after that of the detour; negative before it.
    pub at_ns: i64,
    /// Length, nanoseconds.
    pub duration_ns: u64,
    /// The source.
    pub source: Source,
}

/// The kernel's stack at one instant of the detour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackReport {
    /// The instant, nanoseconds after the detour's begin.
    pub at_ns: i64,
    /// The event of that instant.
    pub event: StackEvent,
    /// The task on the CPU.
    pub task: String,
    /// Thread id of that task.
    pub pid: i32,
    /// Functions, the innermost first.
    pub frames: Vec<String>,
}

/// The event at which a stack was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StackEvent {
    /// An interrupt came while the source ran: the stack is what the source was doing.
    Interrupted,
    /// The source, a task, left the CPU.
    Left,
    /// The source, an interrupt, a softirq or a page fault, began.
    Began,
}

/// The command that was run because the condition was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThenReport {
    /// The command, as given to `sh -c`.
    pub command: String,
    /// Its exit code; `None` if a signal ended it, or if it could not be started.
    pub code: Option<i32>,
    /// The reason for a failure; `None` if the command succeeded.
    pub error: Option<String>,
}

impl UntilReport {
    /// A measurement in which no detour met the condition.
    pub(crate) fn not_reached(condition: Condition) -> Self {
        Self {
            condition,
            reached: false,
            detour: None,
            before: Vec::new(),
            during: Vec::new(),
            stack: None,
            no_stack: None,
            then: None,
        }
    }

    /// A measurement that ended with `detour`, which its CPU's observer saw as `seen`. `spans` are what was on that CPU, in order.
    pub(crate) fn reached(condition: Condition, mut detour: LimitDetour, seen: Seen, spans: &[Span]) -> Self {
        let end_ns = seen.start_ns.saturating_add_unsigned(seen.duration_ns);
        let from_ns = seen.start_ns.saturating_sub_unsigned(BEFORE_NS);
        let before: Vec<&Span> =
            spans.iter().filter(|s| s.end_ns > from_ns && s.end_ns <= seen.start_ns).collect();
        let during: Vec<&Span> = overlapping(spans, seen.start_ns, end_ns).collect();
        let of_source = |s: &&&Span| Some(&s.origin.source) == detour.source.as_ref();
        let source_ns: u64 = during
            .iter()
            .filter(of_source)
            .map(|s| s.end_ns.min(end_ns).abs_diff(s.start_ns.max(seen.start_ns)))
            .sum();
        detour.source_ns = detour.source_ns.or((source_ns > 0).then_some(source_ns));
        Self {
            reached: true,
            detour: Some(detour),
            before: runs(&before, seen.start_ns),
            during: runs(&during, seen.start_ns),
            ..Self::not_reached(condition)
        }
    }

    /// Adds the stack of the detour's source, or the reason for none.
    pub(crate) fn add_stack(&mut self, seen: Seen, spans: &[Span], stacks: &[KernelStack]) {
        let found = Symbols::of_kernel()
            .map_err(|e| e.to_string())
            .and_then(|symbols| self.choose_stack(seen, spans, stacks, &symbols));
        match found {
            Ok(stack) => self.stack = Some(stack),
            Err(reason) => self.no_stack = Some(reason),
        }
    }

    /// The stack that says most about the detour's source: code that an interrupt found running, else the end of a task,
    /// else the begin of an interrupt.
    fn choose_stack(
        &self,
        seen: Seen,
        spans: &[Span],
        stacks: &[KernelStack],
        symbols: &Symbols,
    ) -> Result<StackReport, String> {
        let source = self.detour.as_ref().and_then(|d| d.source.as_ref());
        let end_ns = seen.start_ns.saturating_add_unsigned(seen.duration_ns);
        let mut of_source: Vec<&Span> =
            overlapping(spans, seen.start_ns, end_ns).filter(|s| Some(&s.origin.source) == source).collect();
        if of_source.is_empty() {
            return Err("no event of the kernel explains most of the detour".into());
        }
        of_source.sort_by_key(|s| std::cmp::Reverse(s.end_ns - s.start_ns));
        // an event has the instant at which it ended one span, and began the next
        let at = |at_ns: i64, kind: StackKind| {
            let first = stacks.partition_point(|s| s.at_ns < at_ns);
            stacks.iter().skip(first).take_while(move |s| s.at_ns == at_ns).find(move |s| s.kind == kind)
        };
        let report = |stack: &KernelStack, event, frames| StackReport {
            at_ns: stack.at_ns - seen.start_ns,
            event,
            task: stack.task.clone(),
            pid: stack.pid,
            frames,
        };
        let interrupted =
            of_source.iter().filter_map(|s| at(s.end_ns, StackKind::Entered)).find_map(|stack| {
                let frames = interrupted_frames(symbols.names(&stack.addresses))?;
                Some(report(stack, StackEvent::Interrupted, frames))
            });
        let whole = |stack: &KernelStack, event| {
            let frames = symbols.names(&stack.addresses);
            (!frames.is_empty()).then(|| report(stack, event, frames))
        };
        interrupted
            .or_else(|| {
                let left = of_source.iter().filter_map(|s| at(s.end_ns, StackKind::Left));
                left.filter_map(|stack| whole(stack, StackEvent::Left)).next()
            })
            .or_else(|| {
                let began = of_source.iter().filter(|s| s.begins);
                let began = began.filter_map(|s| at(s.start_ns, StackKind::Entered));
                began.filter_map(|stack| whole(stack, StackEvent::Began)).next()
            })
            .ok_or_else(|| "the kernel gave no stack at the events of the source".into())
    }
}

/// The spans by begin and length. A span that only goes on with the one before it, as a task does after a page fault, is part of it.
fn runs(spans: &[&Span], detour_ns: i64) -> Vec<Ran> {
    let is_same_run =
        |a: &&Span, b: &&Span| a.end_ns == b.start_ns && !b.begins && a.origin.source == b.origin.source;
    let run = |run: &[&Span]| {
        let (first, last) = (run.first()?, run.last()?);
        Some(Ran {
            at_ns: first.start_ns - detour_ns,
            duration_ns: last.end_ns.abs_diff(first.start_ns),
            source: first.origin.source.clone(),
        })
    };
    spans.chunk_by(is_same_run).filter_map(run).collect()
}

/// The spans that have a part between `from_ns` and `to_ns`.
fn overlapping(spans: &[Span], from_ns: i64, to_ns: i64) -> impl Iterator<Item = &Span> {
    spans.iter().filter(move |s| s.start_ns < to_ns && s.end_ns > from_ns)
}

/// The frames of the code that an interrupt found running; `None` if that was user code. The entry of an interrupt is a
/// function `asm_…`.
fn interrupted_frames(mut frames: Vec<String>) -> Option<Vec<String>> {
    let entry = frames.iter().position(|f| f.starts_with("asm_"))?;
    frames.drain(..=entry);
    (!frames.is_empty()).then_some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrib::event::Origin;

    fn span(start_ns: i64, end_ns: i64, source: &str) -> Span {
        let source = Source::from(source);
        Span { start_ns, end_ns, origin: Origin { class: source.class(), source }, begins: true }
    }

    fn condition() -> Condition {
        "detour > 50us".parse().expect("a condition")
    }

    fn detour(source: &str) -> LimitDetour {
        LimitDetour {
            cpu: 1,
            start_ns: 0,
            after_ns: 0,
            duration_ns: 100_000,
            source: Some(source.into()),
            source_ns: None,
        }
    }

    const SEEN: Seen = Seen { start_ns: 5_000_000, duration_ns: 100_000 };

    /// Functions `f0`, `f1`, … of 16 bytes; the second is the entry of an interrupt.
    fn symbols() -> Symbols {
        Symbols::parse(b"1000 t f0\n1010 t asm_sysvec_apic_timer_interrupt\n1020 t f2\n1030 t f3\n")
    }

    fn stack(at_ns: i64, kind: StackKind, addresses: &[u64]) -> KernelStack {
        KernelStack { at_ns, kind, pid: 7, task: "daemon".into(), addresses: addresses.to_vec() }
    }

    #[test]
    fn events_of_the_last_millisecond_and_of_the_detour_are_told_apart() {
        let spans = [
            span(3_900_000, 3_950_000, "softirq:RCU"),
            span(4_500_000, 4_501_000, "irq:local_timer"),
            span(5_000_100, 5_090_100, "thread:daemon"),
            span(5_090_100, 5_099_000, "softirq:TIMER"),
            span(5_200_000, 5_300_000, "nmi"),
        ];
        let until = UntilReport::reached(condition(), detour("thread:daemon"), SEEN, &spans);
        let told = |all: &[Ran]| all.iter().map(|r| (r.at_ns, r.duration_ns)).collect::<Vec<_>>();
        assert_eq!(told(&until.before), [(-500_000, 1_000)]);
        assert_eq!(told(&until.during), [(100, 90_000), (90_100, 8_900)]);
        assert_eq!(until.detour.and_then(|d| d.source_ns), Some(90_000));
    }

    #[test]
    fn a_task_that_goes_on_after_a_page_fault_is_one_run() {
        let goes_on = Span { begins: false, ..span(5_030_000, 5_060_000, "thread:daemon") };
        let spans =
            [span(5_000_100, 5_030_000, "thread:daemon"), goes_on, span(5_060_000, 5_061_000, "softirq:RCU")];
        let until = UntilReport::reached(condition(), detour("thread:daemon"), SEEN, &spans);
        assert_eq!(until.during.iter().map(|r| r.duration_ns).collect::<Vec<_>>(), [59_900, 1_000]);
    }

    #[test]
    fn code_that_an_interrupt_found_running_says_more_than_the_end_of_a_task() {
        let spans =
            [span(5_000_100, 5_040_000, "thread:daemon"), span(5_041_000, 5_090_000, "thread:daemon")];
        let until = UntilReport::reached(condition(), detour("thread:daemon"), SEEN, &spans);
        let interrupted = stack(5_040_000, StackKind::Entered, &[0x1005, 0x1015, 0x1025, 0x1035]);
        let left = stack(5_090_000, StackKind::Left, &[0x1035]);
        let chosen = |stacks: &[KernelStack]| until.choose_stack(SEEN, &spans, stacks, &symbols());
        let both = chosen(&[interrupted.clone(), left.clone()]).expect("a stack");
        assert_eq!(
            (both.event, both.at_ns, both.frames),
            (StackEvent::Interrupted, 40_000, vec!["f2+0x5".into(), "f3+0x5".into()])
        );
        // it interrupted user code: nothing lies behind the entry
        let in_user = KernelStack { addresses: vec![0x1005, 0x1015], ..interrupted };
        let end = chosen(&[in_user, left]).expect("a stack");
        assert_eq!((end.event, end.at_ns, end.frames), (StackEvent::Left, 90_000, vec!["f3+0x5".into()]));
        assert!(chosen(&[]).is_err());
    }

    #[test]
    fn an_interrupt_has_the_stack_of_its_begin_and_time_without_events_has_none() {
        let spans = [span(5_000_100, 5_090_000, "irq:virtio0")];
        let stacks = [stack(5_000_100, StackKind::Entered, &[0x1005, 0x1015])];
        let until = UntilReport::reached(condition(), detour("irq:virtio0"), SEEN, &spans);
        let chosen = until.choose_stack(SEEN, &spans, &stacks, &symbols()).expect("a stack");
        assert_eq!((chosen.event, chosen.at_ns, chosen.frames.len()), (StackEvent::Began, 100, 2));
        let until = UntilReport::reached(condition(), detour("unexplained"), SEEN, &[]);
        assert!(until.choose_stack(SEEN, &spans, &stacks, &symbols()).is_err());
    }
}
