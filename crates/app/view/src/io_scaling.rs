// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bandwidth of files over compute nodes and I/O nodes, and what saturates.

use std::fmt::Write;

use colony_study::format::{NOT_SEEN, bytes_per_s, count, number};
use colony_study::io_scaling::{Group, Results};

use crate::table::{self, name, wrap};
use crate::units::time;

/// Compute nodes that the table of the model shows.
const SHOWN: [u32; 4] = [1, 64, 1024, 2048];

/// A table of what was measured and one of the model for each kind of job, and what was published.
#[must_use]
pub fn results(r: &Results) -> String {
    let mut out = format!("{}\n", wrap(&r.headline()));
    for (folder, group) in r.groups() {
        let place = name(&folder.path.display().to_string(), 40);
        let _ = writeln!(out, "\n{}", wrap(&format!("{} ({place})", group.name(folder))));
        let _ = writeln!(out, "{}\n{}", measured(group, r.cpus), wrap(&services(group)));
        let _ = writeln!(out, "{}", model(group));
    }
    let cpus = count(r.cpus.into());
    out.push('\n');
    for line in [
        format!(
            "measured: on {cpus} CPUs of this host, which nodes and I/O processes share; here: the model's bandwidth on so many \
             CPUs; node, I/O: CPU time of a transfer. model: every node and I/O process has a CPU of its own."
        ),
        "published (SC06; the document at hand has the text on Figs. 4 and 5, not the plots):".to_owned(),
    ] {
        let _ = writeln!(out, "{}", wrap(&line));
    }
    for quoted in &r.published {
        let _ = writeln!(out, "{}", wrap(&format!("\"{}\" ({})", quoted.text, quoted.place)));
    }
    for shape in r.shapes() {
        let _ = writeln!(out, "{}", wrap(&format!("ours: {shape}")));
    }
    out
}

fn measured(group: &Group, cpus: u32) -> String {
    let mut t = table::new(["nodes", "I/O nodes", "measured", "here", "node", "I/O", "busiest"]);
    for m in &group.measured {
        let [node_ns, io_ns] = m.cpu_ns();
        t.add_row([
            count(m.nodes.into()),
            count(m.io_nodes.into()),
            bytes_per_s(m.bytes_per_s()),
            bytes_per_s(group.modelled_here(m, cpus)),
            time(node_ns),
            time(io_ns),
            m.busiest(cpus).0.name().into(),
        ]);
    }
    t.to_string()
}

fn services(group: &Group) -> String {
    let s = group.services;
    let storage =
        if s.storage_ns > 0.0 { format!(", storage {}", time(s.storage_ns)) } else { String::new() };
    format!(
        "a transfer takes: node {}, I/O process {}, file system {}{storage}",
        time(s.node_ns),
        if s.io_ns > 0.0 { time(s.io_ns) } else { NOT_SEEN.into() },
        time(s.file_system_ns)
    )
}

fn model(group: &Group) -> String {
    let heads = SHOWN.map(|n| if n == 1 { "1 node".into() } else { count(n.into()) });
    let mut header = vec!["I/O nodes"];
    header.extend(heads.iter().map(String::as_str));
    header.extend(["saturates", "from"]);
    let mut t = table::numbers(&header, 0);
    for line in &group.lines {
        let at = |n: u32| line.points.iter().find(|p| p.nodes == n).map_or(f64::NAN, |p| p.bytes_per_s);
        let mut row = vec![count(line.io_nodes.into())];
        row.extend(SHOWN.map(|n| bytes_per_s(at(n))));
        row.push(line.saturated.name().into());
        row.push(line.from_nodes.map_or("–".into(), |from| number(from.ceil())));
        t.add_row(row);
    }
    table::trimmed(&t)
}
