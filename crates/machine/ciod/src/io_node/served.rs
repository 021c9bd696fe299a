// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compute nodes of a Linux I/O node, and the port to its owner, as all jobs share them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::export::pass_reply;
use super::wire::{Failed, Frame, Kind, wrong};
use super::{Card, IoNodeError};
use crate::config::Config;
use crate::control::Report;
use crate::proxy::Proxy;
use crate::{Ciod, Network, NodeLink, card};

/// Period of the checks of nodes.
const CHECK: Duration = Duration::from_millis(50);

/// The nodes, and what sends to the owner.
pub(super) struct Agent {
    pub(super) config: Config,
    port: Mutex<File>,
    nodes: Mutex<Nodes>,
    /// The kernel's ends of places where a job sees files of the host, by job and number of the place.
    files: Mutex<BTreeMap<(u32, u8), Arc<File>>>,
}

/// The compute nodes, by number.
pub(super) struct Nodes {
    ciod: Ciod,
    memory: u64,
    network: Network,
    served: BTreeMap<u32, Served>,
}

/// A compute node.
struct Served {
    card: String,
    link: NodeLink,
    proxy: Proxy,
    /// Its owner knows that it has asked for work.
    is_told: bool,
    /// Its owner knows that it is not served any more.
    has_failed: bool,
}

impl Nodes {
    /// None yet.
    pub(super) fn new(config: &Config, memory: u64, network: Network) -> Result<Self, IoNodeError> {
        Ok(Self { ciod: Ciod::new(config.clone())?, memory, network, served: BTreeMap::new() })
    }

    /// Makes the link with the node behind a card, and starts its proxy.
    pub(super) fn serve(&mut self, about: &Card) -> Result<(), IoNodeError> {
        let failed = |source| IoNodeError::Card { name: about.card.clone(), node: about.number, source };
        let link = self.ciod.attach(about.number, self.memory)?;
        let socket = card::open(&about.card).map_err(failed)?;
        let proxy = self.ciod.proxy_on(&link, self.network, socket).map_err(failed)?;
        let served = Served { card: about.card.clone(), link, proxy, is_told: false, has_failed: false };
        self.served.insert(about.number, served);
        Ok(())
    }
}

impl Agent {
    pub(super) fn new(config: Config, nodes: Nodes, port: File) -> Self {
        Self { config, port: Mutex::new(port), nodes: Mutex::new(nodes), files: Mutex::default() }
    }

    pub(super) fn send(&self, frame: &Frame) -> io::Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *port)
    }

    /// Passes a report of a worker on. Without its port, the I/O node ends.
    pub(super) fn report(&self, job: u32, report: &Report) {
        if let Ok(frame) = Frame::json(job, Kind::Report, report) {
            let _ = self.send(&frame);
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<(u32, u8), Arc<File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies about this place go to the kernel by this way.
    pub(super) fn add_files(&self, job: u32, number: u8, device: Arc<File>) {
        self.files().insert((job, number), device);
    }

    pub(super) fn end_files(&self, job: u32) {
        self.files().retain(|(own, _), _| *own != job);
    }

    /// Gives a reply of the host to the kernel.
    pub(super) fn reply(&self, frame: &Frame) -> io::Result<()> {
        let (number, reply) = frame.bytes.split_first().ok_or_else(|| wrong("a reply about no place"))?;
        let device = self.files().get(&(frame.job, *number)).cloned();
        // a job that ends has no places any more
        device.map_or(Ok(()), |device| pass_reply(&device, reply))
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link with a node that it serves.
    pub(super) fn link(&self, node: u32) -> Option<NodeLink> {
        self.nodes().served.get(&node).map(|served| served.link.clone())
    }

    /// Makes a new link with a node that is started anew.
    pub(super) fn renew(&self, frame: &Frame) -> io::Result<()> {
        let [number] = frame.get()?;
        let mut nodes = self.nodes();
        if let Some(old) = nodes.served.remove(&number) {
            let about = Card { number, card: old.card };
            // its socket takes no frame of the new node
            drop((old.proxy, old.link));
            nodes.serve(&about).map_err(io::Error::other)?;
        }
        drop(nodes);
        self.send(&Frame::numbers(0, Kind::Renewed, &[number]))
    }

    /// Tells the owner of nodes that ask for work, and of those that cannot be served any more.
    pub(super) fn watch(&self) {
        loop {
            std::thread::sleep(CHECK);
            let mut news = Vec::new();
            for (&node, served) in &mut self.nodes().served {
                if !served.is_told && served.link.has_asked() {
                    served.is_told = true;
                    news.push(Ok(Frame::numbers(0, Kind::Asked, &[node])));
                }
                if let Some(why) = served.proxy.ended().filter(|_| !served.has_failed) {
                    served.has_failed = true;
                    news.push(Frame::json(0, Kind::Failed, &Failed { node, why }));
                }
            }
            if news.into_iter().any(|frame| frame.and_then(|frame| self.send(&frame)).is_err()) {
                return;
            }
        }
    }
}
