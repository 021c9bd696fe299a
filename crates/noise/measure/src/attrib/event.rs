// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as the BPF programs write them (`bpf/attrib.bpf.c`).

use colony_trace::Source;

/// An event in the map shared with the kernel. The layout is the kernel side's `struct event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawEvent {
    pub(crate) ready: u64,
    pub(crate) at_ns: u64,
    pub(crate) arg: u32,
    pub(crate) pid: u32,
    pub(crate) kind: u16,
    pub(crate) what: u16,
    pub(crate) prio: u16,
    pub(crate) runnable: u16,
    pub(crate) name: [u8; 16],
}

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

/// `irq_vectors` tracepoints by their number in `enum what`, from 1.
const VECTORS: [&str; 11] = [
    "local_timer",
    "call_function",
    "call_function_single",
    "reschedule",
    "irq_work",
    "x86_platform_ipi",
    "thermal",
    "threshold",
    "deferred_error",
    "error",
    "spurious",
];
/// Softirqs by vector (`include/linux/interrupt.h`).
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

impl Event {
    /// Decodes one; `None` for what this version does not know.
    pub(crate) fn decode(raw: &RawEvent) -> Option<Self> {
        let source = || match raw.what {
            12 => Some(Source::Softirq(
                SOFTIRQS.get(raw.arg as usize).map_or_else(|| raw.arg.to_string(), |s| (*s).to_owned()),
            )),
            13 => Some(Source::Irq(match text(&raw.name) {
                name if name.is_empty() => raw.arg.to_string(),
                name => name,
            })),
            14 => Some(Source::Nmi),
            15 => Some(Source::Fault("page".into())),
            n => VECTORS.get(usize::from(n).wrapping_sub(1)).map(|v| Source::Irq((*v).to_owned())),
        };
        let kind = match raw.kind {
            1 => Kind::Switch {
                from: raw.arg as i32,
                runnable: raw.runnable != 0,
                to: raw.pid as i32,
                prio: raw.prio,
                name: text(&raw.name),
            },
            2 => Kind::Enter(source()?),
            3 => Kind::Exit,
            4 if raw.what == 14 => Kind::Past(Source::Nmi, raw.arg.into()),
            4 => Kind::Begin(source()?),
            _ => return None,
        };
        Some(Self { at_ns: raw.at_ns as i64, kind })
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_follow_the_kernels() {
        let raw = |kind, what, arg| RawEvent { kind, what, arg, ..RawEvent::default() };
        let source = |r| match Event::decode(&r).expect("known").kind {
            Kind::Enter(s) | Kind::Past(s, _) | Kind::Begin(s) => s.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(source(raw(2, 1, 236)), "irq:local_timer");
        assert_eq!(source(raw(2, 12, 9)), "softirq:RCU");
        assert_eq!(source(raw(2, 13, 7)), "irq:7");
        assert_eq!(source(raw(4, 14, 7)), "nmi");
        assert_eq!(source(raw(4, 15, 0)), "fault:page");
    }

    proptest! {
        #[test]
        fn no_event_panics(kind: u16, what: u16, arg: u32, name: [u8; 16]) {
            let _ = Event::decode(&RawEvent { kind, what, arg, name, ..RawEvent::default() });
        }
    }
}
