// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `colony study` that change the outcome of an experiment. An option that changes nothing is refused before
//! anything runs.

use serde::Serialize;

use super::Experiment;
use crate::StudyError;

/// An option of `colony study` that an experiment may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// CPUs of the job.
    Cpus,
    /// Period of the coordinated windows.
    Period,
    /// Favored share of a period.
    Duty,
    /// Seed of everything random.
    Seed,
    /// Factor by which benchmarks are shorter.
    Faster,
}

impl Setting {
    /// Every setting.
    pub const ALL: [Self; 5] = [Self::Cpus, Self::Period, Self::Duty, Self::Seed, Self::Faster];

    /// The option on the command line.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Cpus => "--cpus",
            Self::Period => "--period",
            Self::Duty => "--duty",
            Self::Seed => "--seed",
            Self::Faster => "--faster",
        }
    }

    /// Refuses the first of `given` that no experiment of `wanted` depends on.
    ///
    /// # Errors
    /// [`StudyError::WithoutEffect`] names the option, the experiments and the options that have an effect on them.
    pub fn check(given: &[Self], wanted: &[&Experiment]) -> Result<(), StudyError> {
        let has_effect = |setting: &Self| wanted.iter().any(|e| e.settings.contains(setting));
        let Some(idle) = given.iter().find(|setting| !has_effect(setting)) else { return Ok(()) };
        let effective: Vec<&str> = Self::ALL.iter().filter(|s| has_effect(s)).map(|s| s.option()).collect();
        Err(StudyError::WithoutEffect {
            option: idle.option(),
            experiments: wanted.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
            effective: if effective.is_empty() { "none".to_owned() } else { effective.join(", ") },
        })
    }
}

/// Arithmetic, and measurements on virtual machines that have CPUs and settings of their own.
pub(super) const NONE: &[Setting] = &[];
/// Simulations of random detours.
pub(super) const RANDOM: &[Setting] = &[Setting::Seed];
/// A program of this node without random detours and windows.
pub(super) const ON_CPUS: &[Setting] = &[Setting::Cpus];
/// Benchmarks on this node beside noise of a random phase.
pub(super) const BENCHMARK: &[Setting] = &[Setting::Cpus, Setting::Seed, Setting::Faster];
/// Benchmarks on this node, with and without the windows of the study.
pub(super) const WINDOWED: &[Setting] = &Setting::ALL;
