// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks of the kernel as the BPF programs keep them (`bpf/attrib.bpf.c`).

use super::event::text;
use super::skel::types::{kind as RawKind, stack as RawStack};

/// The kernel's stack at one event of a measured CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelStack {
    /// The instant of the event, `CLOCK_MONOTONIC` nanoseconds: the same as that of the event itself.
    pub at_ns: i64,
    /// The kind of the event.
    pub kind: StackKind,
    /// Thread id of the task on the CPU; 0 is the idle task.
    pub pid: i32,
    /// Name of that task.
    pub task: String,
    /// Return addresses, the innermost first; empty where the kernel could not unwind.
    pub addresses: Vec<u64>,
}

/// The events at which a stack is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackKind {
    /// The task left the CPU.
    Left,
    /// An interrupt, a softirq or a page fault began; the frames behind its own are those of the interrupted code.
    Entered,
}

impl KernelStack {
    /// Decodes one; `None` for a place that was not filled.
    pub(super) fn decode(raw: &RawStack) -> Option<Self> {
        if raw.ready == 0 {
            return None;
        }
        let kind = match RawKind(raw.kind.into()) {
            RawKind::SWITCH => StackKind::Left,
            RawKind::ENTER | RawKind::POINT => StackKind::Entered,
            _ => return None,
        };
        // a negative number is the error of a kernel that could not unwind
        let frames = usize::try_from(raw.bytes).unwrap_or(0) / size_of::<u64>();
        let addresses = raw.ip.iter().take(frames).copied().take_while(|&ip| ip != 0).collect();
        Some(Self { at_ns: raw.at_ns as i64, kind, pid: raw.pid as i32, task: text(&raw.name), addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_could_not_be_unwound_has_no_frames() {
        let raw = RawStack {
            ready: 1,
            kind: RawKind::SWITCH.0 as u16,
            bytes: 16,
            ip: [7; 32],
            ..RawStack::default()
        };
        assert_eq!(KernelStack::decode(&raw).map(|s| s.addresses), Some(vec![7, 7]));
        let failed = RawStack { bytes: -14, ..raw };
        assert_eq!(KernelStack::decode(&failed).map(|s| s.addresses), Some(vec![]));
        assert_eq!(KernelStack::decode(&RawStack { ready: 0, ..raw }), None);
    }
}
