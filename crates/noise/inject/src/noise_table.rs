// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fig. 4 of the Colony Linux kernel technical report as a table: upper bound of terms to noise.

use std::fmt;
use std::sync::atomic::AtomicBool;

use colony_node::{cpu::CpuSet, record::NodeRecord};
use serde::{Deserialize, Serialize};

use super::leibniz::{CpuNoise, Daemon, check_terms, max_terms_for, predicted_noise, terms_per_s_of};
use super::schedule::random_of;
use super::threads::{DAEMON, Stop, join, spawn};
use super::{InjectError, Target};

/// Terms a second of a Blue Gene/L processor: 5.9 million terms at most made 21 % (section 3.3), a mean of
/// 2.95 million in 105 ms.
pub const BGL_TERMS_PER_S: f64 = 2.95e6 / 0.105;

/// Shares of the table where no terms are given; 2 % and 21 % are the report's.
const SHARES: [f64; 9] = [0.01, 0.02, 0.05, 0.10, 0.15, 0.21, 0.25, 0.30, 0.35];
/// The table's first upper bound of terms.
const FIRST_TERMS: u64 = 500_000;

/// A table to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TablePlan {
    /// Upper bounds of terms; empty is from half a million to what makes 35 % here, 2 % and 21 % among them.
    pub max_terms: Vec<u64>,
    /// Calculations to measure for each.
    pub calculations: u64,
    /// Sleep between them: shorter than the daemon's 500 ms, it saves time and changes no calculation.
    pub sleep_ns: u64,
    /// The CPU to measure on, the first of these; `None` is the last usable one.
    pub cpus: Option<CpuSet>,
    /// Seed of the random numbers of terms.
    pub seed: u64,
}

impl Default for TablePlan {
    fn default() -> Self {
        Self { max_terms: Vec::new(), calculations: 8, sleep_ns: 50_000_000, cpus: None, seed: 1 }
    }
}

/// A point of the figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseRow {
    /// Upper bound of terms.
    pub max_terms: u64,
    /// The bound that makes as much noise on Blue Gene/L, from the published pair (21 %, 5.9 million).
    pub bgl_max_terms: u64,
    /// Noise share predicted from the calibrated speed.
    pub predicted: f64,
    /// Noise share of the calculations made.
    pub measured: f64,
    /// Noise share at the speed of these calculations, and the mean number of terms.
    pub long_run: f64,
    /// Calculations made.
    pub calculations: u64,
    /// The value that the report gives for this point; `None` if it gives none.
    pub published: Option<String>,
}

/// Fig. 4, predicted and measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseTable {
    /// [`NoiseTable::SCHEMA`].
    pub schema: String,
    /// The plan.
    pub plan: TablePlan,
    /// CPU measured on.
    pub cpu: usize,
    /// Terms a second, calibrated.
    pub terms_per_s: f64,
    /// The points.
    pub rows: Vec<NoiseRow>,
    /// The node.
    pub node: NodeRecord,
}

impl NoiseTable {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.inject.noise_table/1";
}

impl TablePlan {
    /// Measures the table, giving each row to `on_row` as soon as it is there; ends early, with the rows
    /// there are, where `stop` is set.
    ///
    /// # Errors
    /// [`InjectError`] for a plan that cannot be.
    pub fn run(
        &self,
        stop: &AtomicBool,
        mut on_row: impl FnMut(&NoiseRow),
    ) -> Result<NoiseTable, InjectError> {
        let cpus = Target { cpus: self.cpus.clone(), ..Target::default() }.cpus()?;
        let cpu = cpus.first().unwrap_or(0);
        if self.calculations == 0 {
            return Err(InjectError::Empty { run: "a table" });
        }
        let given = self.max_terms.iter().map(|&t| check_terms(t)).collect::<Result<Vec<_>, _>>()?;
        let terms_per_s = terms_per_s_of(cpu)?;
        let mut rows = Vec::new();
        for (max_terms, share) in points(&given, terms_per_s) {
            let failed = AtomicBool::new(false);
            let stop = Stop { asked: stop, failed: &failed };
            let made = self.measure(cpu, max_terms, stop)?;
            if stop.is_set() {
                break;
            }
            let predicted = predicted_noise(max_terms, terms_per_s);
            let row = NoiseRow {
                max_terms,
                bgl_max_terms: max_terms_for(predicted, BGL_TERMS_PER_S),
                predicted,
                measured: made.noise,
                long_run: made.noise_long_run,
                calculations: made.calculations,
                published: share.and_then(published).map(str::to_owned),
            };
            on_row(&row);
            rows.push(row);
        }
        let schema = NoiseTable::SCHEMA.into();
        Ok(NoiseTable { schema, plan: self.clone(), cpu, terms_per_s, rows, node: NodeRecord::now() })
    }

    fn measure(&self, cpu: usize, max_terms: u64, stop: Stop<'_>) -> Result<CpuNoise, InjectError> {
        let (sleep_ns, calculations) = (self.sleep_ns, self.calculations);
        let daemon = Daemon { cpu, max_terms, sleep_ns, end_ns: i64::MAX, calculations };
        let random = random_of(self.seed, 0, cpu);
        std::thread::scope(|scope| {
            join(spawn(scope, stop, DAEMON, move || daemon.run(random, stop))?, DAEMON)?
        })
    }
}

/// The points to measure: those given, or the shares of the figure with theirs.
fn points(given: &[u64], terms_per_s: f64) -> Vec<(u64, Option<f64>)> {
    if !given.is_empty() {
        return given.iter().map(|&t| (t, None)).collect();
    }
    let mut points: Vec<_> = SHARES.iter().map(|&s| (max_terms_for(s, terms_per_s), Some(s))).collect();
    points.push((FIRST_TERMS, None));
    points.sort_by_key(|p| p.0);
    points
}

fn published(share: f64) -> Option<&'static str> {
    match (share * 100.0).round() as u32 {
        2 => Some("2 %: 10,000 us mean calculation, 500,000 us sleep"),
        21 => Some("21 %: maxTermsPerCalc = 5.9 million"),
        35 => Some("35 %: the largest used"),
        _ => None,
    }
}

impl fmt::Display for NoiseTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "noise by terms on CPU {} ({:.1} M terms/s)", self.cpu, self.terms_per_s / 1e6)?;
        writeln!(
            f,
            "{:>14} {:>14} {:>11} {:>10} {:>10}  published (Colony Linux kernel technical report)",
            "terms at most", "on Blue Gene/L", "predicted %", "measured %", "long run %"
        )?;
        for r in &self.rows {
            writeln!(
                f,
                "{:>14} {:>14} {:>11.2} {:>10.2} {:>10.2}  {}",
                r.max_terms,
                r.bgl_max_terms,
                r.predicted * 100.0,
                r.measured * 100.0,
                r.long_run * 100.0,
                r.published.as_deref().unwrap_or("")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_goes_from_half_a_million_terms_to_35_percent_with_the_published_points() {
        let found = points(&[], BGL_TERMS_PER_S);
        assert!(found.is_sorted_by_key(|p| p.0));
        assert!(found.contains(&(500_000, None)));
        let at = |share| found.iter().find(|p| p.1 == Some(share)).expect("a point of the figure").0;
        assert_eq!((at(0.21) + 50_000) / 100_000, 59);
        assert_eq!(found.last(), Some(&(at(0.35), Some(0.35))));
        assert_eq!(found.iter().filter(|p| p.1.and_then(published).is_some()).count(), 3);
    }

    #[test]
    fn more_terms_measure_as_more_noise() {
        let plan = TablePlan {
            max_terms: vec![200_000, 20_000_000],
            calculations: 3,
            sleep_ns: 0,
            ..TablePlan::default()
        };
        let mut progress_calls = 0;
        let table = plan.run(&AtomicBool::new(false), |_| progress_calls += 1).expect("possible");
        assert_eq!((progress_calls, table.rows.len()), (2, 2));
        assert!(table.rows[1].long_run > 10.0 * table.rows[0].long_run, "{table}");
        serde_json::to_string(&table).expect("serialisable");
    }

    #[test]
    fn a_stop_keeps_the_rows_there_are() {
        let table = TablePlan::default().run(&AtomicBool::new(true), |_| ()).expect("possible");
        assert!(table.rows.is_empty());
        assert!(
            TablePlan { max_terms: vec![0], ..TablePlan::default() }
                .run(&AtomicBool::new(false), |_| ())
                .is_err()
        );
    }
}
