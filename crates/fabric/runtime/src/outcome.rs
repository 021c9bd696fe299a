// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a program ended.

use crate::balancer::BalanceReport;
use crate::core::{CheckpointReport, Counts};

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The code that the program gave to `exit`.
    pub code: u8,
    /// Counts of each PE of this process.
    pub counts: Vec<Counts>,
    /// Load balancing, in the process of PE 0, since the last recovery.
    pub balance: Vec<BalanceReport>,
    /// Checkpoints, in the process of PE 0, since the last recovery.
    pub checkpoints: Vec<CheckpointReport>,
    /// How many times ranks have been replaced.
    pub generation: u32,
}

/// A program that did not end by `exit`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The program or its input is wrong. Reported by the process in which it happened.
    #[error("{0}")]
    Program(String),
    /// Another process has failed, and has said why.
    #[error("{0}")]
    Lost(String),
    /// The launcher has to replace this process, which has to end with this exit code: a process died before the first
    /// checkpoint, so the program begins anew; a PE that ran again did not do what it had done before; or the job goes on with
    /// another number of ranks.
    #[error("this process has to be replaced by the launcher")]
    Again(u8),
}
