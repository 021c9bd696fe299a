// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a program runs: PEs a process, work stealing, load balancing.

use std::path::PathBuf;

use crate::balance_options::BalanceOptions;
use crate::checkpoint::options::{CheckpointOptions, RESTART};
use crate::track::TimelineOptions;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// PEs of each process, as threads; 0 is 1.
    pub threads: u32,
    /// Idle PEs take objects from others of their process.
    pub steal: bool,
    /// Load balancing; without, objects resume where they are. The environment may change it
    /// ([`BalanceOptions::with_environment`]).
    pub balance: Option<BalanceOptions>,
    /// Checkpoints in memory, if the launcher replaces ranks that die ([`Launch::restarts`](crate::launch::Launch)). The
    /// environment may change it ([`CheckpointOptions::with_environment`]).
    pub checkpoint: Option<CheckpointOptions>,
    /// The folder with the checkpoint from which the program begins, on any number of PEs; `COLONY_RESTART` replaces it.
    pub restart: Option<PathBuf>,
    /// A time line of the run. By default, that of [`TimelineOptions::from_environment`].
    pub timeline: Option<TimelineOptions>,
}

impl Options {
    /// These options with those of the environment, for a job of so many PEs.
    pub(crate) fn with_environment(&self, pes: u32) -> Result<Self, String> {
        let balance = BalanceOptions::with_environment(self.balance.clone())?;
        if let Some(balance) = &balance {
            balance.topology.check(pes as usize).map_err(|e| format!("load balancing: {e}"))?;
        }
        let checkpoint = CheckpointOptions::with_environment(self.checkpoint.clone())?;
        let restart = match std::env::var_os(RESTART).filter(|folder| !folder.is_empty()) {
            Some(folder) => Some(folder.into()),
            None => self.restart.clone(),
        };
        let timeline = match &self.timeline {
            Some(timeline) => Some(timeline.clone()),
            None => TimelineOptions::from_environment()?,
        };
        Ok(Self { balance, checkpoint, restart, timeline, ..self.clone() })
    }
}
