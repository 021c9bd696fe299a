// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs.

use serde::{Deserialize, Serialize};

/// A benchmark program of the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// `MPI_Barrier`
    Barrier,
    /// `MPI_Allreduce` of doubles, minimum and maximum at once
    Allreduce,
    /// Allreduce with an operation of our own, which no network hardware can do
    Myallreduce,
    /// `MPI_Alltoall`
    Alltoall,
    /// A token around all ranks; one operation is one round
    Ring,
    /// Allreduce on 2, 4, 8 … ranks, up to all of them
    Glob,
    /// A fixed amount of work, then a barrier
    Bsp,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Barrier,
        Self::Allreduce,
        Self::Myallreduce,
        Self::Alltoall,
        Self::Ring,
        Self::Glob,
        Self::Bsp,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Allreduce => "allreduce",
            Self::Myallreduce => "myallreduce",
            Self::Alltoall => "alltoall",
            Self::Ring => "ring",
            Self::Glob => "glob",
            Self::Bsp => "bsp",
        }
    }

    /// Operations a run makes unless told otherwise: the seeds' 500,000 for `glob` and 10,000 for `bsp`.
    #[must_use]
    pub const fn default_ops(self) -> u64 {
        match self {
            Self::Glob => 500_000,
            Self::Bsp => 10_000,
            _ => 100_000,
        }
    }

    /// Bytes an operation moves unless told otherwise; 0 where it moves none. 32 is "the size of a
    /// typical synchronizing collective operation" (Colony Linux kernel technical report, 3.1.3).
    #[must_use]
    pub const fn default_bytes(self) -> u64 {
        match self {
            Self::Barrier | Self::Bsp => 0,
            _ => 32,
        }
    }

    /// The fewest ranks it makes sense on.
    #[must_use]
    pub const fn min_ranks(self) -> u32 {
        match self {
            Self::Ring | Self::Glob => 2,
            _ => 1,
        }
    }
}
