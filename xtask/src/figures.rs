// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last recorded figures of each test program, in `xtask/figures.toml`. `./x test` reports programs that take longer now, and
//! `./x test --record` writes the file. Steps that compile have no figures: their times depend on how much there is to compile.
//!
//! Processor time is compared, because durations depend on what runs beside a step. It is scaled by the calibration loop of
//! [`crate::budget`], so a slower machine shows no growth.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::schedule::{Ended, State};

/// The file, from the root of the checkout.
pub(crate) const FIGURES: &str = "xtask/figures.toml";

/// A step has grown if it takes this multiple of its last processor time.
const GROWTH: f64 = 1.5;

/// Steps that take less are not compared, in seconds of processor time: what runs beside them changes them by as much.
const COMPARED_FROM_S: f64 = 5.0;

/// The figures of the last recorded runs, by tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    /// `./x test`
    first_tier: Option<RunFigures>,
    /// `./x test --all`
    both_tiers: Option<RunFigures>,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunFigures {
    /// Processor time of the calibration loop: the slowest of the run.
    calibration_ms: f64,
    steps: BTreeMap<String, StepFigures>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFigures {
    cpu_s: f64,
    wall_s: f64,
}

/// Seconds with one decimal.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

impl Figures {
    /// Reads `figures.toml`; there are no figures if there is no file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        match fs::read_to_string(file) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("cannot read {}", file.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Writes `figures.toml`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text = toml::to_string(self).context("the figures of the run")?;
        let head = "# What each test program took in the last recorded runs: `./x test --record` writes this file.\n\n";
        fs::write(file, format!("{head}{text}")).with_context(|| format!("cannot write {}", file.display()))
    }

    /// A copy in which `run` replaces the recorded run of the same tier.
    pub(crate) fn with_run(&self, run: RunFigures, all: bool) -> Self {
        let mut figures = self.clone();
        *(if all { &mut figures.both_tiers } else { &mut figures.first_tier }) = Some(run);
        figures
    }

    /// What has grown by half in a run of a tier since the recorded one, a line each.
    pub(crate) fn grown(&self, run: &RunFigures, all: bool) -> Vec<String> {
        let last = if all { &self.both_tiers } else { &self.first_tier };
        last.as_ref().map_or_else(Vec::new, |last| run.grown_since(last))
    }
}

impl RunFigures {
    /// The figures of a run; `calibrated` is the slowest time of the calibration loop.
    pub(crate) fn from_steps<'a>(ended: impl IntoIterator<Item = &'a Ended>, calibrated: Duration) -> Self {
        let step = |e: &Ended| {
            (e.name.clone(), StepFigures { cpu_s: seconds(e.times.cpu), wall_s: seconds(e.times.wall) })
        };
        let ran = ended.into_iter().filter(|e| !matches!(e.state, State::NotRun(_)));
        Self { calibration_ms: (calibrated.as_secs_f64() * 1e3).round(), steps: ran.map(step).collect() }
    }

    fn grown_since(&self, last: &Self) -> Vec<String> {
        // the factor by which this machine is slower
        let slower = self.calibration_ms / last.calibration_ms.max(1.0);
        let line = |(name, now): (&String, &StepFigures)| {
            let before = last.steps.get(name)?.cpu_s.max(COMPARED_FROM_S) * slower;
            (now.cpu_s > before * GROWTH).then(|| {
                format!(
                    "{name} took {:.1} s of the processor, and {:.1} s in the last recorded run (xtask/figures.toml; on this \
                     machine {before:.1} s)",
                    now.cpu_s, last.steps[name].cpu_s
                )
            })
        };
        self.steps.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Times;

    /// A run of two steps.
    fn run(calibration_ms: u64, vm_s: u64, small_s: u64) -> RunFigures {
        let step = |name: &str, cpu_s| Ended {
            name: name.into(),
            state: State::Passed,
            times: Times { wall: Duration::from_secs(1), cpu: Duration::from_secs(cpu_s) },
            detail: String::new(),
        };
        let steps = [step("vm", vm_s), step("a step: small", small_s)];
        RunFigures::from_steps(&steps, Duration::from_millis(calibration_ms))
    }

    #[test]
    fn growth_by_half_is_told_for_the_same_tier_and_not_on_a_slower_machine() {
        let figures = Figures::default().with_run(run(100, 20, 1), false);
        let grown = |run: &RunFigures, all| figures.grown(run, all);
        assert_eq!(grown(&run(100, 29, 4), false), Vec::<String>::new());
        let [line] = &grown(&run(100, 31, 4), false)[..] else { panic!("one step has grown") };
        assert!(line.starts_with("vm took 31.0 s of the processor, and 20.0 s in the last"), "{line}");
        assert!(grown(&run(200, 31, 1), false).is_empty(), "the machine is slower");
        assert!(grown(&run(100, 31, 1), true).is_empty(), "nothing is known of the other tier");
        assert_eq!(grown(&run(100, 20, 8), false).len(), 1, "small steps are compared from 5 s on");
    }

    #[test]
    fn figures_are_read_as_they_were_written_and_a_missing_file_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("figures.toml");
        assert_eq!(Figures::read(&file).expect("none"), Figures::default());
        let figures = Figures::default().with_run(run(100, 20, 1), false).with_run(run(100, 70, 1), true);
        figures.write(&file).expect("our folder");
        assert_eq!(Figures::read(&file).expect("written"), figures);
        fs::write(&file, "steps = 1").expect("our folder");
        assert!(Figures::read(&file).is_err());
    }
}
