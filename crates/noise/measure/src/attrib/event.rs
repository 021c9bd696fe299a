// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as the BPF programs write them (`bpf/attrib.bpf.c`).

use super::skel::types::{event as RawEvent, kind as RawKind, what as RawWhat};
use colony_trace::Source;

/// Something that happened on a measured CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at_ns: i64,
    /// What it was.
    pub kind: Kind,
}

/// The kinds of [`Event`].
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The CPU went from one task to another.
    Switch {
        /// Task left.
        from: i32,
        /// Whether it would rather have gone on.
        runnable: bool,
        /// Task entered; 0 is the idle task.
        to: i32,
        /// Kernel priority of the task entered: 0..=99 real-time, above fair; smaller goes first.
        prio: u16,
        /// Name of the task entered.
        name: String,
    },
    /// An interrupt or softirq began.
    Enter(Source),
    /// An interrupt or softirq ended.
    Exit,
    /// Something that took this long and ends here.
    Past(Source, u64),
    /// Something began here whose end is not told: it lasts until the program goes on.
    Begin(Source),
}

/// Softirqs by vector (`include/linux/interrupt.h`).
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

impl Event {
    /// Decodes one; `None` for what this version does not know.
    pub(crate) fn decode(raw: &RawEvent) -> Option<Self> {
        let of_vector = |name: &str| Some(Source::Irq(name.to_owned()));
        let source = || match RawWhat(raw.what.into()) {
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
            RawWhat::SOFTIRQ => Some(Source::Softirq(
                SOFTIRQS.get(raw.arg as usize).map_or_else(|| raw.arg.to_string(), |s| (*s).to_owned()),
            )),
            RawWhat::IRQ => Some(Source::Irq(match text(&raw.name) {
                name if name.is_empty() => raw.arg.to_string(),
                name => name,
            })),
            RawWhat::NMI => Some(Source::Nmi),
            RawWhat::PAGE_FAULT => Some(Source::Fault("page".into())),
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
            RawKind::ENTER => Kind::Enter(source()?),
            RawKind::EXIT => Kind::Exit,
            RawKind::POINT if RawWhat(raw.what.into()) == RawWhat::NMI => {
                Kind::Past(Source::Nmi, raw.arg.into())
            }
            RawKind::POINT => Kind::Begin(source()?),
            _ => return None,
        };
        Some(Self { at_ns: raw.at_ns as i64, kind })
    }
}

fn text(chars: &[i8]) -> String {
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
            Kind::Enter(s) | Kind::Past(s, _) | Kind::Begin(s) => s.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(source(raw(RawKind::ENTER, RawWhat::LOCAL_TIMER, 236)), "irq:local_timer");
        assert_eq!(source(raw(RawKind::ENTER, RawWhat::SOFTIRQ, 9)), "softirq:RCU");
        assert_eq!(source(raw(RawKind::ENTER, RawWhat::IRQ, 7)), "irq:7");
        assert_eq!(source(raw(RawKind::POINT, RawWhat::NMI, 7)), "nmi");
        assert_eq!(source(raw(RawKind::POINT, RawWhat::PAGE_FAULT, 0)), "fault:page");
    }

    proptest! {
        #[test]
        fn no_event_panics(kind: u16, what: u16, arg: u32, name: [i8; 16]) {
            let _ = Event::decode(&RawEvent { kind, what, arg, name, ..RawEvent::default() });
        }
    }
}
