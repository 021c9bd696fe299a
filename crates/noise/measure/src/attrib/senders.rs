// SPDX-License-Identifier: MIT OR Apache-2.0
//! Senders of interprocessor interrupts to the measured CPUs, as the BPF programs count them (`bpf/attrib.bpf.c`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::text;
use super::skel::types::{ipi as RawIpi, sender as RawSender};
use super::symbols::Symbols;
use colony_trace::Source;

/// Senders of interprocessor interrupts to the measured CPUs during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpiReport {
    /// The reason for which senders are not known; `None` if they are. An empty list of senders means that none sent only then.
    pub not_known: Option<String>,
    /// The reason for which functions are not named; `None` if they are.
    pub no_functions: Option<String>,
    /// Interrupts whose sender found no room in the list.
    pub lost: u64,
    /// The senders, most interrupts first.
    pub senders: Vec<IpiSender>,
}

/// One sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IpiSender {
    /// The source that its interrupts are on the CPUs that get them: `irq:call_function`, `irq:call_function_single`,
    /// `irq:reschedule` or `irq:irq_work`.
    pub source: Source,
    /// Interrupts sent to measured CPUs.
    pub sent: u64,
    /// Name of the task on the sending CPU; an interrupt sends in the name of the task it interrupted.
    pub task: String,
    /// Thread id of that task; 0 is the idle task.
    pub pid: i32,
    /// The sending CPU.
    pub cpu: u32,
    /// The function that the interrupt calls on the other CPU; `None` if there is none, or if the kernel does not tell it.
    pub callback: Option<String>,
    /// The function that sent it.
    pub callsite: Option<String>,
}

/// The function that handles every call of a function; another tracepoint has the function that was queued for it (Linux 6.5).
const GENERIC: &str = "generic_smp_call_function_single_interrupt";

/// Gives the senders of a map their names. Callsites in one function are one sender.
pub(super) fn named(raw: &[(RawSender, u64)], symbols: Option<&Symbols>) -> Vec<IpiSender> {
    let mut sent_by: BTreeMap<IpiSender, u64> = BTreeMap::new();
    for (sender, count) in raw {
        let function = |address: u64| symbols?.function_at(address);
        let callback = function(sender.callback);
        let key = IpiSender {
            source: Source::Irq(source(sender, callback.as_deref()).to_owned()),
            sent: 0,
            task: text(&sender.name),
            pid: sender.pid as i32,
            cpu: sender.cpu,
            callback: callback.filter(|name| name != GENERIC),
            callsite: function(sender.callsite),
        };
        *sent_by.entry(key).or_default() += count;
    }
    let mut all: Vec<IpiSender> =
        sent_by.into_iter().map(|(sender, sent)| IpiSender { sent, ..sender }).collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.sent));
    all
}

/// The vector of an interrupt, by its name in `irq_vectors`.
fn source(sender: &RawSender, callback: Option<&str>) -> &'static str {
    match RawIpi(sender.ipi) {
        RawIpi::IPI_MASK if sender.callback != 0 => "call_function",
        RawIpi::IPI_CALL => "call_function_single",
        _ if sender.callback == 0 => "reschedule",
        // nothing was queued for it: work that a CPU sends to itself
        _ if callback.is_some_and(|name| name != GENERIC) => "irq_work",
        _ => "call_function_single",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(ipi: RawIpi, callback: u64, callsite: u64) -> RawSender {
        let mut raw = RawSender { ipi: ipi.0, callback, callsite, pid: 7, cpu: 2, ..RawSender::default() };
        raw.name[0] = b'x'.cast_signed();
        raw
    }

    #[test]
    fn senders_are_told_by_vector_and_function_and_not_by_address() {
        let file = format!("1000 t ttwu\n2000 t flush\n3000 t {GENERIC}\n4000 t perf_work\n");
        let symbols = Symbols::parse(file.as_bytes());
        let all = [
            (raw(RawIpi::IPI_ONE, 0, 0x1010), 1),
            (raw(RawIpi::IPI_ONE, 0, 0x1020), 4),
            (raw(RawIpi::IPI_CALL, 0x2000, 0x1010), 3),
            (raw(RawIpi::IPI_MASK, 0x2000, 0x1010), 2),
            (raw(RawIpi::IPI_ONE, 0x3000, 0x1010), 1),
            (raw(RawIpi::IPI_ONE, 0x4000, 0x1010), 1),
        ];
        let named = named(&all, Some(&symbols));
        let told = |s: &IpiSender| (s.source.to_string(), s.sent, s.callback.clone().unwrap_or_default());
        let told: Vec<_> = named.iter().map(told).collect();
        let expected = [
            ("irq:reschedule", 5, ""),
            ("irq:call_function_single", 3, "flush"),
            ("irq:call_function", 2, "flush"),
            ("irq:call_function_single", 1, ""),
            ("irq:irq_work", 1, "perf_work"),
        ];
        assert_eq!(told, expected.map(|(source, sent, callback)| (source.into(), sent, callback.into())));
        assert!(named.iter().all(|s| s.callsite.as_deref() == Some("ttwu") && s.task == "x"));
    }

    #[test]
    fn without_symbols_the_vector_is_still_told() {
        let named = named(&[(raw(RawIpi::IPI_MASK, 0x2000, 0x1010), 2)], None);
        assert_eq!(named[0].source.to_string(), "irq:call_function");
        assert_eq!((&named[0].callback, &named[0].callsite), (&None, &None));
    }
}
