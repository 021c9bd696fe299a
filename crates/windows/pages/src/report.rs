// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof of a run: its memory by page size, its page faults, its misses.

use std::path::PathBuf;

use colony_node::memory::Limit;
use serde::{Deserialize, Serialize};

use crate::place::Moved;
use crate::policy::PagePolicy;
use crate::sample::Sample;
use crate::support::Support;

/// Page faults of a job: of every process that was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Served without reading from a device.
    pub minor: u64,
    /// Served from a device.
    pub major: u64,
}

/// A count of the processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// The count.
    Count(u64),
    /// The reason for which nothing was counted.
    NotCounted(String),
}

/// The shortage of memory since which new memory of a job has base pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// Time since the program's start, in nanoseconds.
    pub at_ns: u64,
    /// The file that states the limit: of a cgroup, or `/proc/meminfo` for the node's memory.
    pub file: PathBuf,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// Bytes in use then, without memory of files that the kernel can take back.
    pub used_bytes: u64,
    /// Bytes that the job had mapped for large pages then and not touched.
    pub untouched_bytes: u64,
}

impl Shortage {
    pub(crate) fn of(limit: &Limit, untouched_bytes: u64, at_ns: u64) -> Self {
        let (file, limit_bytes, used_bytes) = (limit.file.clone(), limit.bytes, limit.used);
        Self { at_ns, file, limit_bytes, used_bytes, untouched_bytes }
    }
}

/// Large pages of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesReport {
    /// The page size that was asked for.
    pub policy: PagePolicy,
    /// Settings of the node at the start.
    pub node: Support,
    /// Pieces of the program that were put on large pages before it ran.
    pub moved: Vec<Moved>,
    /// Memory when it was largest, of the samples taken; `None` if no process was seen.
    pub sample: Option<Sample>,
    /// Page faults.
    pub faults: Faults,
    /// Misses of the data TLB by loads in user mode.
    pub dtlb_misses: Counted,
    /// The event that was counted for it; `None` if none was.
    #[serde(default)]
    pub dtlb_event: Option<String>,
    /// The shortage of memory that ended large pages; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Shortage>,
    /// The functions in moved text, for `perf report`.
    pub perf_map: Option<PathBuf>,
    /// What the program did not get, and the remedy.
    pub warnings: Vec<String>,
}
