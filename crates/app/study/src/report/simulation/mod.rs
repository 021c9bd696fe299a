// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a simulation: its points as plots and as a table, and all that makes them again.

mod plots;

use std::collections::{BTreeMap, BTreeSet};

use colony_sim::spec::SpecError;
use colony_sim::sweep::Results;
use colony_sim::words::once;
use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use super::schedules::{Schedule, section};
use crate::format::{count, time, times};
use plots::Plots;

/// Results of `colony sim`, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Simulated<'a> {
    /// Results of the sweep.
    pub results: &'a Results,
    /// The scenario in a sentence.
    pub what: &'a str,
    /// The command that was given.
    pub command: &'a str,
    /// What some nodes ran, under each scheduler; may be empty.
    pub schedules: &'a [Schedule],
}

/// Data that the script draws, and all results for other programs.
#[derive(Serialize)]
struct Data<'a> {
    results: &'a Results,
    plots: &'a [plots::Plot],
}

impl Simulated<'_> {
    /// The page: one file, which asks for no other.
    ///
    /// # Errors
    /// [`SpecError`] where the scenario cannot be written as TOML.
    pub fn page(&self) -> Result<String, SpecError> {
        let scenario = self.results.scenario.to_toml()?;
        let all = Plots::new(self.results);
        let title = format!("Colony: {} on {}", self.program(), self.results.scenario.machine.name());
        let data = Data { results: self.results, plots: &all.drawn };
        Ok(super::document(&title, &data, super::SIM, |h| {
            self.top(h, &all);
            h.raw("<main>\n");
            self.figures(h, &all);
            section(h, self.schedules);
            self.numbers(h);
            self.again(h, &scenario);
            h.raw("</main>\n");
            super::foot(h, &self.results.version);
        }))
    }

    fn program(&self) -> &str {
        &self.results.scenario.program.name
    }

    /// Headline, the run, what to read with care.
    fn top(&self, h: &mut Html, all: &Plots) {
        h.raw("<header>\n<p class=\"kicker\">Colony simulation</p>\n").prose("h1", &self.headline());
        h.raw("\n").prose("p class=\"lead\"", &format!("{}.", self.what.trim_end_matches('.')));
        h.raw("\n<div class=\"columns\">\n<section class=\"card\"><h2>The run</h2>\n<dl>\n");
        for (name, value) in self.run() {
            h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
        }
        h.raw("</dl></section>\n<section class=\"card\" id=\"care\"><h2>Read with care</h2>\n");
        let notes = self.notes(all);
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        // many differ in a number only: the first of a kind is shown
        let (shown, more): (Vec<&String>, Vec<_>) = notes.iter().partition(|n| {
            let seen = kinds.entry(n.chars().filter(|c| !c.is_ascii_digit()).collect()).or_default();
            *seen += 1;
            *seen == 1
        });
        h.list(shown.iter().map(|n| n.as_str()));
        if !more.is_empty() {
            h.raw("<details><summary>").text(&format!("{} more, with other numbers", more.len()));
            h.raw("</summary>\n").list(more.iter().map(|n| n.as_str())).raw("</details>\n");
        }
        h.raw("</section>\n</div>\n</header>\n");
    }

    /// Cost of each scheduler on the largest number of nodes.
    fn headline(&self) -> String {
        let points = &self.results.points;
        let most = points.iter().map(|p| p.outcome.nodes).max().unwrap_or(0);
        let mut ranges: Vec<(&str, f64, f64)> = Vec::new();
        for p in points.iter().filter(|p| p.outcome.nodes == most && p.point.scheduler.name() != "none") {
            let (name, slowdown) = (p.point.scheduler.name(), p.outcome.slowdown);
            match ranges.iter_mut().find(|r| r.0 == name) {
                Some(r) => (r.1, r.2) = (r.1.min(slowdown), r.2.max(slowdown)),
                None => ranges.push((name, slowdown, slowdown)),
            }
        }
        let (program, nodes) = (self.program(), count(most.into()));
        let nodes = if most == 1 { "one node".into() } else { format!("{nodes} nodes") };
        if ranges.iter().all(|r| r.2 < 1.0005) {
            return format!("On {nodes}, {program} loses nothing to noise.");
        }
        let range = |(i, &(name, least, most)): (usize, &(&str, f64, f64))| {
            let (a, b) = (times(least), times(most));
            let factor = if a == b { a } else { format!("{} to {b}", a.trim_end_matches('×')) };
            let of = if i == 0 { " its quiet time" } else { "" };
            format!("{factor}{of} under {name}")
        };
        let words: Vec<_> = ranges.iter().enumerate().map(range).collect();
        format!("On {nodes}, an iteration of {program} takes {}.", listed(&words))
    }

    fn run(&self) -> Vec<(&'static str, String)> {
        let (r, s) = (self.results, &self.results.scenario);
        let mut all = vec![
            ("Program", s.program.name.clone()),
            ("Machine", s.machine.name().into()),
            ("Schedulers", s.schedulers.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ")),
            ("Iterations", count(s.program.iterations)),
            ("Repetitions", count(s.repetitions.into())),
            ("Points", count(r.points.len() as u64)),
            ("Seed", s.seed.to_string()),
        ];
        all.extend(r.traces.iter().map(|t| ("Trace", format!("{} ({})", t.file, t.digest))));
        all.push(("Simulator", r.version.clone()));
        all
    }

    fn notes(&self, all: &Plots) -> Vec<String> {
        let mut notes = Vec::new();
        if self.results.scenario.repetitions == 1 {
            notes
                .push("Each point was simulated once: nothing tells how far it is from the next run.".into());
        }
        if all.left_out > 0 {
            notes.push(format!(
                "{} combinations of values are in the table only: too many for plots.",
                count(all.left_out as u64)
            ));
        }
        let warnings: BTreeSet<&String> =
            self.results.points.iter().flat_map(|p| &p.outcome.warnings).collect();
        notes.extend(once(warnings).into_iter().cloned());
        notes.push(
            "Nodes are alike and the network has no contention; the job always has work (docs/simulate.md, What is assumed)."
                .into(),
        );
        notes
    }

    fn figures(&self, h: &mut Html, all: &Plots) {
        let mut number = 0;
        let bars = if self.results.scenario.repetitions > 1 {
            " Bars are 95 % confidence intervals of the mean, from the repetitions; one that is not seen is smaller \
             than its mark."
        } else {
            ""
        };
        for (i, plot) in all.drawn.iter().enumerate() {
            let of = if plot.of.is_empty() { String::new() } else { format!(": {}", plot.of) };
            let as_first = |n: u32| format!("As figure {n}, with {}.", plot.of);
            let caption = match i {
                0 => format!(
                    "Mean time of an iteration of {} by the number of nodes, both logarithmic. Dotted: without \
                     noise.{bars} Lines that lie on one another show as rings.",
                    self.program()
                ),
                _ => as_first(1),
            };
            figure(h, &mut number, &format!("time-{i}"), &format!("Time of an iteration{of}"), &caption);
            let caption = match i {
                0 => "The same over the time without noise: 1× loses nothing.".into(),
                _ => as_first(2),
            };
            figure(h, &mut number, &format!("slowdown-{i}"), &format!("Slowdown{of}"), &caption);
        }
    }

    fn numbers(&self, h: &mut Html) {
        let swept: BTreeMap<&str, &str> = plots::swept(self.results);
        let mut headings = vec!["#Nodes", "#Ranks", "Scheduler"];
        headings.extend(swept.values());
        headings.extend(["#Quiet", "#Mean", "#± 95 %", "#Median", "#99 %", "#99.9 %", "#Longest", "#Slower"]);
        let called = plots::schedulers(self.results);
        let row = |(p, scheduler): (&colony_sim::sweep::Finished, &String)| {
            let o = &p.outcome;
            let mut cells = vec![count(o.nodes.into()), count(o.ranks.into()), scheduler.clone()];
            // a value that does not concern the scheduler is not set for its points
            cells.extend(swept.keys().map(|path| p.point.set.get(*path).map_or("–".into(), plots::value)));
            cells.extend([time(o.quiet_ns), time(o.mean_ns), o.ci95_ns.map_or("–".into(), time)]);
            cells.extend([o.p50_ns, o.p99_ns, o.p99_9_ns, o.max_ns].map(|ns| time(ns as f64)));
            cells.push(times(o.slowdown));
            cells
        };
        let rows: Vec<_> = self.results.points.iter().zip(&called).map(row).collect();
        h.raw("<section class=\"card wide\" id=\"numbers\"><h2>The numbers</h2>\n<p>");
        h.text("Times of an iteration: without noise, then with it. ± 95 % is half of the mean's confidence interval; \
                median, 99 % and 99.9 % are of all iterations of all runs.");
        h.raw("</p>\n").table(&headings, &rows).raw("</section>\n");
    }

    fn again(&self, h: &mut Html, scenario: &str) {
        h.raw("<section class=\"card wide\" id=\"again\"><h2>Make it again</h2>\n").command(self.command);
        h.raw("<p>The same words give the same figures, on any number of cores. Or keep the scenario as ");
        h.raw("<code>scenario.toml</code>, beside its traces if it has any:</p>\n");
        h.command("colony sim scenario.toml");
        h.raw("<div class=\"command file\"><code>").text(scenario);
        h.raw("</code><button type=\"button\" class=\"copy\" aria-label=\"Copy the scenario\">Copy</button></div>\n");
        h.raw("</section>\n");
    }
}

/// A figure whose numbers are in the page's one table.
fn figure(h: &mut Html, number: &mut u32, id: &str, title: &str, caption: &str) {
    let rows = Vec::new();
    Figure { id, title, caption, command: "", summary: "", headings: &[], rows, tall: true }.write(h, number);
}

/// "a, b and c".
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_sim::spec::{Scenario, Traces};
    use colony_sim::sweep::{self, Finished};

    /// Results of a small scenario with `more` in it.
    pub(super) fn results(more: &str) -> Results {
        let text = format!(
            "nodes = [2, 8]\nprogram = {{ name = \"allreduce\", iterations = 3 }}\n\
             noise = [{{ name = \"</script><img>\", periodic = {{ every = \"1ms\", length = \"16us\" }} }}]\n{more}"
        );
        let scenario = Scenario::parse(&text).expect("right");
        let points = scenario.points().expect("points");
        let mut all = Results::none_yet(scenario, &Traces::new());
        let done = std::sync::Mutex::new(BTreeMap::new());
        sweep::run::<SpecError>(&points, &Traces::new(), |i, outcome| {
            let finished = Finished { point: points[i].clone(), outcome };
            done.lock().expect("ours").insert(i, finished);
            Ok(())
        })
        .expect("runs");
        all.points = done.into_inner().expect("ours").into_values().collect();
        all
    }

    fn page(r: &Results) -> String {
        let shown =
            Simulated { results: r, what: "an <allreduce>", command: "colony sim '<b>'", schedules: &[] };
        shown.page().expect("a page")
    }

    #[test]
    fn the_page_has_plots_numbers_scenario_and_command() {
        let r = results("schedulers = [\"none\", \"preempt\"]\nsweep = { \"program.bytes\" = [8, 16] }");
        let html = page(&r);
        assert_eq!(html.matches("<canvas").count(), 2);
        for part in [
            "id=\"time-0\"",
            "id=\"slowdown-0\"",
            "iterations = 3",
            "under preempt",
            "<th scope=\"col\">bytes",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(html.matches("<tr>").count(), 1 + 8, "a row each point");
        let data = html
            .split_once("id=\"data\">")
            .and_then(|(_, rest)| rest.split_once("</script>"))
            .expect("data")
            .0;
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["plots"][0]["lines"].as_array().map(Vec::len), Some(4));
        let back: Results = serde_json::from_value(data["results"].clone()).expect("the results");
        assert_eq!(back.points.len(), 8);
    }

    #[test]
    fn foreign_text_stays_text() {
        let html = page(&results(""));
        assert!(!html.contains("<img") && !html.contains("<allreduce>") && !html.contains("<b>'"));
        assert!(html.contains("&lt;/script&gt;&lt;img&gt;"), "the noise's name, in the scenario");
        assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
        assert_eq!(html.matches("<script").count(), 3, "data, library, drawing");
        assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
    }

    #[test]
    fn a_single_run_says_so() {
        assert!(page(&results("repetitions = 1")).contains("simulated once"));
        assert!(!page(&results("repetitions = 2")).contains("simulated once"));
    }
}
