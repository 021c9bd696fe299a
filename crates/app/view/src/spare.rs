// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reservation of cores as text.

use std::fmt::Write;

use colony_sched::spare::{Arrivals, SpareReport};

use crate::table::{self, name, wrap};
use crate::units::count;

/// Rows shown of each table; the rest is in the JSON.
const ROWS: usize = 6;

/// The reservation of a run.
pub(crate) fn render(w: &mut String, r: &SpareReport) -> std::fmt::Result {
    let changed = r.settings.iter().filter(|s| s.refused.is_none()).count();
    let head = format!(
        "spare cores: {} for everything but the job · {} · {} of {} settings · {} tasks moved",
        r.spare.named(),
        r.partition.describe(),
        changed,
        r.settings.len(),
        count(r.moved as u64)
    );
    writeln!(w, "{}", wrap(&head))?;
    interrupts(w, &r.interrupts)?;
    let staying: Vec<String> = r
        .staying
        .iter()
        .map(|s| match s.count {
            1 => s.name.clone(),
            n => format!("{n} × {}", s.name),
        })
        .collect();
    if !staying.is_empty() {
        writeln!(w, "{}", wrap(&format!("still on the job's CPUs: {}", staying.join(", "))))?;
    }
    for s in r.settings.iter().filter(|s| s.refused.is_some()) {
        let reason = s.refused.as_deref().unwrap_or_default();
        writeln!(w, "{}", wrap(&format!("note: {} ({}) did not take effect: {reason}", s.rule, s.setting)))?;
    }
    for (rule, title) in &r.left {
        writeln!(w, "{}", wrap(&format!("note: needs a kernel parameter ({rule}): {title}")))?;
    }
    if r.brought_back > 0 {
        let times = count(r.brought_back);
        writeln!(
            w,
            "{}",
            wrap(&format!("note: tasks of the job left its CPUs {times} times and were bound again"))
        )?;
    }
    for note in &r.fallbacks {
        writeln!(w, "{}", wrap(&format!("note: {note}")))?;
    }
    for failure in &r.not_undone {
        writeln!(w, "{}", wrap(&format!("warning: not undone: {failure}")))?;
    }
    Ok(())
}

fn interrupts(w: &mut String, all: &[Arrivals]) -> std::fmt::Result {
    if all.is_empty() {
        return writeln!(w, "no interrupt arrived at the job's CPUs");
    }
    let mut t = table::new(["interrupts on the job's CPUs", "before, /s", "in the run, /s", "arrivals"]);
    for a in all.iter().take(ROWS) {
        let rate = |r: f64| if r >= 10.0 { format!("{r:.0}") } else { format!("{r:.1}") };
        t.add_row([name(&a.name, 30), rate(a.before_per_s), rate(a.per_s), count(a.count)]);
    }
    if let Some(rest) = all.get(ROWS..).filter(|rest| !rest.is_empty()) {
        t.add_row([
            format!("{} more", rest.len()),
            String::new(),
            String::new(),
            count(rest.iter().map(|a| a.count).sum()),
        ]);
    }
    writeln!(w, "{t}")
}
