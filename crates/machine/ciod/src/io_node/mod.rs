// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Linux I/O node: a machine of its own that serves the compute nodes of a pset, each at the other end of one of its
//! network cards, and runs the workers of their jobs.
//!
//! To the supervisor, which is in the process that owns the partition, a relay stands for the worker: it is the user, has
//! the job's streams and the program's file, and speaks with the agent in the I/O node by frames, through the
//! owner's link. The agent starts the worker there and passes on its orders and its reports. So jobs, and what becomes
//! of them, are the same whatever the I/O node is.

mod agent;
pub(crate) mod export;
mod link;
pub(crate) mod relay;
mod root;
mod served;
mod task;
mod wire;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::control::Setup;
use crate::spec::Files;
use crate::{CiodError, JobError, JobSpec, Network};
pub use link::IoLink;
use wire::Seen;

/// The most compute nodes of a Linux I/O node.
pub const MOST_NODES: usize = 128;

/// Name of the virtual serial port through which its owner speaks with it.
pub const PORT: &str = "colony.io-node";

/// What a Linux I/O node serves, as its owner gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoNode {
    /// Its compute nodes.
    pub nodes: Vec<Card>,
    /// Memory of the processes of each node, bytes.
    pub memory: u64,
    /// Properties of the links.
    pub network: Network,
}

/// A compute node behind a network card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Its number in the partition.
    pub number: u32,
    /// Name of the card.
    pub card: String,
}

/// The reason why an I/O node cannot serve its nodes.
#[derive(Debug, thiserror::Error)]
pub enum IoNodeError {
    /// The description is none.
    #[error("{} is no description of an I/O node: {reason}", path.display())]
    Description {
        /// Its file.
        path: PathBuf,
        /// The fault found.
        reason: String,
    },
    /// A card cannot be used, or the proxy behind it.
    #[error("the network card {name} of node {node}: {source}")]
    Card {
        /// Its name.
        name: String,
        /// The node's number.
        node: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon refused.
    #[error(transparent)]
    Ciod(#[from] CiodError),
    /// There is no room for the files of jobs.
    #[error("room for the files of jobs: {0}")]
    Files(io::Error),
    /// The owner is not reached.
    #[error("the port {PORT} to the owner of the partition: {0}")]
    Port(io::Error),
}

impl IoNode {
    /// Reads a description, in JSON.
    ///
    /// # Errors
    /// [`IoNodeError::Description`].
    pub fn read(path: &Path) -> Result<Self, IoNodeError> {
        let wrong = |reason: String| IoNodeError::Description { path: path.to_owned(), reason };
        let text = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        let read: Self = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        let most = read.nodes.len() <= MOST_NODES;
        if most { Ok(read) } else { Err(wrong(format!("it has more than {MOST_NODES} nodes"))) }
    }
}

/// The part of a job on one I/O node.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    setup: Setup,
    /// The personalities of its nodes, in the encoding of the control system.
    records: Vec<Vec<u8>>,
    /// Places where files of the host are seen, by their number.
    seen: Vec<Seen>,
}

/// Refuses jobs that no Linux I/O node can run.
pub(crate) fn check(spec: &JobSpec) -> Result<(), JobError> {
    let refuse = |text: &str| Err(JobError::Spec(text.to_owned()));
    if spec.files != Files::Host {
        return refuse("a Linux I/O node has files of its own: leave out root and binds");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_and_what_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("io-node.json");
        let nodes = vec![Card { number: 3, card: "eth0".into() }];
        let node = IoNode { nodes, memory: 64 << 20, network: Network::default() };
        let write = |node: &IoNode| {
            std::fs::write(&path, serde_json::to_vec(node).expect("JSON")).expect("written");
        };
        write(&node);
        assert_eq!(IoNode::read(&path).expect("one"), node);
        write(&IoNode { nodes: vec![node.nodes[0].clone(); MOST_NODES + 1], ..node });
        assert!(IoNode::read(&path).expect_err("too many").to_string().contains("more than 128"));
        std::fs::write(&path, b"{}").expect("written");
        assert!(IoNode::read(&path).expect_err("none").to_string().contains("io-node.json"));
    }

    #[test]
    fn jobs_that_need_the_files_of_the_host_are_refused() {
        let spec = JobSpec::new("/bin/a");
        assert_eq!(check(&spec), Ok(()));
        let root = JobSpec { files: Files::Root("/jail".into()), ..spec };
        assert!(matches!(check(&root), Err(JobError::Spec(_))));
    }
}
