// SPDX-License-Identifier: MIT OR Apache-2.0
//! HPC-Colony progress report 2006, Figs. 1 and 2, and SC06 paper, Table 2: what large pages are worth.

use colony_pages::PagePolicy;

use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::pages::{PageRun, PageRuns, ROUNDS, Spread};
use crate::results::{Basis, Published};
use crate::{StudyError, format};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "pages",
        what: "integer sort, conjugate gradient, multigrid (class A) and random access to 512 MiB on base, 64 KiB and \
               huge pages: time, page faults, TLB misses where the processor counts them",
        run: |e, c| run(e, c, "A", 15.0),
        ..FIGURES
    },
    Experiment {
        name: "pages-s",
        what: "the same in class S, whose data fits into caches",
        run: |e, c| run(e, c, "S", 2.0),
        ..FIGURES
    },
];

const FIGURES: Experiment = Experiment {
    name: "",
    document: Document::Progress2006,
    place: "Figs. 1 and 2",
    what: "",
    published: &[
        "We observe a large performance gap (~2x) between Linux and CNK. The lower Linux performance can be explained by \
         the large number of TLB misses that happens with Linux",
        "We observe that performance under Linux (magenta line) is able to match performance under CNK. (We note that \
         both data and heap segments had to be placed in a large page region to get the most benefit.)",
        "SC06 paper, Table 2, class A on one node: is +303.0 %, cg +19.2 % time on Linux with 4 KiB pages",
    ],
    method: Method::Node,
    settings: settings::ON_CPUS,
    run: |_, _| Ok(Vec::new()),
};

/// Kernels, each with the published time of class A on 4 KiB pages over the time without TLB misses (SC06 paper, Table 2).
const KERNELS: [(&str, Option<Cited>); 4] = [
    ("is", Some(Cited::value("4.03×", 4.03, Basis::Measured))),
    ("cg", Some(Cited::value("1.19×", 1.19, Basis::Measured))),
    ("mg", None),
    ("ra", None),
];

fn run(e: &Experiment, c: &mut Context<'_>, class: &str, seconds: f64) -> Result<Vec<Published>, StudyError> {
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for (kernel, published) in KERNELS {
        let what = format!("running {kernel}.{class} on each page size");
        let runs = c.progress.during(&what, seconds, || node.pages(kernel, class, ROUNDS))?;
        rows.extend(
            Table { e, name: format!("{kernel}.{class}"), runs: &runs }
                .rows(published.filter(|_| class == "A")),
        );
    }
    Ok(rows)
}

/// The rows of a kernel.
struct Table<'a> {
    e: &'a Experiment,
    name: String,
    runs: &'a [PageRuns],
}

impl Table<'_> {
    fn rows(&self, published: Option<Cited>) -> Vec<Published> {
        let mut rows = Vec::new();
        for policy in PagePolicy::ALL {
            let time = |r: &PageRun| Some(r.seconds * 1e9);
            rows.push(self.row(policy, "time", Ours::Ns, time));
        }
        for policy in [PagePolicy::Medium, PagePolicy::Huge] {
            rows.push(self.gain(published, policy));
        }
        for policy in [PagePolicy::Medium, PagePolicy::Huge] {
            rows.push(self.row(policy, "memory on large pages", Ours::Share, |r| r.large));
        }
        let count = |v: f64| Ours::Count(v as u64);
        let ends = [PagePolicy::Base, PagePolicy::Huge];
        for policy in ends {
            rows.push(self.row(policy, "page faults", count, |r| Some(r.faults as f64)));
        }
        // one row says why nothing is counted
        for &policy in ends.iter().take(if self.counts_misses() { 2 } else { 1 }) {
            let misses = |r: &PageRun| r.misses.clone().ok().map(|n| n as f64);
            let mut row = self.row(policy, "dTLB load misses", count, misses);
            if let Some(event) = self.counted_event().filter(|_| row.value.is_some()) {
                row.note += &format!("; counted by {event}");
            }
            rows.push(row);
        }
        rows
    }

    fn counts_misses(&self) -> bool {
        self.runs.iter().filter_map(|r| r.runs.as_ref().ok()).flatten().any(|r| r.misses.is_ok())
    }

    /// The event that counted misses.
    fn counted_event(&self) -> Option<&str> {
        self.runs.iter().filter_map(|r| r.runs.as_ref().ok()).flatten().find_map(|r| r.event.as_deref())
    }

    fn runs(&self, policy: PagePolicy) -> Result<&[PageRun], String> {
        let runs = self.runs.iter().find(|r| r.policy == policy).map(|r| &r.runs);
        runs.ok_or_else(|| "not run".to_owned())?.as_deref().map_err(Clone::clone)
    }

    /// The median of a figure, with its range.
    fn row(
        &self,
        policy: PagePolicy,
        what: &str,
        ours: fn(f64) -> Ours,
        figure: impl Fn(&PageRun) -> Option<f64>,
    ) -> Published {
        let title = format!("{}, {}: {what}", self.name, words(policy));
        let runs = self.runs(policy);
        let values = runs.as_ref().map(|runs| runs.iter().filter_map(&figure).collect::<Vec<_>>());
        let reason = runs.as_ref().err().cloned().or_else(|| {
            let first = runs.as_ref().ok()?.first()?;
            first
                .misses
                .clone()
                .err()
                .map(|reason| format!("dTLB load misses are not counted here: {reason}"))
        });
        self.published(title, None, ours, Spread::of(values.unwrap_or_default()), reason)
    }

    /// Time on base pages over time on larger ones: the ratio of each round.
    fn gain(&self, published: Option<Cited>, policy: PagePolicy) -> Published {
        let title = format!("{}: time on base pages over {}", self.name, words(policy));
        let (base, large) = (self.runs(PagePolicy::Base), self.runs(policy));
        let reason = large.as_ref().err().cloned();
        let pairs = base.unwrap_or_default().iter().zip(large.unwrap_or_default());
        let ratios = pairs.map(|(base, large)| base.seconds / large.seconds.max(1e-9));
        let published = published.filter(|_| policy == PagePolicy::Huge);
        self.published(title, published, Ours::Times, Spread::of(ratios), reason)
    }

    fn published(
        &self,
        title: String,
        published: Option<Cited>,
        ours: fn(f64) -> Ours,
        spread: Option<Spread>,
        reason: Option<String>,
    ) -> Published {
        let note = format!(
            "one binary, one CPU, page sizes in turn: medians of {ROUNDS} and their range, which covers the median in 97 \
             of 100 cases; again: colony study {}",
            self.e.name
        );
        let Some(s) = spread else {
            let note = reason.unwrap_or_else(|| "the runs were too short to be looked at".into());
            let row = self.e.beside(title, published, Ours::Times(f64::NAN), &note);
            return Published { ours: format::NOT_SEEN.into(), value: None, ..row };
        };
        let row = self.e.beside(title, published, ours(s.median), &note);
        let [least, greatest] = [s.least, s.greatest].map(|v| ours(v).text());
        let range = if least == greatest { String::new() } else { format!(" ({least} to {greatest})") };
        Published { ours: format!("{}{range}", row.ours), ..row }
    }
}

const fn words(policy: PagePolicy) -> &'static str {
    match policy {
        PagePolicy::Base => "base pages",
        PagePolicy::Medium => "64 KiB pages",
        PagePolicy::Huge => "huge pages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(policy: PagePolicy, seconds: &[f64]) -> PageRuns {
        let run = |&seconds: &f64| PageRun {
            seconds,
            faults: 9,
            large: Some(0.5),
            misses: Err("hidden".into()),
            event: None,
        };
        PageRuns { policy, runs: Ok(seconds.iter().map(run).collect()) }
    }

    #[test]
    fn what_was_not_measured_is_not_seen_and_says_why() {
        let off = PageRuns { policy: PagePolicy::Medium, runs: Err("off in sysfs".into()) };
        let all = [runs(PagePolicy::Base, &[4.0, 2.0, 3.0]), off, runs(PagePolicy::Huge, &[1.0, 1.0, 1.0])];
        let rows = Table { e: &EXPERIMENTS[0], name: "is.A".into(), runs: &all }.rows(KERNELS[0].1);
        let row = |what: &str| rows.iter().find(|r| r.what == what).expect(what);
        assert_eq!(row("is.A, base pages: time").ours, "3 s (2 s to 4 s)");
        let gain = row("is.A: time on base pages over huge pages");
        assert_eq!((gain.value, gain.published.as_str()), (Some(3.0), "4.03×"));
        let medium = row("is.A: time on base pages over 64 KiB pages");
        assert_eq!((medium.ours.as_str(), medium.note.as_str()), ("not seen", "off in sysfs"));
        let misses = row("is.A, base pages: dTLB load misses");
        assert_eq!((misses.value, misses.ours.as_str()), (None, "not seen"));
        assert!(misses.note.ends_with("not counted here: hidden"), "{misses:?}");
        assert_eq!(row("is.A, huge pages: memory on large pages").ours, "50 %");
    }

    #[test]
    fn misses_name_the_event_that_counted_them() {
        let mut all = PagePolicy::ALL.map(|policy| runs(policy, &[1.0]));
        for run in all.iter_mut().filter_map(|r| r.runs.as_mut().ok()).flatten() {
            (run.misses, run.event) = (Ok(7), Some("LsL1DTlbMiss.AllL2Miss (raw event 0xf045)".into()));
        }
        let rows = Table { e: &EXPERIMENTS[0], name: "is.A".into(), runs: &all }.rows(None);
        let counted: Vec<_> = rows.iter().filter(|r| r.note.ends_with("(raw event 0xf045)")).collect();
        assert!(counted.len() == 2 && counted.iter().all(|r| r.value == Some(7.0)), "{counted:?}");
    }
}
