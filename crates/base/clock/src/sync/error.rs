// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the comparison of clocks.

use std::io;

use super::report::Dropped;
use crate::fit::FitError;
use crate::hosts;
use crate::wire::WireError;

/// A failure of the comparison of clocks.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A rank the list has not.
    #[error("rank {rank} is not in a list of {nodes} nodes (0 to {})", nodes.saturating_sub(1))]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// Nodes in the list.
        nodes: usize,
    },
    /// The list cannot be used.
    #[error(transparent)]
    Hosts(#[from] hosts::HostsError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A node was not heard of.
    #[error(
        "nothing was heard of rank {rank} ({host}) for {seconds} s{}; see that `colony clock sync` runs there with the \
         same host list and that UDP port {port} is open{}",
        told_by.as_ref().map(|by| format!(", says {by}")).unwrap_or_default(),
        if dropped.any() { format!(" (dropped datagrams: {dropped})") } else { String::new() }
    )]
    Silent {
        /// The node.
        rank: u32,
        /// Its name.
        host: String,
        /// Its port.
        port: u16,
        /// The timeout.
        seconds: f64,
        /// The node that reported it, if it was not this one.
        told_by: Option<String>,
        /// Datagrams that were not taken.
        dropped: Dropped,
    },
    /// A node failed for a reason of its own.
    #[error("rank {rank} ({host}) has failed, says {told_by}; its own message tells why")]
    Failed {
        /// The node.
        rank: u32,
        /// Its name.
        host: String,
        /// The node that reported it.
        told_by: String,
    },
    /// A node has another list of hosts.
    #[error("rank {rank} ({host}) has another host list; give all nodes the same file, in the same order")]
    OtherList {
        /// The node.
        rank: u32,
        /// Its name.
        host: String,
    },
    /// A node has another version.
    #[error("{host}: {source}")]
    OtherVersion {
        /// Its name.
        host: String,
        /// The fault of the datagram.
        source: WireError,
    },
    /// The trips say nothing.
    #[error("comparing with rank {rank} ({host}): {source}")]
    Fit {
        /// The parent.
        rank: u32,
        /// Its name.
        host: String,
        /// The reason.
        source: FitError,
    },
}

impl SyncError {
    /// Returns `true` for an error of use: a corrected configuration would work.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Rank { .. } | Self::Hosts(_))
    }
}
