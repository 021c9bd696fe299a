// SPDX-License-Identifier: MIT OR Apache-2.0
//! From events to what was on a CPU: stretches of time that were not the observer's, each with its
//! innermost source.

use std::collections::HashSet;

use super::event::{Event, Kind, Origin};
use colony_trace::Source;

/// A stretch of time the CPU gave to something else than the observer.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Begin, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// The source that ran: the innermost of those that were nested.
    pub origin: Origin,
    /// True if the event began with this span; an event with others nested in it has several spans.
    pub begins: bool,
}

/// The instant at which an observer that slept was made ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The instant, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: i64,
    /// Begin of the interrupt that did it; `None` if a thread did it, or if the begin was not seen.
    pub interrupt_ns: Option<i64>,
}

/// Longest nesting followed; the kernel's own is shorter (softirq, irq, NMI).
const MAX_DEPTH: usize = 16;

/// Follows the events of one CPU and collects spans.
#[derive(Debug)]
pub struct Tracker {
    observer: i32,
    observer_prio: Option<u16>,
    /// The task that runs in place of the observer; `None` while the observer itself runs.
    task: Option<Origin>,
    observer_wants_cpu: bool,
    /// Interrupts and softirqs that have not ended, the outermost first, with the begin of each.
    nested: Vec<(Origin, i64)>,
    wakes: Vec<Wake>,
    /// A fault of the observer: its end is not told, so it lasts until the next event; the detour it
    /// began in says how long it was.
    fault: Option<Origin>,
    /// Threads of the program that measures.
    own: HashSet<i32>,
    /// Names of the CPU's idle states, by number; `None`: the idle task is named as any other.
    idle_states: Option<Vec<String>>,
    /// Since when the present top is on the CPU, and
    since_ns: Option<i64>,
    /// whether it has had no span yet.
    begins: bool,
    spans: Vec<Span>,
    unkept: u64,
}

/// Most spans kept of one CPU, about 1 GiB.
const MAX_SPANS: usize = 1 << 24;

impl Tracker {
    /// Starts with the observer (thread id) on the CPU. `fifo` is its real-time priority, 1..=99.
    #[must_use]
    pub fn new(observer: i32, fifo: Option<u8>) -> Self {
        Self {
            observer,
            // the kernel counts the other way round: 99 - priority
            observer_prio: fifo.map(|p| 99 - u16::from(p.min(99))),
            task: None,
            observer_wants_cpu: false,
            nested: Vec::new(),
            wakes: Vec::new(),
            fault: None,
            own: HashSet::new(),
            idle_states: None,
            since_ns: None,
            begins: false,
            spans: Vec::new(),
            unkept: 0,
        }
    }

    /// Tells idleness from tasks: the idle task has the source `idle`, and `idle:STATE` in the idle state of this number.
    #[must_use]
    pub fn with_idle_states(self, names: Vec<String>) -> Self {
        Self { idle_states: Some(names), ..self }
    }

    /// Names threads of the program that measures: their time is the measurement's, not the node's.
    pub fn own(&mut self, threads: &[i32]) {
        self.own.extend(threads);
    }

    /// Takes the next event; they must come in order of time.
    pub fn event(&mut self, event: &Event) {
        match &event.kind {
            Kind::Past(origin, length_ns) => self.past(event.at_ns, origin, *length_ns),
            Kind::Wake => self.wake(event.at_ns),
            kind => {
                self.close(event.at_ns);
                self.change(event.at_ns, kind);
                self.since_ns = self.top().is_some().then_some(event.at_ns);
            }
        }
    }

    /// Ends at `at_ns` and returns all spans in order.
    #[must_use]
    pub fn finish(mut self, at_ns: i64) -> Vec<Span> {
        self.close(at_ns);
        self.spans
    }

    /// Takes the spans that began before `at_ns`; those that reach beyond it stay as well.
    pub fn take_until(&mut self, at_ns: i64) -> Vec<Span> {
        let begun = self.spans.partition_point(|s| s.start_ns < at_ns);
        let over = self.spans.partition_point(|s| s.end_ns <= at_ns);
        let taken = self.spans[..begun].to_vec();
        self.spans.drain(..over);
        taken
    }

    /// Takes the instants, not after `at_ns`, at which the observer was made ready to run.
    pub fn take_wakes_until(&mut self, at_ns: i64) -> Vec<Wake> {
        let taken = self.wakes.partition_point(|w| w.at_ns <= at_ns);
        self.wakes.drain(..taken).collect()
    }

    /// Spans that found no room.
    #[must_use]
    pub fn unkept(&self) -> u64 {
        self.unkept
    }

    fn top(&self) -> Option<&Origin> {
        self.nested.last().map(|(origin, _)| origin).or(self.task.as_ref()).or(self.fault.as_ref())
    }

    fn change(&mut self, at_ns: i64, kind: &Kind) {
        self.fault = None;
        self.begins = match kind {
            Kind::Enter(_) => true,
            Kind::Begin(_) => self.task.is_none(),
            Kind::Idle(state) => state.is_some(),
            Kind::Switch { .. } | Kind::Exit | Kind::Wake | Kind::Past(..) => false,
        };
        match kind {
            Kind::Enter(origin) if self.nested.len() < MAX_DEPTH => self.nested.push((origin.clone(), at_ns)),
            Kind::Exit => {
                self.nested.pop();
            }
            Kind::Switch { from, runnable, to, prio, name } => {
                // a switch happens outside interrupts: whatever exit was lost, it is over
                self.nested.clear();
                if *from == self.observer {
                    self.observer_wants_cpu = *runnable;
                }
                let task = (*to != self.observer).then(|| self.name_task(*to, *prio, name));
                // one throttling, however many tasks run in it
                let throttled = task.as_ref().is_some_and(|t| t.source == Source::Throttle);
                self.begins = task.is_some() && (!throttled || task != self.task);
                self.task = task;
            }
            Kind::Idle(state) if self.task.is_some() => self.task = Some(self.name_idle(*state)),
            Kind::Begin(origin) if self.task.is_none() => self.fault = Some(origin.clone()),
            Kind::Enter(_) | Kind::Begin(_) | Kind::Idle(_) | Kind::Wake | Kind::Past(..) => {}
        }
    }

    /// The observer wants the CPU from now on.
    fn wake(&mut self, at_ns: i64) {
        self.observer_wants_cpu = true;
        let innermost = self.nested.iter().rev().find(|(origin, _)| matches!(origin.source, Source::Irq(_)));
        let begin = innermost.or(self.nested.first()).map(|(_, begin_ns)| *begin_ns);
        if self.wakes.len() < MAX_SPANS {
            self.wakes.push(Wake { at_ns, interrupt_ns: begin });
        }
    }

    /// Another task's name, or `throttle` where it could only run because the observer was held back.
    fn name_task(&self, pid: i32, prio: u16, name: &str) -> Origin {
        let held_back = match self.observer_prio {
            Some(observer) => prio > observer,
            None => pid == 0,
        };
        match () {
            () if self.observer_wants_cpu && held_back => Origin::local(Source::Throttle),
            () if pid == 0 && self.idle_states.is_some() => self.name_idle(None),
            () if self.own.contains(&pid) => Origin::local(Source::Observer),
            () => Origin::thread(name),
        }
    }

    /// The idle task, in an idle state or on the way into or out of one. A state without a name is `idle` alone.
    fn name_idle(&self, state: Option<u32>) -> Origin {
        let names = self.idle_states.as_deref().unwrap_or_default();
        let name = state.and_then(|state| names.get(state as usize));
        Origin::local(Source::Other(name.map_or_else(|| "idle".into(), |name| format!("idle:{name}"))))
    }

    /// Ends the stretch that is open, if any.
    fn close(&mut self, at_ns: i64) {
        if let (Some(start_ns), Some(origin)) = (self.since_ns.take(), self.top().cloned()) {
            self.push(Span { start_ns, end_ns: at_ns.max(start_ns), origin, begins: self.begins });
        }
    }

    /// Something of known length that ended now: cut out of whatever it lies in.
    fn past(&mut self, end_ns: i64, origin: &Origin, length_ns: u64) {
        let start_ns = end_ns.saturating_sub_unsigned(length_ns);
        if let (Some(since_ns), Some(top)) = (self.since_ns, self.top().cloned()) {
            if start_ns > since_ns {
                self.push(Span { start_ns: since_ns, end_ns: start_ns, origin: top, begins: self.begins });
                self.begins = false;
            }
            self.since_ns = Some(end_ns);
        }
        self.push(Span { start_ns, end_ns, origin: origin.clone(), begins: true });
    }

    fn push(&mut self, span: Span) {
        // a span never begins before the last one ended: time is taken once
        let start_ns = self.spans.last().map_or(span.start_ns, |last| span.start_ns.max(last.end_ns));
        if span.end_ns > start_ns && self.spans.len() < MAX_SPANS {
            self.spans.push(Span { start_ns, ..span });
        } else if span.end_ns > start_ns {
            self.unkept += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ME: i32 = 100;

    fn irq(name: &str) -> Origin {
        origin(Source::Irq(name.into()))
    }

    fn origin(source: Source) -> Origin {
        Origin { class: source.class(), source }
    }

    fn switch(from: i32, runnable: bool, to: i32, prio: u16, name: &str) -> Kind {
        Kind::Switch { from, runnable, to, prio, name: name.into() }
    }

    fn track(fifo: Option<u8>, events: &[(i64, Kind)], end_ns: i64) -> Vec<(i64, i64, String)> {
        let mut t = Tracker::new(ME, fifo);
        for (at_ns, kind) in events {
            t.event(&Event { at_ns: *at_ns, kind: kind.clone() });
        }
        t.finish(end_ns).into_iter().map(|s| (s.start_ns, s.end_ns, s.origin.source.to_string())).collect()
    }

    #[test]
    fn nested_time_is_the_innermosts() {
        let events = [
            (10, switch(ME, true, 7, 120, "kworker/0:1")),
            (20, Kind::Enter(irq("local_timer"))),
            (23, Kind::Past(origin(Source::Nmi), 1)),
            (25, Kind::Exit),
            (30, switch(7, false, ME, 120, "selfish/0")),
        ];
        let expected = [
            (10, 20, "thread:kworker/0:1"),
            (20, 22, "irq:local_timer"),
            (22, 23, "nmi"),
            (23, 25, "irq:local_timer"),
            (25, 30, "thread:kworker/0:1"),
        ];
        assert_eq!(track(None, &events, 99), expected.map(|(a, b, s)| (a, b, s.to_owned())));
    }

    #[test]
    fn a_real_time_observer_behind_a_fair_task_is_throttled() {
        let events = [
            (10, switch(ME, true, 7, 120, "make")),
            (20, switch(7, true, 8, 0, "migration/0")),
            (30, switch(8, false, ME, 49, "selfish/0")),
        ];
        let seen = track(Some(50), &events, 40);
        assert_eq!(seen, [(10, 20, "throttle".into()), (20, 30, "thread:migration/0".into())]);
        // whoever sleeps by itself is not held back
        let events = [(10, switch(ME, false, 7, 120, "make")), (20, switch(7, true, ME, 49, "selfish/0"))];
        assert_eq!(track(Some(50), &events, 40), [(10, 20, "thread:make".into())]);
    }

    #[test]
    fn a_fair_observer_behind_the_idle_task_is_throttled() {
        let events =
            [(10, switch(ME, true, 0, 120, "swapper/0")), (15, switch(0, true, ME, 120, "selfish/0"))];
        assert_eq!(track(None, &events, 40), [(10, 15, "throttle".into())]);
    }

    #[test]
    fn an_event_begins_once_however_often_it_is_interrupted() {
        let mut t = Tracker::new(ME, None);
        let events = [
            (10, switch(ME, true, 7, 120, "make")),
            (20, Kind::Enter(irq("local_timer"))),
            (23, Kind::Past(origin(Source::Nmi), 1)),
            (25, Kind::Exit),
            (30, Kind::Enter(irq("local_timer"))),
            (35, Kind::Exit),
            (40, switch(7, false, ME, 120, "selfish/0")),
            (50, Kind::Begin(origin(Source::Fault("page".into())))),
            (60, Kind::Enter(irq("local_timer"))),
            (65, Kind::Exit),
        ];
        events.into_iter().for_each(|(at_ns, kind)| t.event(&Event { at_ns, kind }));
        let spans = t.finish(99);
        let count =
            |name: &str| spans.iter().filter(|s| s.begins && s.origin.source.to_string() == name).count();
        let names = ["thread:make", "irq:local_timer", "nmi", "fault:page"];
        assert_eq!(names.map(count), [1, 3, 1, 1], "{spans:?}");
    }

    #[test]
    fn idleness_is_told_from_tasks_by_its_states_where_they_are_named() {
        let mut t = Tracker::new(ME, None).with_idle_states(vec!["POLL".into(), "C6".into()]);
        let events = [
            (10, switch(ME, false, 0, 120, "swapper/0")),
            (12, Kind::Idle(Some(1))),
            (50, Kind::Enter(irq("local_timer"))),
            (55, Kind::Exit),
            (56, Kind::Idle(None)),
            (60, Kind::Idle(Some(9))),
            (70, switch(0, true, ME, 120, "wakeups/0")),
        ];
        events.into_iter().for_each(|(at_ns, kind)| t.event(&Event { at_ns, kind }));
        let spans: Vec<(i64, String)> =
            t.finish(80).into_iter().map(|s| (s.start_ns, s.origin.source.to_string())).collect();
        let expected = [
            (10, "idle"),
            (12, "idle:C6"),
            (50, "irq:local_timer"),
            (55, "idle:C6"),
            (56, "idle"),
            (60, "idle"),
        ];
        assert_eq!(spans, expected.map(|(at, name)| (at, name.to_owned())));
    }

    #[test]
    fn the_interrupt_that_wakes_the_observer_is_known_and_lower_tasks_that_then_run_are_throttling() {
        let mut t = Tracker::new(ME, Some(50)).with_idle_states(vec!["C6".into()]);
        let events = [
            (10, switch(ME, false, 7, 120, "make")),
            (20, Kind::Enter(irq("local_timer"))),
            (22, Kind::Wake),
            (25, Kind::Exit),
            // the observer would run now if the kernel let it
            (30, switch(7, true, 8, 120, "cc")),
            (40, switch(8, false, 0, 120, "swapper/0")),
            (50, switch(0, true, ME, 49, "wakeups/0")),
            (60, switch(ME, false, 0, 120, "swapper/0")),
            (70, Kind::Wake),
        ];
        events.into_iter().for_each(|(at_ns, kind)| t.event(&Event { at_ns, kind }));
        assert_eq!(t.take_wakes_until(69), [Wake { at_ns: 22, interrupt_ns: Some(20) }]);
        assert_eq!(t.take_wakes_until(70), [Wake { at_ns: 70, interrupt_ns: None }]);
        let spans: Vec<(i64, String)> =
            t.finish(80).into_iter().map(|s| (s.start_ns, s.origin.source.to_string())).collect();
        let expected = [
            (10, "thread:make"),
            (20, "irq:local_timer"),
            (25, "thread:make"),
            (30, "throttle"),
            (40, "throttle"),
            (60, "idle"),
        ];
        assert_eq!(spans, expected.map(|(at, name)| (at, name.to_owned())));
    }

    #[test]
    fn a_throttling_is_one_event_whoever_runs_in_it() {
        let mut t = Tracker::new(ME, Some(50));
        let events = [
            (10, switch(ME, true, 7, 120, "make")),
            (20, switch(7, true, 8, 120, "sh")),
            (30, switch(8, true, ME, 49, "selfish/0")),
            (40, switch(ME, true, 7, 120, "make")),
        ];
        events.into_iter().for_each(|(at_ns, kind)| t.event(&Event { at_ns, kind }));
        let begun: Vec<bool> = t.finish(50).iter().map(|s| s.begins).collect();
        assert_eq!(begun, [true, false, true]);
    }

    #[test]
    fn threads_of_the_measuring_program_have_the_source_observer() {
        let mut t = Tracker::new(ME, None);
        t.own(&[ME, 7]);
        for (at_ns, from, to) in [(10, ME, 7), (20, 7, 8), (30, 8, ME)] {
            t.event(&Event { at_ns, kind: switch(from, true, to, 120, "colony") });
        }
        let spans = t.finish(40);
        let sources: Vec<String> = spans.iter().map(|s| s.origin.source.to_string()).collect();
        assert_eq!(sources, ["observer", "thread:colony"]);
    }

    #[test]
    fn a_lost_exit_does_not_last() {
        let events = [
            (10, Kind::Enter(irq("lost"))),
            (20, switch(ME, true, 7, 120, "a")),
            (30, switch(7, true, ME, 120, "me")),
        ];
        let seen = track(None, &events, 90);
        assert_eq!(seen.last().expect("spans").1, 30, "the observer is on the CPU again");
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Enter(irq("a"))),
            Just(Kind::Enter(origin(Source::Softirq("RCU".into())))),
            Just(Kind::Exit),
            (0u64..30).prop_map(|n| Kind::Past(origin(Source::Nmi), n)),
            (99i32..103, any::<bool>(), 99i32..103, 0u16..140)
                .prop_map(|(f, r, t, p)| switch(f, r, t, p, "x")),
        ]
    }

    proptest! {
        #[test]
        fn no_time_is_given_twice(events in prop::collection::vec((0i64..20, kinds()), 0..60)) {
            let mut at = 0;
            let events: Vec<_> = events.into_iter().map(|(gap, k)| { at += gap; (at, k) }).collect();
            let seen = track(None, &events, at + 10);
            for pair in seen.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0 && pair[0].0 < pair[0].1, "{seen:?}");
            }
        }
    }
}
