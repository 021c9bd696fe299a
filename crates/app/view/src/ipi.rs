// SPDX-License-Identifier: MIT OR Apache-2.0
//! Senders of interprocessor interrupts, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use colony_measure::attrib::{IpiReport, IpiSender};
use colony_measure::{Measurement, SourceReport};
use colony_node::cpu::CpuSet;

use crate::table::{name, wrap};
use crate::units::{count, counted};

/// Rows shown.
const ROWS: usize = 6;
/// The sources that other CPUs send.
const SENT: [&str; 3] = ["irq:call_function", "irq:call_function_single", "irq:reschedule"];

/// The senders of the interprocessor interrupts that the observed CPUs got, as lines of at most 80 columns; empty if there were none.
pub(crate) fn render(m: &Measurement) -> String {
    let mut out = String::new();
    let is_got = |s: &SourceReport| SENT.contains(&s.source.to_string().as_str()) && s.events > Some(0);
    if let Some(ipi) = m.attribution.ipi.as_ref().filter(|_| m.sources.iter().any(is_got)) {
        // writing to a String cannot fail
        let _ = senders(&mut out, ipi);
    }
    out
}

fn senders(w: &mut String, ipi: &IpiReport) -> std::fmt::Result {
    if let Some(reason) = &ipi.not_known {
        return writeln!(
            w,
            "{}",
            wrap(&format!("senders of interprocessor interrupts: not known: {reason}"))
        );
    }
    let rows = rows(&ipi.senders);
    if rows.is_empty() {
        return writeln!(w, "senders of interprocessor interrupts to these CPUs: none was seen");
    }
    writeln!(w, "senders of interprocessor interrupts to these CPUs:")?;
    for row in rows.iter().take(ROWS) {
        writeln!(w, "{}", wrap(&row.text()))?;
    }
    if let Some(rest) = rows.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let sent = count(rest.iter().map(|row| row.sent).sum());
        writeln!(
            w,
            "{}",
            wrap(&format!("{} more (--json has all): {sent}", counted(rest.len() as u64, "row")))
        )?;
    }
    if ipi.lost > 0 {
        let lost = format!("sent by others, for which the list had no room: {}", count(ipi.lost));
        writeln!(w, "{}", wrap(&lost))?;
    }
    match &ipi.no_functions {
        Some(reason) => writeln!(w, "{}", wrap(&format!("functions of the senders: not known: {reason}"))),
        None => Ok(()),
    }
}

/// Senders of one name that send for the same reason.
struct Row<'a> {
    first: &'a IpiSender,
    sent: u64,
    threads: BTreeSet<i32>,
    cpus: CpuSet,
}

/// The senders by reason and name, most interrupts first.
fn rows(senders: &[IpiSender]) -> Vec<Row<'_>> {
    let mut groups: BTreeMap<_, Vec<&IpiSender>> = BTreeMap::new();
    for s in senders.iter().filter(|s| SENT.contains(&s.source.to_string().as_str())) {
        groups.entry((&s.source, &s.task, &s.callback, &s.callsite)).or_default().push(s);
    }
    let mut rows: Vec<Row<'_>> = groups.into_values().filter_map(|group| Row::of(&group)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.sent));
    rows
}

impl<'a> Row<'a> {
    /// A row of these senders; `None` if there are none.
    fn of(group: &[&'a IpiSender]) -> Option<Self> {
        Some(Self {
            first: group.first()?,
            sent: group.iter().map(|s| s.sent).sum(),
            threads: group.iter().map(|s| s.pid).collect(),
            cpus: group.iter().map(|s| s.cpu as usize).collect(),
        })
    }

    fn text(&self) -> String {
        let threads = match self.threads.len() {
            1 => format!("thread {}", self.first.pid),
            n => counted(n as u64, "thread"),
        };
        let mut text = format!(
            "{} {}: {} ({threads}) on {}",
            self.first.source,
            count(self.sent),
            name(&self.first.task, 16),
            self.cpus.named(),
        );
        if let Some(callback) = &self.first.callback {
            text += &format!(", calls {callback}");
        }
        if let Some(callsite) = &self.first.callsite {
            text += &format!(", from {callsite}");
        }
        text
    }
}
