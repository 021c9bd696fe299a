// SPDX-License-Identifier: MIT OR Apache-2.0
//! A spare core on the node that the study runs on: the time that others steal from a job, with and without it.

use colony_node::cpu::CpuSet;
use colony_sched::run::RunReport;
use colony_sched::spare::Partition;
use serde::{Deserialize, Serialize};

use crate::StudyError;
use crate::error::step;

/// Name of this step in errors.
pub(crate) const WHAT: &str = "measuring a spare core";

/// The same job on the same CPUs, without and with a spare core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpareHere {
    /// Commands that measure it again: without, with.
    pub commands: [String; 2],
    /// CPUs of the job.
    pub job: CpuSet,
    /// CPUs of everything else.
    pub spare: CpuSet,
    /// The way in which the job's CPUs were kept for the job.
    pub partition: Partition,
    /// Share of the job's CPUs that others took while the job could have run, 0 to 1, without a spare core.
    pub stolen_without: f64,
    /// The same share with a spare core.
    pub stolen_with: f64,
}

impl SpareHere {
    /// Compares two runs; each is a command and its report.
    ///
    /// # Errors
    /// [`StudyError::Step`] if the kernel's events told of no time of the job, or the second run had no spare core.
    pub(crate) fn compare(
        (without, alone): (String, &RunReport),
        (with, spared): (String, &RunReport),
    ) -> Result<Self, StudyError> {
        let spare = spared.spare.as_ref().ok_or_else(|| step(WHAT, &"the report has no spare core"))?;
        let share =
            |report| stolen(report).ok_or_else(|| step(WHAT, &"no time of the job's CPUs was observed"));
        Ok(Self {
            commands: [without, with],
            job: spared.cpus.clone(),
            spare: spare.spare.clone(),
            partition: spare.partition,
            stolen_without: share(alone)?,
            stolen_with: share(spared)?,
        })
    }
}

/// Share of the job's CPUs that others took while the job could have run, 0 to 1; `None` if nothing was observed.
pub(crate) fn stolen(report: &RunReport) -> Option<f64> {
    let proof = &report.proof;
    let stolen = proof.favored.stolen_ns + proof.regular.stolen_ns;
    let observed = proof.favored.observed_ns + proof.regular.observed_ns;
    (observed > 0).then(|| stolen as f64 / observed as f64)
}
