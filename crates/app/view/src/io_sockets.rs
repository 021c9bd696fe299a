// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bandwidth of sockets through one I/O node.

use std::fmt::Write;

use colony_study::format::{NOT_KNOWN, bytes_per_s, count, percent};
use colony_study::io_sockets::{PUBLISHED, Results, SOURCE};

use crate::table::{self, wrap};
use crate::units::time;

/// A table of what was measured, the reference without compute nodes, and what was published.
#[must_use]
pub fn results(r: &Results) -> String {
    let mut out = format!("{}\n\n{}\n\n", wrap(&r.headline()), measured(r));
    let cpus = count(r.cpus.into());
    let columns = format!(
        "link: share of the link's peak; node, I/O, server: CPU time of a transfer, on {cpus} CPUs that all share; busiest: the part \
         that was busy for most of the time."
    );
    for line in [columns, r.without_nodes(), format!("published: \"{PUBLISHED}\" ({SOURCE})"), r.reached()] {
        let _ = writeln!(out, "{}", wrap(&line));
    }
    if !r.compared.is_empty() {
        let _ = writeln!(out, "\n{}", compared(r));
    }
    out
}

fn measured(r: &Results) -> String {
    let mut t = table::new(["direction", "nodes", "measured", "link", "node", "I/O", "server", "busiest"]);
    for m in &r.measured {
        let [node, io, server] = m.cpu_ns().map(time);
        let link = r.plan.link_bytes_per_s.map(|link| percent(m.share_of(link)));
        t.add_row([
            m.direction.name().into(),
            count(m.nodes.into()),
            bytes_per_s(m.bytes_per_s()),
            link.unwrap_or_else(|| NOT_KNOWN.into()),
            node,
            io,
            server,
            m.busiest(&r.plan, r.cpus).0.name().into(),
        ]);
    }
    t.to_string()
}

fn compared(r: &Results) -> String {
    let mut t = table::new(["published beside ours", "published", "ours", "error, origin"]);
    for p in &r.compared {
        t.add_row([p.what.clone(), p.published.clone(), p.ours.clone(), p.fidelity()]);
    }
    let notes = r.compared.iter().map(|p| format!("{}: {}", p.what, p.note));
    format!("{t}\n{}", notes.map(|note| wrap(&note)).collect::<Vec<_>>().join("\n"))
}
