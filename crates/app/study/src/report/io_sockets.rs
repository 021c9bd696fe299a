// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of sockets through an I/O node: bandwidth over compute nodes, and what was published.

use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use crate::chart::Chart;
use crate::format::{NOT_KNOWN, bytes_per_s, count, number, percent, time};
use crate::io_sockets::{Measured, PUBLISHED, Results, SOURCE};

/// Results of `colony study io-sockets`, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Streamed<'a> {
    /// The results.
    pub results: &'a Results,
}

/// Data that the script draws, and all results for other programs.
#[derive(Serialize)]
struct Data<'a> {
    results: &'a Results,
    charts: &'a [Chart],
}

impl Streamed<'_> {
    /// The page: one file, which asks for no other.
    #[must_use]
    pub fn page(&self) -> String {
        let charts = [self.results.chart()];
        let data = Data { results: self.results, charts: &charts };
        super::document("Colony: sockets through an I/O node", &data, super::BESIDE, |h| {
            self.top(h);
            h.raw("<main>\n");
            self.figure(&charts[0]).write(h, &mut 0);
            h.raw("<section class=\"card wide\" id=\"again\"><h2>Run it again</h2>\n");
            h.command(&self.results.command).raw("</section>\n</main>\n");
            super::foot(h, &self.results.version);
        })
    }

    fn top(&self, h: &mut Html) {
        let r = self.results;
        h.raw("<header>\n<p class=\"kicker\">Colony study of sockets</p>\n").prose("h1", &r.headline());
        h.raw("\n<div class=\"columns\">\n<section class=\"card\" id=\"published\"><h2>What was published</h2>\n");
        h.raw("<blockquote>").text(PUBLISHED).raw("</blockquote>\n").prose("p", SOURCE);
        let row = |p: &crate::results::Published| {
            vec![p.what.clone(), p.published.clone(), p.ours.clone(), p.fidelity()]
        };
        let rows: Vec<_> = r.compared.iter().map(row).collect();
        if !rows.is_empty() {
            h.table(&["Figure", "Published", "#Ours", "Error, origin"], &rows);
        }
        let (reached, reference) = (r.reached(), r.without_nodes());
        let notes = r.compared.iter().map(|p| p.note.as_str());
        h.list([reached.as_str(), reference.as_str()].into_iter().chain(notes));
        h.raw("</section>\n<section class=\"card\"><h2>The measurement</h2>\n<dl>\n");
        for (name, value) in [
            ("Link", r.plan.link_bytes_per_s.map_or_else(|| "none".into(), bytes_per_s)),
            ("Bytes of a node", count(r.plan.block_bytes)),
            ("Bytes of a transfer", count(r.plan.transfer)),
            ("Host", format!("{}, {} CPUs, Linux {}", r.node.cpu_model, r.cpus, r.node.kernel)),
            ("Load", format!("{} when the study began", number(r.node.load[0]))),
        ] {
            h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
        }
        h.raw("</dl></section>\n<section class=\"card\" id=\"care\"><h2>Read with care</h2>\n");
        h.list(CARE.iter().copied()).raw("</section>\n</div>\n</header>\n");
    }

    fn figure<'b>(&self, chart: &'b Chart) -> Figure<'b> {
        let r = self.results;
        let row = |m: &Measured| {
            let (busiest, share) = m.busiest(&r.plan, r.cpus);
            let link = r.plan.link_bytes_per_s.map(|link| percent(m.share_of(link)));
            let mut row = vec![
                m.direction.name().to_owned(),
                count(m.nodes.into()),
                bytes_per_s(m.bytes_per_s()),
                link.unwrap_or_else(|| NOT_KNOWN.into()),
            ];
            row.extend(m.cpu_ns().map(time));
            row.push(format!("{} {}", busiest.name(), percent(share)));
            row
        };
        Figure {
            id: &chart.id,
            title: &chart.title,
            caption: &chart.caption,
            command: "",
            summary: "Measured here",
            headings: &[
                "Direction",
                "#Nodes",
                "#Measured",
                "#Of the link",
                "#Node",
                "#I/O process",
                "#Server",
                "Busiest",
            ],
            rows: r.measured.iter().map(row).collect(),
            tall: true,
        }
    }
}

/// Limits of the measurement.
const CARE: [&str; 4] = [
    "The paper at hand has no plot: Fig. 4 is compared by what its text says of it. It says \"over 110 MB/s\", so ours may lie above.",
    "The link is the server's: it moves data no faster than frames of 1500 bytes with their headers pass the link, 94 % of its peak. \
     Packets are not lost, and no network card takes processor time.",
    "Nodes, I/O process and server share the CPUs of this host. Nodes are emulated: their time is that of the emulator.",
    "CPU times are of a transfer; the time of a job that connects only is subtracted.",
];

#[cfg(test)]
mod tests {
    use colony_node::record::NodeRecord;

    use super::*;
    use crate::io_sockets::{Plan, Used};

    #[test]
    fn the_page_has_the_curve_and_what_was_published_and_foreign_text_stays_text() {
        let plan = Plan::default();
        let mut job =
            |_: &crate::io_sockets::Case| Ok(Used { wall_s: 0.3, node_s: 0.1, io_s: 0.1, server_s: 0.1 });
        let (references, measured) = plan.measure(&mut job, || ()).expect("measured");
        let results = Results {
            schema: Results::SCHEMA.into(),
            version: "1".into(),
            command: "colony study io-sockets '<b>'".into(),
            started_unix_s: 0,
            took_s: 1.0,
            node: NodeRecord { cpu_model: "</script><b>".into(), ..NodeRecord::now() },
            cpus: 2,
            compared: Vec::new(),
            references,
            measured,
            plan,
        };
        let html = Streamed { results: &results }.page();
        assert_eq!(html.matches("<canvas").count(), 1);
        assert!(html.contains("over 110 MB/s per I/O node") && html.contains("without compute nodes"));
        assert!(!html.contains("<b>") && !html.contains("src=\"http"));
    }
}
