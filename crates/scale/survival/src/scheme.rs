// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schemes of fault tolerance, and what each does after a failure.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SurvivalError;

/// A scheme of fault tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// No scheme: after a failure the job starts again.
    None,
    /// The application writes checkpoints to a shared file system; after a failure the job is launched again from the
    /// last one.
    Disk,
    /// Double checkpoint in memory: the state of every PE on its own node and on a buddy node. After a failure all PEs
    /// go back to the last checkpoint (Zheng, Shi and Kalé, "FTC-Charm++", IEEE Cluster 2004).
    Double,
    /// As [`Scheme::Double`], with a checkpoint on disk now and then for the case that both copies are lost.
    DoubleDisk,
    /// As [`Scheme::Double`]; a warning empties a node before it fails (Chakravorty, Mendes and Kalé, "Proactive fault
    /// tolerance in MPI applications via task migration", HiPC 2006).
    Evacuation,
    /// As [`Scheme::Double`], and senders log messages: after a failure only the objects of the failed node go back,
    /// and several nodes replay them in parallel (Chakravorty and Kalé, "A fault tolerance protocol with fast fault
    /// recovery", IPDPS 2007).
    Logging,
}

impl Scheme {
    /// All of them, the simplest first.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Disk, Self::Double, Self::DoubleDisk, Self::Evacuation, Self::Logging];

    /// Its name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Disk => "disk",
            Self::Double => "double",
            Self::DoubleDisk => "double-disk",
            Self::Evacuation => "evacuation",
            Self::Logging => "logging",
        }
    }

    /// Returns `true` if the checkpoints are in memory, two copies on two nodes.
    #[must_use]
    pub const fn in_memory(self) -> bool {
        !matches!(self, Self::None | Self::Disk)
    }
}

impl FromStr for Scheme {
    type Err = SurvivalError;

    fn from_str(name: &str) -> Result<Self, SurvivalError> {
        let found = Self::ALL.into_iter().find(|s| s.name() == name);
        found.ok_or_else(|| SurvivalError::Scheme {
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).to_vec(),
        })
    }
}
