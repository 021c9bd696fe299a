// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pictures of schedules (Colony report, Fig. 2): a row for each node shows when it runs the job, a last row when all nodes run it.

use std::fmt::Write as _;

use colony_sim::noise::Detour;
use colony_sim::words::number_of;

use super::html::Html;
use crate::format::{percent, time};

/// A schedule of a job: what some of its nodes ran in a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The scheduler.
    pub name: String,
    /// Length of the stretch, nanoseconds.
    pub span_ns: u64,
    /// For each node the times in which one of its ranks at least is in a detour, ascending and apart, within the stretch.
    pub nodes: Vec<Vec<Detour>>,
    /// Ranks of each node.
    pub ranks_per_node: u32,
}

/// The times in which one of `ranks` at least is in a detour, ascending and apart.
#[must_use]
pub fn any_of(ranks: &[Vec<Detour>]) -> Vec<Detour> {
    let mut all: Vec<Detour> = ranks.iter().flatten().copied().collect();
    all.sort_unstable_by_key(|d| d.start_ns);
    let mut apart: Vec<Detour> = Vec::with_capacity(all.len());
    for d in all {
        match apart.last_mut().filter(|last| d.start_ns <= last.start_ns + last.duration_ns) {
            Some(last) => {
                let end_ns = (last.start_ns + last.duration_ns).max(d.start_ns + d.duration_ns);
                last.duration_ns = end_ns - last.start_ns;
            }
            None => apart.push(d),
        }
    }
    apart
}

/// Width of the picture, in its own units. Two detours that fall into the same unit are drawn as one.
const WIDTH: u64 = 2000;
const LANE: usize = 14;
const BAR: usize = 11;

impl Schedule {
    /// Times in which no node is in a detour, as begin and end.
    fn all_run(&self) -> Vec<(u64, u64)> {
        let mut detours: Vec<Detour> = self.nodes.iter().flatten().copied().collect();
        detours.sort_unstable_by_key(|d| d.start_ns);
        let (mut free, mut at_ns) = (Vec::new(), 0);
        for d in detours {
            if d.start_ns > at_ns {
                free.push((at_ns, d.start_ns));
            }
            at_ns = at_ns.max(d.start_ns + d.duration_ns);
        }
        if at_ns < self.span_ns {
            free.push((at_ns, self.span_ns));
        }
        free
    }

    /// Share of the time in which all nodes run the job.
    #[must_use]
    pub fn all_run_share(&self) -> f64 {
        self.all_run().iter().map(|(begin, end)| end - begin).sum::<u64>() as f64 / self.span_ns.max(1) as f64
    }

    /// Share of its time that a node loses, on average.
    #[must_use]
    pub fn lost_share(&self) -> f64 {
        let lost: u64 = self.nodes.iter().flatten().map(|d| d.duration_ns).sum();
        lost as f64 / (self.nodes.len().max(1) as u64 * self.span_ns.max(1)) as f64
    }

    /// One sentence: what a node loses in the time shown, and what all lose together.
    fn summary(&self) -> String {
        let (span, name, lost) = (time(self.span_ns as f64), &self.name, percent(self.lost_share()));
        let lost = match self.ranks_per_node {
            1 => format!("a node runs something else for {lost}"),
            n => format!("one of the {n} ranks of a node at least is interrupted for {lost}"),
        };
        match self.nodes.len() {
            1 => format!("Of these {span} under {name}, {lost}."),
            nodes => format!(
                "Of these {span} under {name}, {lost}; all {} run the job at once for {}.",
                number_of(nodes as u64, "node"),
                percent(self.all_run_share())
            ),
        }
    }

    /// The SVG path of `stretches` as bars in lane `lane`. A bar is a unit wide at least.
    fn bars(&self, lane: usize, stretches: impl Iterator<Item = (u64, u64)>) -> String {
        let place = |ns: u64| (u128::from(ns) * u128::from(WIDTH) / u128::from(self.span_ns.max(1))) as u64;
        let (mut path, mut drawn) = (String::new(), 0);
        for (begin, end) in stretches {
            let (from, to) = (place(begin).max(drawn), place(end).max(place(begin) + 1).min(WIDTH));
            if to > from {
                // writing to a string cannot fail
                let _ = write!(path, "M{from} {}h{}v{BAR}h-{}z", lane * LANE, to - from, to - from);
                drawn = to;
            }
        }
        path
    }

    fn write(&self, h: &mut Html) {
        let summary = self.summary();
        h.prose("h3", &self.name).raw("<svg class=\"schedule\" role=\"img\" preserveAspectRatio=\"none\" ");
        h.raw(&format!("viewBox=\"0 0 {WIDTH} {}\" aria-label=\"", (self.nodes.len() + 1) * LANE));
        h.text(&summary).raw("\">\n");
        for (lane, detours) in self.nodes.iter().enumerate() {
            let whole = self.bars(lane, std::iter::once((0, self.span_ns)));
            let taken = self.bars(lane, detours.iter().map(|d| (d.start_ns, d.start_ns + d.duration_ns)));
            h.raw(&format!("<path class=\"job\" d=\"{whole}\"/><path class=\"taken\" d=\"{taken}\"/>\n"));
        }
        let all = self.bars(self.nodes.len(), self.all_run().into_iter());
        h.raw(&format!("<path class=\"all\" d=\"{all}\"/>\n</svg>\n")).prose("p", &summary);
    }
}

/// The section of a page with `schedules`; nothing if there are none.
pub(super) fn section(h: &mut Html, schedules: &[Schedule]) {
    let Some(first) = schedules.first() else { return };
    h.raw("<section class=\"card wide\" id=\"schedules\"><h2>When the nodes run the job</h2>\n");
    h.prose(
        "p",
        &format!(
            "{}, a row each, for {} after the begin of the job: blue where the node runs the job, red where one of its ranks \
             waits for something else. The green row shows when all of them run the job: only then does an operation of all \
             nodes go on. A detour shorter than a pixel is drawn as a pixel; the shares are exact for the time shown, and other \
             times have other shares.",
            number_of(first.nodes.len() as u64, "node"),
            time(first.span_ns as f64)
        ),
    );
    schedules.iter().for_each(|schedule| schedule.write(h));
    h.raw("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detour(start_ns: u64, duration_ns: u64) -> Detour {
        Detour { start_ns, duration_ns }
    }

    fn schedule(nodes: Vec<Vec<Detour>>) -> Schedule {
        Schedule { name: "<preempt>".into(), span_ns: 1000, nodes, ranks_per_node: 1 }
    }

    #[test]
    fn all_nodes_run_where_none_is_in_a_detour() {
        let apart = schedule(vec![vec![detour(100, 100)], vec![detour(150, 100), detour(900, 100)]]);
        assert_eq!(apart.all_run(), [(0, 100), (250, 900)]);
        assert!((apart.all_run_share() - 0.75).abs() < 1e-12 && (apart.lost_share() - 0.15).abs() < 1e-12);
        let together = schedule(vec![vec![detour(100, 100)]; 2]);
        assert!((together.all_run_share() - 0.9).abs() < 1e-12);
        assert_eq!(schedule(vec![Vec::new()]).all_run(), [(0, 1000)]);
        let of_node =
            any_of(&[vec![detour(100, 100), detour(400, 5)], vec![detour(150, 100), detour(250, 10)]]);
        assert_eq!(of_node, [detour(100, 160), detour(400, 5)]);
    }

    #[test]
    fn the_picture_is_bounded_and_foreign_names_stay_text() {
        let many = Schedule {
            span_ns: 1_000_000,
            ..schedule(vec![(0..100_000).map(|i| detour(10 * i, 2)).collect(); 8])
        };
        let mut h = Html::default();
        section(&mut h, &[many]);
        let html = h.finish();
        assert!(html.len() < 600_000, "{}", html.len());
        assert!(!html.contains("<preempt>") && html.contains("&lt;preempt&gt;"), "{html}");
        assert_eq!(html.matches("class=\"taken\"").count(), 8);
    }

    #[test]
    fn no_schedule_is_no_section() {
        let mut h = Html::default();
        section(&mut h, &[]);
        assert_eq!(h.finish(), "");
    }
}
