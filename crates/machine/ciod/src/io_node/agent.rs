// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon in a Linux I/O node: serves its compute nodes, and runs the workers of their jobs as its owner orders.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use super::root;
use super::task::{self, Event, Events, JOBS};
use super::wire::{Failed, Frame, Hello, Kind, VERSION, wrong};
use super::{Card, IoNode, IoNodeError, PORT};
use crate::config::Config;
use crate::proxy::Proxy;
use crate::{Ciod, Network, NodeLink, card};

/// Period of the checks of nodes.
const CHECK: Duration = Duration::from_millis(50);

/// Frames that wait for a job at most: a file may come faster than it is written.
const AHEAD: usize = 8;

/// The daemon.
pub(super) struct Agent {
    pub(super) config: Config,
    ciod: Ciod,
    memory: u64,
    network: Network,
    port: Mutex<File>,
    nodes: Mutex<BTreeMap<u32, Served>>,
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

impl IoNode {
    /// Serves the nodes until the owner of the partition ends.
    ///
    /// # Errors
    /// [`IoNodeError`].
    pub fn run(self, config: Config) -> Result<(), IoNodeError> {
        let ciod = Ciod::new(config.clone())?;
        let Self { nodes: cards, memory, network } = self;
        let mut nodes = BTreeMap::new();
        for card in cards {
            let served = serve(&ciod, memory, network, &card)?;
            nodes.insert(card.number, served);
        }
        let reads = open_port().map_err(IoNodeError::Port)?;
        root::prepare(Path::new(JOBS)).map_err(IoNodeError::Files)?;
        let writes = reads.try_clone().map_err(IoNodeError::Port)?;
        let (port, nodes) = (Mutex::new(writes), Mutex::new(nodes));
        let agent = Arc::new(Agent { config, ciod, memory, network, port, nodes });
        agent.listen(reads).map_err(IoNodeError::Port)
    }
}

/// Makes the link with the node behind a card, and starts its proxy.
fn serve(ciod: &Ciod, memory: u64, network: Network, about: &Card) -> Result<Served, IoNodeError> {
    let failed = |source| IoNodeError::Card { name: about.card.clone(), node: about.number, source };
    let link = ciod.attach(about.number, memory)?;
    let socket = card::open(&about.card).map_err(failed)?;
    let proxy = ciod.proxy_on(&link, network, socket).map_err(failed)?;
    Ok(Served { card: about.card.clone(), link, proxy, is_told: false, has_failed: false })
}

/// Opens the port to the owner, which sysfs knows by its name.
fn open_port() -> io::Result<File> {
    for port in fs::read_dir("/sys/class/virtio-ports")?.flatten() {
        if fs::read_to_string(port.path().join("name")).unwrap_or_default().trim() == PORT {
            let device = Path::new("/dev").join(port.file_name());
            return File::options().read(true).write(true).open(device);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

impl Agent {
    pub(super) fn send(&self, frame: &Frame) -> io::Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *port)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<u32, Served>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link with a node that it serves.
    pub(super) fn link(&self, node: u32) -> Option<NodeLink> {
        self.nodes().get(&node).map(|served| served.link.clone())
    }

    /// Greets the owner, and does what it says until it ends.
    fn listen(self: Arc<Self>, mut port: File) -> io::Result<()> {
        let kernel = nix::sys::utsname::uname()?.release().to_string_lossy().into_owned();
        self.send(&Frame::json(0, Kind::Hello, &Hello { version: VERSION.into(), kernel })?)?;
        let watches = self.clone();
        Builder::new().name("nodes".into()).spawn(move || watches.watch())?;
        let mut jobs = BTreeMap::<u32, SyncSender<Event>>::new();
        while let Some(frame) = Frame::read(&mut port)? {
            match frame.kind {
                Kind::Renew => self.renew(&frame)?,
                Kind::File | Kind::Task if !jobs.contains_key(&frame.job) => {
                    let (events, hears) = sync_channel(AHEAD);
                    let (agent, job, own) = (self.clone(), frame.job, events.clone());
                    let hears = Events::new(hears);
                    Builder::new()
                        .name(format!("job {job}"))
                        .spawn(move || task::run(&agent, job, &own, hears))?;
                    let _ = events.send(Event::Frame(frame));
                    jobs.insert(job, events);
                }
                kind if kind.is_of_job() => {
                    let job = frame.job;
                    let _ = jobs.get(&job).map(|job| job.send(Event::Frame(frame)));
                    if kind == Kind::End {
                        jobs.remove(&job);
                    }
                }
                other => return Err(wrong(format!("{other:?} from the owner"))),
            }
        }
        Ok(())
    }

    /// Makes a new link with a node that is started anew.
    fn renew(&self, frame: &Frame) -> io::Result<()> {
        let [number] = frame.get()?;
        let mut nodes = self.nodes();
        if let Some(old) = nodes.remove(&number) {
            let about = Card { number, card: old.card };
            // its socket takes no frame of the new node
            drop((old.proxy, old.link));
            let new = serve(&self.ciod, self.memory, self.network, &about).map_err(io::Error::other)?;
            nodes.insert(number, new);
        }
        drop(nodes);
        self.send(&Frame::numbers(0, Kind::Renewed, &[number]))
    }

    /// Tells the owner of nodes that ask for work, and of those that cannot be served any more.
    fn watch(&self) {
        loop {
            std::thread::sleep(CHECK);
            let mut news = Vec::new();
            for (&node, served) in &mut *self.nodes() {
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

impl Kind {
    /// Returns `true` if the owner sends it about a job.
    const fn is_of_job(self) -> bool {
        matches!(
            self,
            Self::Data
                | Self::File
                | Self::Task
                | Self::Launch
                | Self::Order
                | Self::Input
                | Self::Taken
                | Self::Closed
                | Self::End
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_named() {
        let nodes = vec![Card { number: 4, card: "no-such-card".into() }];
        let node = IoNode { nodes, memory: 64 << 20, network: Network::default() };
        let error = node.run(Config::new("/bin/true")).expect_err("no card").to_string();
        assert!(error.contains("no-such-card of node 4"), "{error}");
    }
}
