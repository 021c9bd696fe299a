// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of I/O scaling: bandwidth over nodes for each number of I/O nodes, what saturates, and what was published.

use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use crate::chart::Chart;
use crate::format::{bytes_per_s, count, number, percent, time};
use crate::io_scaling::{Group, Results, Tested};

/// Results of `colony study io-scaling`, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Transferred<'a> {
    /// The results.
    pub results: &'a Results,
}

/// Data that the script draws, and all results for other programs.
#[derive(Serialize)]
struct Data<'a> {
    results: &'a Results,
    charts: &'a [Chart],
}

impl Transferred<'_> {
    /// The page: one file, which asks for no other.
    #[must_use]
    pub fn page(&self) -> String {
        let charts: Vec<Chart> = self
            .results
            .groups()
            .enumerate()
            .map(|(i, (folder, group))| group.chart(folder, format!("io-{i}")))
            .collect();
        let data = Data { results: self.results, charts: &charts };
        super::document("Colony: I/O scaling", &data, super::BESIDE, |h| {
            self.top(h);
            h.raw("<main>\n");
            let mut number = 0;
            for ((folder, group), chart) in self.results.groups().zip(&charts) {
                self.figure(folder, group, chart).write(h, &mut number);
            }
            h.raw("<section class=\"card wide\" id=\"again\"><h2>Run it again</h2>\n");
            h.command(&self.results.command).raw("</section>\n</main>\n");
            super::foot(h, &self.results.version);
        })
    }

    fn top(&self, h: &mut Html) {
        let r = self.results;
        h.raw("<header>\n<p class=\"kicker\">Colony study of I/O scaling</p>\n").prose("h1", &r.headline());
        h.raw("\n<div class=\"columns\">\n<section class=\"card\" id=\"published\"><h2>What was published</h2>\n");
        for quoted in &r.published {
            h.raw("<blockquote>").text(&quoted.text).raw("</blockquote>\n").prose("p", &quoted.place);
        }
        h.list(r.shapes().iter().map(String::as_str));
        h.raw("</section>\n<section class=\"card\"><h2>The measurement</h2>\n<dl>\n");
        for (name, value) in [
            ("Compute nodes", list(&r.plan.nodes)),
            ("I/O nodes", list(&r.plan.io_nodes)),
            ("Bytes of a node", count(r.plan.block_bytes)),
            ("Host", format!("{}, {} CPUs, Linux {}", r.node.cpu_model, r.cpus, r.node.kernel)),
            ("Load", format!("{} when the study began", number(r.node.load[0]))),
        ] {
            h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
        }
        h.raw("</dl></section>\n<section class=\"card\" id=\"care\"><h2>Read with care</h2>\n");
        h.list(CARE.iter().copied()).raw("</section>\n</div>\n</header>\n");
    }

    fn figure<'b>(&self, folder: &Tested, group: &Group, chart: &'b Chart) -> Figure<'b> {
        let row = |m: &crate::io_scaling::Measured| {
            let [node_ns, io_ns] = m.cpu_ns();
            let (busiest, share) = m.busiest(self.results.cpus);
            vec![
                folder.file_system.clone(),
                count(m.nodes.into()),
                count(m.io_nodes.into()),
                bytes_per_s(m.bytes_per_s()),
                bytes_per_s(group.modelled_here(m, self.results.cpus)),
                time(node_ns),
                time(io_ns),
                format!("{} {}", busiest.name(), percent(share)),
            ]
        };
        Figure {
            id: &chart.id,
            title: &chart.title,
            caption: &chart.caption,
            command: "",
            summary: "Measured here",
            headings: &[
                "File system",
                "#Nodes",
                "#I/O nodes",
                "#Measured",
                "#Model here",
                "#Node",
                "#I/O process",
                "Busiest",
            ],
            rows: group.measured.iter().map(row).collect(),
            tall: true,
        }
    }
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(|&n| count(n.into())).collect::<Vec<_>>().join(", ")
}

/// Limits of the measurement.
const CARE: [&str; 4] = [
    "The paper at hand has no plots: Figs. 4 and 5 are compared by what its text says of them.",
    "Lines are a model: every node and every I/O process has a processor of its own, as fast as this host's. Nodes are emulated, so a \
     node's own time is that of the emulator.",
    "Nodes read what is in the memory of the I/O node. The storage is measured apart: by the time that a flush, and a read that \
     finds nothing in memory, wait for it.",
    "The file system's part of an I/O process is the processor time of the same transfers without nodes and I/O daemon.",
];

#[cfg(test)]
mod tests {
    use colony_node::record::NodeRecord;

    use super::*;
    use crate::io_scaling::{PUBLISHED, Plan, Quoted, Used};

    #[test]
    fn the_page_has_a_plot_for_each_kind_of_job_and_what_was_published_and_foreign_text_stays_text() {
        let place = tempfile::tempdir().expect("folder");
        let plan = Plan { folders: vec![place.path().into()], block_bytes: 1 << 20, ..Plan::default() };
        let folders = plan.folders().expect("a folder");
        let mut job = |case: &crate::io_scaling::Case| {
            let s = case.count as f64 * f64::from(case.nodes) * 1e-5;
            Ok(Used { wall_s: s, node_s: 3.0 * s, io_s: 2.0 * s })
        };
        let mut folders = plan.measure(&folders, &mut job, || ()).expect("measured");
        folders[0].path = "<b>".into();
        let results = Results {
            schema: Results::SCHEMA.into(),
            version: "1".into(),
            command: "colony study io-scaling '<b>'".into(),
            started_unix_s: 0,
            took_s: 1.0,
            node: NodeRecord { cpu_model: "</script><b>".into(), ..NodeRecord::now() },
            cpus: 2,
            published: PUBLISHED.map(Quoted::from).to_vec(),
            folders,
            plan,
        };
        let html = Transferred { results: &results }.page();
        assert_eq!(html.matches("<canvas").count(), 4, "two layouts, two directions");
        assert!(html.contains("over 110 MB/s per I/O node") && html.contains("DS4300 disk controllers"));
        assert!(html.contains("I/O process from"), "where a line saturates");
        assert_eq!(results.shapes().len(), 2);
        assert!(!html.contains("<b>") && !html.contains("src=\"http"));
    }
}
