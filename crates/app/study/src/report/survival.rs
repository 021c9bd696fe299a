// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a study of fault tolerance: which scheme to choose when, what each costs, and the cost of intervals.

use colony_survival::scenario::Replacement;
use colony_survival::scheme::Scheme;
use colony_survival::study::{Results, Row};
use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use crate::format::{count, number, percent, span};

/// Results of `colony study fault-tolerance`, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Survived<'a> {
    /// The results.
    pub results: &'a Results,
    /// The command that was given.
    pub command: &'a str,
}

/// Data that the script draws, and all results for other programs.
#[derive(Serialize)]
struct Data<'a> {
    results: &'a Results,
    /// Names of all schemes; a scheme's place is its colour.
    schemes: Vec<&'static str>,
}

impl Survived<'_> {
    /// The page: one file, which asks for no other.
    #[must_use]
    pub fn page(&self) -> String {
        let schemes = Scheme::ALL.iter().map(|s| s.name()).collect();
        let data = Data { results: self.results, schemes };
        super::document("Colony: fault tolerance at scale", &data, super::SURVIVAL, |h| {
            self.top(h);
            h.raw("<main>\n");
            self.figures(h);
            self.again(h);
            h.raw("</main>\n");
            super::foot(h, &self.results.version);
        })
    }

    fn top(&self, h: &mut Html) {
        h.raw("<header>\n<p class=\"kicker\">Colony study of fault tolerance</p>\n")
            .prose("h1", &self.headline());
        h.raw("\n<div class=\"columns\">\n<section class=\"card\"><h2>The job and its machine</h2>\n<dl>\n");
        for (name, value) in self.facts() {
            h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
        }
        h.raw("</dl></section>\n<section class=\"card\" id=\"care\"><h2>Read with care</h2>\n");
        h.list(CARE.iter().copied()).raw("</section>\n</div>\n</header>\n");
    }

    /// The cheapest scheme on the largest job.
    fn headline(&self) -> String {
        let rows = &self.results.rows;
        let most = rows.iter().map(|r| r.pes).max().unwrap_or(0);
        let best = rows
            .iter()
            .filter(|r| r.pes == most)
            .filter_map(|r| Some((r, r.estimate.as_ref()?.time.mean)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((row, time)) => format!(
                "On {} PEs, failures and {} add {} to the time of the job, the least of all schemes.",
                count(most),
                row.scheme.name(),
                percent(time)
            ),
            None => format!("On {} PEs, the job makes no progress under any scheme.", count(most)),
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let study = &self.results.study;
        let (m, f, j, a) = (
            &study.scenario.machine,
            &study.scenario.failures,
            &study.scenario.job,
            &study.scenario.abilities,
        );
        let gb = |bytes: f64| format!("{} GB", number(bytes / 1e9));
        vec![
            ("Work", span(j.work_s)),
            ("State", format!("{} a PE, of {}", gb(j.state_bytes), gb(m.memory_bytes))),
            (
                "Node",
                format!(
                    "{} PEs; {}/s in memory, {}/s on its link",
                    count(m.pes_per_node),
                    gb(m.copy_bytes_per_s),
                    gb(m.link_bytes_per_s)
                ),
            ),
            ("File system", format!("{}/s", gb(m.disk_bytes_per_s))),
            ("Power", format!("{} W, waiting {} W", number(m.busy_w), number(m.idle_w))),
            ("MTBF", format!("{} a node, Weibull shape {}", span(f.mtbf_s), number(f.shape))),
            (
                "Recovery",
                format!(
                    "{} detection, {} restart, {} relaunch; {}",
                    span(f.detection_s),
                    span(f.restart_s),
                    span(f.relaunch_s),
                    if f.replacement == Replacement::Spare { "spare nodes" } else { "fewer nodes" }
                ),
            ),
            (
                "Warnings",
                format!(
                    "{} of failures, {} of warnings right, {} before",
                    percent(a.predicted),
                    percent(a.precision),
                    span(a.warning_s)
                ),
            ),
            (
                "Logging",
                format!("{} overhead, replay on {} nodes", percent(a.logging), count(a.replay_nodes)),
            ),
            ("Runs", format!("{} a row, {} a cell; seed {}", study.runs, study.map_runs, study.seed)),
        ]
    }

    fn figures(&self, h: &mut Html) {
        let mut number = 0;
        let good = percent(self.results.study.as_good);
        let caption = format!(
            "The simplest scheme whose time is within {good} of the work of the cheapest one, by PEs of the job and MTBF of \
             a node. A cell with a dot has too few runs to be sure. Without a colour, no scheme makes progress."
        );
        let headings = ["#PEs", "#MTBF of a node", "Choice", "Without warnings", "By energy", "Sure"];
        let name = |s: Option<Scheme>| s.map_or("–", Scheme::name).to_owned();
        let cells = &self.results.map;
        let rows = cells.iter().map(|c| {
            let sure = if c.undecided { "no" } else { "yes" };
            vec![
                count(c.pes),
                span(c.mtbf_s),
                name(c.choice),
                name(c.choice_unwarned),
                name(c.choice_by_energy),
                sure.into(),
            ]
        });
        self.figure(
            h,
            &mut number,
            "choice",
            "Which scheme to choose when",
            &caption,
            &headings,
            rows.collect(),
        );
        let caption = "As figure 1, if nothing predicts failures.";
        self.figure(h, &mut number, "unwarned", "The same without warnings", caption, &[], Vec::new());
        if self.results.rows.iter().all(|r| r.estimate.is_none()) {
            return;
        }
        let caption = "Time that failures and the scheme add to the work, at the best interval. Bars are 95 % confidence \
                       intervals of the mean over runs; one that is not seen is smaller than its mark.";
        let rows = self.results.rows.iter().map(row).collect();
        self.figure(h, &mut number, "time", "What each scheme costs", caption, &HEADINGS, rows);
        let caption = "Energy over that of the job without failures and without a scheme. Nodes that wait for a file system, \
                       a recovery or a replay take less power.";
        self.figure(h, &mut number, "energy", "What each scheme costs in energy", caption, &[], Vec::new());
        if self.results.rows.iter().all(|r| r.optimum.is_none()) {
            return;
        }
        let caption = "Time added by intervals between checkpoints on the largest job, simulated with the same failures. A \
                       filled mark is Daly's interval. The cost is flat around the optimum.";
        self.figure(h, &mut number, "interval", "How long an interval should be", caption, &[], Vec::new());
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a figure, in order")]
    fn figure(
        &self,
        h: &mut Html,
        number: &mut u32,
        id: &str,
        title: &str,
        caption: &str,
        headings: &[&str],
        rows: Vec<Vec<String>>,
    ) {
        Figure { id, title, caption, command: "", summary: "Numbers", headings, rows, tall: true }
            .write(h, number);
    }

    fn again(&self, h: &mut Html) {
        h.raw("<section class=\"card wide\" id=\"again\"><h2>Run it again</h2>\n").command(self.command);
        h.raw("</section>\n");
    }
}

/// What the model leaves out.
const CARE: [&str; 5] = [
    "Costs of checkpoints come from bytes and bandwidths, lower bounds: nothing of the runtime was run.",
    "Failures of nodes are independent. Racks, power supplies and the file system do not fail.",
    "All pairs of nodes exchange copies at full bandwidth: the network has no contention.",
    "Spare nodes are enough and free. Evacuation and logging have the double checkpoint below them.",
    "Logging assumes that other nodes wait for replayed data unless --independent says how long they can go on.",
];

const HEADINGS: [&str; 10] = [
    "#PEs",
    "Scheme",
    "#Time",
    "#± 95 %",
    "#Energy",
    "#Interval",
    "#Daly",
    "#Formula",
    "#Failures a run",
    "#Both copies lost",
];

fn row(r: &Row) -> Vec<String> {
    let none = || "–".to_owned();
    let e = r.estimate.as_ref();
    vec![
        count(r.pes),
        r.scheme.name().into(),
        e.map_or_else(|| r.reason.clone().unwrap_or_default(), |e| percent(e.time.mean)),
        e.and_then(|e| e.time.ci95).map_or_else(none, percent),
        e.map_or_else(none, |e| percent(e.energy.mean)),
        e.and_then(|e| e.interval_s).map_or_else(none, span),
        r.daly_s.map_or_else(none, span),
        r.formula_time.map_or_else(none, percent),
        e.map_or_else(none, |e| number(e.failures)),
        r.both_lost.map_or_else(none, |p| format!("{p:.1e}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_survival::scenario::{Scenario, YEAR_S};
    use colony_survival::study::Study;

    #[test]
    fn the_page_has_figures_numbers_and_command_and_foreign_text_stays_text() {
        let study = Study {
            scenario: Scenario::default(),
            schemes: Scheme::ALL.to_vec(),
            pes: vec![1024, 65_536],
            runs: 4,
            map_pes: vec![1024, 4096],
            map_mtbf_s: vec![0.1 * YEAR_S, YEAR_S],
            map_runs: 2,
            as_good: 0.01,
            seed: 1,
        };
        let results = study.run(|| ()).expect("runs");
        let html = Survived { results: &results, command: "colony study '<b>'" }.page();
        assert_eq!(html.matches("<canvas").count(), 5);
        assert_eq!(html.matches("<tr>").count(), (1 + 4) + (1 + 12), "a row each cell and scheme");
        assert!(!html.contains("<b>'") && !html.contains("src=\"http") && !html.contains("href=\"http"));
        let data = html
            .split_once("id=\"data\">")
            .and_then(|(_, rest)| rest.split_once("</script>"))
            .expect("data")
            .0;
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        let back: Results = serde_json::from_value(data["results"].clone()).expect("the results");
        assert_eq!(back, results);
    }
}
