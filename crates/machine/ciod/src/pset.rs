// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pset whose I/O node is a machine of its own: each network card of the machine has one compute node at its other end.
//! The machine runs one job, whose files are its own.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Ciod, CiodError, Config, JobError, JobOutcome, JobSpec, Network, Streams, card};

/// A pset and its job, as the control system gives them to the I/O node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pset {
    /// Names of the cards, in the order of the nodes' numbers.
    pub cards: Vec<String>,
    /// Memory of the processes of each node, bytes.
    pub memory: u64,
    /// Properties of the links.
    pub network: Network,
    /// The job.
    pub job: JobSpec,
}

/// The reason why an I/O node cannot serve its pset.
#[derive(Debug, thiserror::Error)]
pub enum PsetError {
    /// The description is none.
    #[error("{} is no description of a pset: {reason}", path.display())]
    Description {
        /// Its file.
        path: PathBuf,
        /// The fault found.
        reason: String,
    },
    /// A card cannot be used.
    #[error("the network card {name}: {source}")]
    Card {
        /// Its name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The proxy of a node does not start.
    #[error("the proxy of node {node}: {source}")]
    Proxy {
        /// The node's number.
        node: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon refused.
    #[error(transparent)]
    Ciod(#[from] CiodError),
    /// The job does not start.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The standard streams cannot be had.
    #[error("the standard streams: {0}")]
    Streams(io::Error),
}

impl Pset {
    /// Reads a description, in JSON.
    ///
    /// # Errors
    /// [`PsetError::Description`].
    pub fn read(path: &Path) -> Result<Self, PsetError> {
        let wrong = |reason: String| PsetError::Description { path: path.to_owned(), reason };
        let text = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))
    }

    /// Serves the nodes until their job has ended; its streams are those of this process.
    ///
    /// # Errors
    /// [`PsetError`]. What goes wrong in the job is in its outcome.
    pub fn run(self, config: Config) -> Result<JobOutcome, PsetError> {
        let ciod = Ciod::new(config)?;
        let mut proxies = Vec::new();
        for (number, name) in (0..).zip(&self.cards) {
            let link = ciod.attach(number, self.memory)?;
            let socket = card::open(name).map_err(|source| PsetError::Card { name: name.clone(), source })?;
            let proxy = ciod.proxy_on(&link, self.network, socket);
            proxies.push(proxy.map_err(|source| PsetError::Proxy { node: number, source })?);
        }
        let numbers: Vec<u32> = ciod.nodes().iter().map(crate::NodeLink::number).collect();
        let streams = Streams::inherit().map_err(PsetError::Streams)?;
        let outcome = ciod.launch(self.job, &numbers, streams)?.wait();
        drop(proxies);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_and_what_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pset.json");
        let (cards, memory, network) = (vec!["eth0".into()], 64 << 20, Network::default());
        let pset = Pset { cards, memory, network, job: JobSpec::new("/bin/a") };
        std::fs::write(&path, serde_json::to_vec(&pset).expect("JSON")).expect("written");
        assert_eq!(Pset::read(&path).expect("a pset"), pset);
        std::fs::write(&path, b"{}").expect("written");
        assert!(Pset::read(&path).expect_err("no pset").to_string().contains("pset.json"));
    }

    #[test]
    fn a_card_that_is_not_there_is_named() {
        let (cards, memory, network) = (vec!["no-such-card".into()], 64 << 20, Network::default());
        let pset = Pset { cards, memory, network, job: JobSpec::new("/bin/a") };
        let error = pset.run(Config::new("/bin/true")).expect_err("no card").to_string();
        assert!(error.contains("no-such-card"), "{error}");
    }
}
