// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `Das_Boot`: boot time against size, in two plots, beside what was published.

use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use crate::das_boot::{Curve, Estimate, PUBLISHED, Results, Row, SOURCE};
use crate::format::{count, number, time};

/// Results of `colony study das-boot`, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Booted<'a> {
    /// The results.
    pub results: &'a Results,
}

/// Data that the script draws, and all results for other programs.
#[derive(Serialize)]
struct Data<'a> {
    results: &'a Results,
    /// Names of the curves, in their order.
    names: Vec<&'static str>,
}

impl Booted<'_> {
    /// The page: one file, which asks for no other.
    #[must_use]
    pub fn page(&self) -> String {
        let names = self.results.curves.iter().map(|c| c.system.name()).collect();
        let data = Data { results: self.results, names };
        super::document("Colony: boot time and size", &data, super::DAS_BOOT, |h| {
            self.top(h);
            h.raw("<main>\n");
            self.figures(h);
            h.raw("<section class=\"card wide\" id=\"again\"><h2>Run it again</h2>\n");
            h.command(&self.results.command).raw("</section>\n</main>\n");
            super::foot(h, &self.results.version);
        })
    }

    fn top(&self, h: &mut Html) {
        let r = self.results;
        h.raw("<header>\n<p class=\"kicker\">Colony study of boot times</p>\n").prose("h1", &r.headline());
        h.raw("\n<div class=\"columns\">\n<section class=\"card\" id=\"published\"><h2>What was published</h2>\n");
        h.raw("<blockquote>").text(PUBLISHED).raw("</blockquote>\n").prose("p", SOURCE);
        h.raw("</section>\n<section class=\"card\"><h2>The measurement</h2>\n<dl>\n");
        let [io, compute] = r.memory_mib;
        for (name, value) in [
            ("I/O node", format!("Linux {}, {io} MiB of memory, one CPU", r.kernel)),
            ("Compute node", format!("Colony's kernel, {compute} MiB of memory, one CPU")),
            ("Repetitions", count(r.plan.repeat.into())),
            ("Host", format!("{}, Linux {}", r.node.cpu_model, r.node.kernel)),
            ("Load", format!("{} when the study began", number(r.node.load[0]))),
        ] {
            h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
        }
        h.raw("</dl></section>\n<section class=\"card\" id=\"care\"><h2>Read with care</h2>\n");
        h.list(CARE.iter().copied()).raw("</section>\n</div>\n</header>\n");
    }

    fn figures(&self, h: &mut Html) {
        let mut number = 0;
        for (id, title, caption) in [
            (
                "cpu",
                "Processor time of the host",
                "Processor time that the emulator (and on a compute node the I/O daemon) took until the program started. Bars \
                 are 95 % confidence intervals of the mean.",
            ),
            (
                "guest",
                "Time of the guest",
                "Time of the guest until the program started, counted in instructions of 2 ns. Other programs of the host \
                 cannot change it.",
            ),
        ] {
            let of = |r: &Row| if id == "cpu" { r.cpu_s.clone() } else { r.guest_s.clone() };
            let row = |c: &Curve, r: &Row| {
                let [mean, half] = cells(&of(r));
                vec![c.system.name().into(), count(r.mib.into()), count(r.pushed_bytes), mean, half]
            };
            let rows = self.results.curves.iter().flat_map(|c| c.rows.iter().map(move |r| row(c, r)));
            Figure {
                id,
                title,
                caption,
                command: "",
                summary: "Numbers",
                headings: &["Node", "#MiB", "#Bytes pushed", "#Mean", "#± 95 %"],
                rows: rows.collect(),
                tall: true,
            }
            .write(h, &mut number);
        }
    }
}

fn cells(e: &Estimate) -> [String; 2] {
    [time(e.mean * 1e9), e.ci95.map_or_else(|| "–".into(), |half| time(half * 1e9))]
}

/// Limits of the measurement.
const CARE: [&str; 4] = [
    "Nodes are emulated: processor time is that of the emulator, many times that of a real processor.",
    "The ramdisk lies in the memory of the host. A real machine also has to send it: its size over the network's bandwidth.",
    "The I/O node's memory is the same for all sizes, so that only the ramdisk differs.",
    "Guest time of a compute node does not include the push: the I/O daemon writes the program into the node's memory while the node waits.",
];

#[cfg(test)]
mod tests {
    use colony_node::record::NodeRecord;

    use super::*;
    use crate::das_boot::{Boot, Plan, System};

    fn results_of(sizes: &[u32]) -> Results {
        let plan = Plan { sizes_mib: sizes.to_vec(), repeat: 2 };
        let mut boot = |_: System, mib: u32| {
            let ns = u64::from(mib) * 12_000_000 + 1_000_000_000;
            Ok(Boot { pushed_bytes: u64::from(mib) << 20, cpu_ns: ns, guest_ns: ns / 4 })
        };
        Results {
            schema: Results::SCHEMA.into(),
            version: "1".into(),
            command: "colony study das-boot '<b>'".into(),
            started_unix_s: 0,
            took_s: 1.0,
            node: NodeRecord { cpu_model: "</script><b>".into(), ..NodeRecord::now() },
            kernel: "7.3".into(),
            memory_mib: [1280, 512],
            published: PUBLISHED.into(),
            curves: plan.curves(&mut boot, || ()).expect("boots"),
            plan,
        }
    }

    #[test]
    fn the_page_quotes_the_document_and_has_all_numbers_and_foreign_text_stays_text() {
        let results = results_of(&[1, 16]);
        let headline = results.headline();
        assert!(headline.contains("adds 12 ms of processor time and 3 ms"), "{headline}");
        let html = Booted { results: &results }.page();
        assert!(html.contains("We varied the ramdisk of the I/O node kernel") && html.contains("ANL 2005"));
        assert_eq!(html.matches("<canvas").count(), 2);
        assert_eq!(html.matches("<tr><td").count() + html.matches("<tr>\n<td").count(), 2 * (2 + 2 + 1));
        assert!(!html.contains("<b>") && !html.contains("src=\"http"));
        assert!(results_of(&[4]).headline().contains("more sizes"));
    }
}
