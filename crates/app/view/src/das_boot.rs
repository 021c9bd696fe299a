// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boot time against the size of the system.

use std::fmt::Write;

use colony_study::das_boot::{Curve, Estimate, Line, PUBLISHED, Results, SOURCE, System};
use colony_study::format::{counted, number};

use crate::table::{self, name, wrap};
use crate::units::time;

/// A table for each node, and what was published.
#[must_use]
pub fn results(r: &Results) -> String {
    let mut out = format!("{}\n", wrap(&r.headline()));
    let [io, compute] = r.memory_mib;
    for curve in &r.curves {
        let memory = match curve.system {
            System::IoNode => format!("; {} has {io} MiB of memory", name(&r.kernel, 40)),
            System::ComputeNodeImage => format!("; the node has {compute} MiB of memory"),
            System::ComputeNodeMemory => String::new(),
        };
        let _ = writeln!(out, "\n{}", wrap(&format!("{}{memory}", curve.system.name())));
        let _ = writeln!(out, "{}", rows(curve));
        if let (Some(cpu), Some(guest)) = (curve.cpu, curve.guest) {
            let line = |l: Line| format!("{} + {} a MiB", time(l.at_zero_s * 1e9), time(l.per_mib_s * 1e9));
            let text = format!("as straight lines: CPU time {}, guest time {}", line(cpu), line(guest));
            let _ = writeln!(out, "{}", wrap(&text));
        }
    }
    let repetitions = counted(r.plan.repeat.into(), "repetition");
    for line in [
        String::new(),
        format!(
            "CPU time: of the host, until the program starts. Guest time: instructions of 2 ns, until the program starts. ±: 95 % \
             interval of {repetitions}."
        ),
        format!("published: \"{PUBLISHED}\" ({SOURCE})"),
    ] {
        let _ = writeln!(out, "{}", wrap(&line));
    }
    out
}

fn rows(curve: &Curve) -> String {
    let mut t = table::new(["MiB", "pushed MiB", "CPU time", "±", "guest time", "±"]);
    let half = |e: &Estimate| e.ci95.map_or_else(|| "–".into(), |half| time(half * 1e9));
    for r in &curve.rows {
        t.add_row([
            r.mib.to_string(),
            number(r.pushed_bytes as f64 / f64::from(1 << 20)),
            time(r.cpu_s.mean * 1e9),
            half(&r.cpu_s),
            time(r.guest_s.mean * 1e9),
            half(&r.guest_s),
        ]);
    }
    t.to_string()
}
