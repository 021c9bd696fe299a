// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels on base, 64 KiB and huge pages: one binary, the page sizes in turn, so that whatever else runs on the node
//! disturbs all of them alike.

use colony_pages::{Counted, PagePolicy, PagesReport};

use crate::StudyError;
use crate::compute_node::Run;

/// Rounds, of a run with each page size. The range of six values covers the median in 97 of 100 cases (1 - 2/2^6).
pub const ROUNDS: usize = 6;

/// A run of a kernel on pages of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct PageRun {
    /// Time of the timed part, seconds.
    pub seconds: f64,
    /// Page faults of the timed part.
    pub faults: u64,
    /// Share of the memory that was on large pages when it was largest; `None`: not seen.
    pub large: Option<f64>,
    /// Misses of the data TLB in the whole run, or why they were not counted.
    pub misses: Result<u64, String>,
    /// The event that counted them; `None` if none did.
    pub event: Option<String>,
}

impl PageRun {
    /// A run from its own result and the report of `colony run`.
    #[must_use]
    pub fn new(run: &Run, report: &PagesReport) -> Self {
        let share = |sample: &colony_pages::Sample| {
            let large: u64 = sample.segments.iter().map(|s| s.resident.saturating_sub(s.base())).sum();
            large as f64 / sample.resident().max(1) as f64
        };
        Self {
            seconds: run.seconds,
            faults: run.faults_whole.all(),
            large: report.sample.as_ref().map(share),
            misses: match &report.dtlb_misses {
                Counted::Count(n) => Ok(*n),
                Counted::NotCounted(reason) => Err(reason.clone()),
            },
            event: report.dtlb_event.clone(),
        }
    }
}

/// Runs of a kernel on pages of one size, one a round.
#[derive(Clone, Debug, PartialEq)]
pub struct PageRuns {
    /// The page size.
    pub policy: PagePolicy,
    /// The runs; the reason if the node has no such pages.
    pub runs: Result<Vec<PageRun>, String>,
}

/// Runs a kernel on pages of each size in turn. `unavailable` gives the reason for which the node has no pages of a size.
///
/// # Errors
/// That of a run.
pub fn measure(
    rounds: usize,
    unavailable: impl Fn(PagePolicy) -> Option<String>,
    mut run: impl FnMut(PagePolicy) -> Result<PageRun, StudyError>,
) -> Result<Vec<PageRuns>, StudyError> {
    let empty = |policy| PageRuns { policy, runs: unavailable(policy).map_or_else(|| Ok(Vec::new()), Err) };
    let mut all = PagePolicy::ALL.map(empty).to_vec();
    for _ in 0..rounds {
        for PageRuns { policy, runs } in &mut all {
            if let Ok(runs) = runs {
                runs.push(run(*policy)?);
            }
        }
    }
    Ok(all)
}

/// The median of some values, and their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Spread {
    /// `None` without values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), least: *values.first()?, greatest: *values.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_take_turns_and_one_that_is_missing_is_not_run() {
        let mut order = Vec::new();
        let runs = measure(
            2,
            |policy| (policy == PagePolicy::Medium).then(|| "off".to_owned()),
            |policy| {
                order.push(policy);
                Ok(PageRun { seconds: 1.0, faults: 0, large: None, misses: Ok(0), event: None })
            },
        )
        .expect("no run fails");
        use PagePolicy::{Base, Huge};
        assert_eq!(order, [Base, Huge, Base, Huge]);
        assert_eq!(runs[1].runs, Err("off".into()));
        assert_eq!(runs[2].runs.as_ref().map(Vec::len), Ok(2));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let s = Spread::of([4.0, 1.0, 3.0, 2.0]).expect("values");
        assert_eq!((s.median, s.least, s.greatest), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([7.0]).map(|s| s.median), Some(7.0));
        assert_eq!(Spread::of([]), None);
    }
}
