// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why clocks could not be compared.

use std::io;

use super::report::Dropped;
use crate::fit::FitError;
use crate::hosts;
use crate::wire::WireError;

/// Why clocks were not compared.
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
        /// What was tried.
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
        /// The patience it had.
        seconds: f64,
        /// Who told, where it was not this node that waited.
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
        /// Who told.
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
        /// Which.
        source: WireError,
    },
    /// The trips say nothing.
    #[error("comparing with rank {rank} ({host}): {source}")]
    Fit {
        /// The parent.
        rank: u32,
        /// Its name.
        host: String,
        /// Why.
        source: FitError,
    },
}

impl SyncError {
    /// Whether other words of the user would have done it.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Rank { .. } | Self::Hosts(_))
    }
}
