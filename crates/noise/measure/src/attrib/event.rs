// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as the BPF programs write them (`bpf/attrib.bpf.c`).

use super::skel::types::{event as RawEvent, kind as RawKind, what as RawWhat};
use colony_trace::{Class, Source};

/// Something that happened on a measured CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at_ns: i64,
    /// The kind of the event.
    pub kind: Kind,
}

/// A source of noise as an event names it. The event also tells its class, since it tells which mechanism of the kernel
/// fired: a vector of the CPU's own interrupt controller, a device, the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The name.
    pub source: Source,
    /// The class.
    pub class: Class,
}

impl Origin {
    /// A source that is bound to its CPU.
    pub(super) fn local(source: Source) -> Self {
        Self { source, class: Class::Local }
    }

    /// A source that a spare core can take.
    fn irq(source: Source) -> Self {
        Self { source, class: Class::Irq }
    }

    /// A task of this name.
    pub(super) fn thread(name: &str) -> Self {
        Self { source: Source::Thread(name.to_owned()), class: Class::Task }
    }

    /// The softirq of this number.
    fn softirq(vector: u32) -> Self {
        match SOFTIRQS.get(vector as usize) {
            Some(&(name, class)) => Self { source: Source::Softirq(name.to_owned()), class },
            None => Self::irq(Source::Softirq(vector.to_string())),
        }
    }
}

/// The kinds of [`Event`].
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The CPU went from one task to another.
    Switch {
        /// Task left.
        from: i32,
        /// True if the task left was still runnable.
        runnable: bool,
        /// Task entered; 0 is the idle task.
        to: i32,
        /// Kernel priority of the task entered: 0..=99 real-time, above fair; smaller goes first.
        prio: u16,
        /// Name of the task entered.
        name: String,
    },
    /// The observer, which slept, was made ready to run.
    Wake,
    /// The idle task entered the idle state of this number; `None`: it left its state.
    Idle(Option<u32>),
    /// An interrupt or softirq began.
    Enter(Origin),
    /// An interrupt or softirq ended.
    Exit,
    /// Something that took this long and ends here.
    Past(Origin, u64),
    /// Something began here whose end is not told: it lasts until the program goes on.
    Begin(Origin),
}

/// Softirqs by vector (`include/linux/interrupt.h`). The timer tick of a CPU raises its local ones.
const SOFTIRQS: [(&str, Class); 10] = [
    ("HI", Class::Irq),
    ("TIMER", Class::Local),
    ("NET_TX", Class::Irq),
    ("NET_RX", Class::Irq),
    ("BLOCK", Class::Irq),
    ("IRQ_POLL", Class::Irq),
    ("TASKLET", Class::Irq),
    ("SCHED", Class::Local),
    ("HRTIMER", Class::Local),
    ("RCU", Class::Irq),
];

impl Event {
    /// Decodes one; `None` for what this version does not know.
    pub(crate) fn decode(raw: &RawEvent) -> Option<Self> {
        let of_vector = |name: &str| Some(Origin::local(Source::Irq(name.to_owned())));
        let origin = || match RawWhat(raw.what.into()) {
            // by the names of the `irq_vectors` tracepoints
            RawWhat::LOCAL_TIMER => of_vector("local_timer"),
            RawWhat::CALL_FUNCTION => of_vector("call_function"),
            RawWhat::CALL_FUNCTION_SINGLE => of_vector("call_function_single"),
            RawWhat::RESCHEDULE => of_vector("reschedule"),
            RawWhat::IRQ_WORK => of_vector("irq_work"),
            RawWhat::PLATFORM_IPI => of_vector("x86_platform_ipi"),
            RawWhat::THERMAL => of_vector("thermal"),
            RawWhat::THRESHOLD => of_vector("threshold"),
            RawWhat::DEFERRED_ERROR => of_vector("deferred_error"),
            RawWhat::ERROR => of_vector("error"),
            RawWhat::SPURIOUS => of_vector("spurious"),
            RawWhat::SOFTIRQ => Some(Origin::softirq(raw.arg)),
            RawWhat::IRQ => Some(Origin::irq(Source::Irq(match text(&raw.name) {
                name if name.is_empty() => raw.arg.to_string(),
                name => name,
            }))),
            RawWhat::NMI => Some(Origin::local(Source::Nmi)),
            RawWhat::PAGE_FAULT => Some(Origin::local(Source::Fault("page".into()))),
            _ => None,
        };
        let kind = match RawKind(raw.kind.into()) {
            RawKind::SWITCH => Kind::Switch {
                from: raw.arg as i32,
                runnable: raw.runnable != 0,
                to: raw.pid as i32,
                prio: raw.prio,
                name: text(&raw.name),
            },
            RawKind::ENTER => Kind::Enter(origin()?),
            RawKind::EXIT => Kind::Exit,
            RawKind::WAKE => Kind::Wake,
            // PWR_EVENT_EXIT of the kernel
            RawKind::IDLE => Kind::Idle(Some(raw.arg).filter(|&state| state != u32::MAX)),
            RawKind::POINT if RawWhat(raw.what.into()) == RawWhat::NMI => {
                Kind::Past(Origin::local(Source::Nmi), raw.arg.into())
            }
            RawKind::POINT => Kind::Begin(origin()?),
            _ => return None,
        };
        Some(Self { at_ns: raw.at_ns as i64, kind })
    }
}

/// A name as the kernel writes it: up to the first zero.
pub(super) fn text(chars: &[i8]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|&&c| c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_follow_the_kernels() {
        let raw = |kind: RawKind, what: RawWhat, arg| RawEvent {
            kind: kind.0 as u16,
            what: what.0 as u16,
            arg,
            ..RawEvent::default()
        };
        let source = |r| match Event::decode(&r).expect("known").kind {
            Kind::Enter(o) | Kind::Past(o, _) | Kind::Begin(o) => o.source.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(source(raw(RawKind::ENTER, RawWhat::LOCAL_TIMER, 236)), "irq:local_timer");
        assert_eq!(source(raw(RawKind::ENTER, RawWhat::SOFTIRQ, 9)), "softirq:RCU");
        assert_eq!(source(raw(RawKind::ENTER, RawWhat::IRQ, 7)), "irq:7");
        assert_eq!(source(raw(RawKind::POINT, RawWhat::NMI, 7)), "nmi");
        assert_eq!(source(raw(RawKind::POINT, RawWhat::PAGE_FAULT, 0)), "fault:page");
    }

    #[test]
    fn the_class_of_an_event_is_the_default_of_its_name() {
        let all = (0..64).flat_map(|what| (0..12).map(move |arg| (what, arg)));
        let origins = all.filter_map(|(what, arg)| {
            let kind = RawKind::ENTER.0 as u16;
            match Event::decode(&RawEvent { kind, what, arg, ..RawEvent::default() })?.kind {
                Kind::Enter(origin) => Some(origin),
                _ => None,
            }
        });
        let origins: Vec<Origin> = origins.chain([Origin::thread("kworker/0:1")]).collect();
        assert!(origins.len() > 12 * 12, "{origins:?}");
        for Origin { source, class } in origins {
            assert_eq!(source.class(), class, "{source}");
        }
    }

    #[test]
    fn a_device_named_like_a_local_vector_is_a_device() {
        let mut raw =
            RawEvent { kind: RawKind::ENTER.0 as u16, what: RawWhat::IRQ.0 as u16, ..RawEvent::default() };
        for (to, from) in raw.name.iter_mut().zip(b"thermal") {
            *to = from.cast_signed();
        }
        let expected = Origin { source: Source::Irq("thermal".into()), class: Class::Irq };
        assert_eq!(Event::decode(&raw).map(|e| e.kind), Some(Kind::Enter(expected)));
    }

    proptest! {
        #[test]
        fn no_event_panics(kind: u16, what: u16, arg: u32, name: [i8; 16]) {
            let _ = Event::decode(&RawEvent { kind, what, arg, name, ..RawEvent::default() });
        }
    }
}
