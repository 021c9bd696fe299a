// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon in a Linux I/O node: serves its compute nodes, and runs the workers of their jobs as its owner orders.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

use super::root;
use super::served::{Agent, Nodes};
use super::task::{self, Event, Events, JOBS};
use super::wire::{Frame, Hello, Kind, VERSION, wrong};
use super::{IoNode, IoNodeError, PORT};
use crate::Config;

/// Frames that wait for a job at most: a file may come faster than it is written.
const AHEAD: usize = 8;

impl IoNode {
    /// Serves the nodes until the owner of the partition ends.
    ///
    /// # Errors
    /// [`IoNodeError`].
    pub fn run(self, config: Config) -> Result<(), IoNodeError> {
        let mut nodes = Nodes::new(&config, self.memory, self.network)?;
        self.nodes.iter().try_for_each(|card| nodes.serve(card))?;
        let reads = open_port().map_err(IoNodeError::Port)?;
        root::prepare(Path::new(JOBS)).map_err(IoNodeError::Files)?;
        let writes = reads.try_clone().map_err(IoNodeError::Port)?;
        let agent = Arc::new(Agent::new(config, nodes, writes));
        listen(&agent, reads).map_err(IoNodeError::Port)
    }
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

/// Greets the owner, and does what it says until it ends.
fn listen(agent: &Arc<Agent>, mut port: File) -> io::Result<()> {
    let kernel = nix::sys::utsname::uname()?.release().to_string_lossy().into_owned();
    agent.send(&Frame::json(0, Kind::Hello, &Hello { version: VERSION.into(), kernel })?)?;
    let watches = agent.clone();
    Builder::new().name("nodes".into()).spawn(move || watches.watch())?;
    let mut jobs = BTreeMap::<u32, SyncSender<Event>>::new();
    while let Some(frame) = Frame::read(&mut port)? {
        match frame.kind {
            Kind::Renew => agent.renew(&frame)?,
            // at once: the worker of the job waits for it
            Kind::FileReply => {
                if let Err(why) = agent.reply(&frame) {
                    let _ = jobs.get(&frame.job).map(|job| job.send(Event::NoFiles(why)));
                }
            }
            Kind::File | Kind::Task if !jobs.contains_key(&frame.job) => {
                let (events, hears) = sync_channel(AHEAD);
                let (agent, job, own) = (agent.clone(), frame.job, events.clone());
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
    use super::super::Card;
    use super::*;
    use crate::Network;

    #[test]
    fn a_card_that_is_not_there_is_named() {
        let nodes = vec![Card { number: 4, card: "no-such-card".into() }];
        let node = IoNode { nodes, memory: 64 << 20, network: Network::default() };
        let error = node.run(Config::new("/bin/true")).expect_err("no card").to_string();
        assert!(error.contains("no-such-card of node 4"), "{error}");
    }
}
