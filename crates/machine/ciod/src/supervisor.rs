// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon: links to the nodes, and workers for each job. `ciod serve` and partitions of virtual nodes go through it
//! alike.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::{Config, Streams};
use crate::control::{self, NodeSetup, Setup};
use crate::given::Given;
use crate::job::Limits;
use crate::node::{self, NodeLink, NodeState};
use crate::part::{self, Part, Seat, Turns};
use crate::proxy::{Network, Proxy};
use crate::{CiodError, IoLink, Job, JobError, JobSpec, Place, io_node, users};

/// The daemon of an I/O node.
///
/// It never maps a window: what could go wrong with a node goes wrong in a job's worker, which is the user.
#[derive(Debug)]
pub struct Ciod {
    config: Config,
    nodes: Mutex<BTreeMap<u32, NodeLink>>,
    given: Mutex<Given>,
    /// The I/O nodes that are machines of their own, by number.
    io_nodes: Mutex<BTreeMap<u32, IoLink>>,
}

impl Ciod {
    /// A daemon without nodes.
    ///
    /// # Errors
    /// If the worker's program is not there.
    pub fn new(config: Config) -> Result<Self, CiodError> {
        std::fs::metadata(&config.worker)
            .map_err(CiodError::system(format!("the worker's program {}", config.worker.display())))?;
        let (nodes, given, io_nodes) = Default::default();
        Ok(Self { config, nodes, given, io_nodes })
    }

    /// Attaches a node: makes the link with it, a window of this many bytes (a power of two, 16 MiB … 64 GiB) and bells. A
    /// node that was attached before is started anew and gets a new link.
    ///
    /// # Errors
    /// [`CiodError`], above all if the node is in a job.
    pub fn attach(&self, number: u32, window: u64) -> Result<NodeLink, CiodError> {
        self.attach_with_room(number, window, window)
    }

    /// As [`Ciod::attach`], with so much of the window as memory of processes. They can reserve the addresses behind it,
    /// which take memory of this machine where something is written.
    ///
    /// # Errors
    /// As [`Ciod::attach`].
    pub fn attach_with_room(&self, number: u32, memory: u64, window: u64) -> Result<NodeLink, CiodError> {
        let mut nodes = self.lock();
        if nodes.get(&number).is_some_and(|old| old.state() == NodeState::Busy) {
            return Err(CiodError::NodeBusy(number));
        }
        let link = NodeLink::new(number, memory, window, self.config.node_spin)?;
        nodes.insert(number, link.clone());
        Ok(link)
    }

    /// The links of the attached nodes, by number.
    pub fn nodes(&self) -> Vec<NodeLink> {
        self.lock().values().cloned().collect()
    }

    /// The link of an attached node.
    pub fn node(&self, number: u32) -> Option<NodeLink> {
        self.lock().get(&number).cloned()
    }

    /// Gives an attached node its personality, which it keeps if it is attached again. Jobs are told of it from the next
    /// launch on.
    ///
    /// # Errors
    /// [`CiodError::NoNode`], and [`CiodError::NotCompute`] for the personality of an I/O node.
    pub fn give(&self, number: u32, personality: &colony_model::Personality) -> Result<(), CiodError> {
        self.node(number).ok_or(CiodError::NoNode(number))?;
        self.given().give(number, personality)
    }

    /// From now on, this Linux machine is the I/O node of this number, and serves these nodes: jobs on them have their workers
    /// there.
    pub fn set_io_node(&self, number: u32, link: IoLink) {
        self.io_nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, link);
    }

    fn io_node(&self, number: u32) -> Option<IoLink> {
        self.io_nodes.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, NodeLink>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the proxy of a node that shares no memory with this machine: a process that speaks with it by frames and
    /// plays it towards the workers. It has a user of its own without rights, and ends with the value that is returned.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn proxy(&self, node: &NodeLink, network: Network) -> io::Result<Proxy> {
        Proxy::start(&self.config.worker, &self.config.proxy_args, node, network)
    }

    /// As [`Ciod::proxy`], for a node whose frames are the datagrams of this socket.
    pub(crate) fn proxy_on(&self, node: &NodeLink, network: Network, socket: OwnedFd) -> io::Result<Proxy> {
        Proxy::start_on(&self.config.worker, &self.config.proxy_args, node, network, socket)
    }

    /// Starts a job on the nodes of these numbers: makes a worker, which waits for the nodes to ask for work, for each
    /// pset. Nodes that were given personalities ([`Ciod::give`]) are where these say; others are in a row
    /// ([`JobSpec::torus`], [`JobSpec::pset`]). [`Job::wait`] tells what goes wrong from then on.
    ///
    /// # Errors
    /// [`JobError`] for what can be seen at once; then the nodes are free as before. [`JobError::Spec`] if nodes with
    /// personalities are not those of one partition in order, or the job contradicts their personalities.
    pub fn launch(&self, mut spec: JobSpec, nodes: &[u32], streams: Streams) -> Result<Job, JobError> {
        let places = self.given().places(&mut spec, nodes)?;
        self.launch_at(spec, &places, streams)
    }

    /// As [`Ciod::launch`], on nodes whose places the owner of the partition gives: rank 0 runs on the first. Each pset
    /// in which a process runs has a worker. Programs start when the nodes of all of these psets are ready.
    ///
    /// # Errors
    /// As of [`Ciod::launch`].
    pub fn launch_at(&self, spec: JobSpec, places: &[Place], streams: Streams) -> Result<Job, JobError> {
        self.launch_marked(spec, places, streams, None)
    }

    /// As [`Ciod::launch_at`]. `mark` is a file that stands for a job whose programs have not begun: it is removed before the
    /// first of them starts, whatever is killed. If it cannot be removed, the job ends with an error and none starts.
    ///
    /// # Errors
    /// As of [`Ciod::launch`].
    pub fn launch_marked(
        &self,
        spec: JobSpec,
        places: &[Place],
        streams: Streams,
        mark: Option<PathBuf>,
    ) -> Result<Job, JobError> {
        let count = u32::try_from(places.len()).map_err(|_| JobError::Spec("too many nodes".into()))?;
        let size = spec.size(count)?;
        let identity = users::identity(&spec)?;
        let seats = part::seats(places, spec.mode.processes(), size);
        if seats.keys().any(|&number| self.io_node(number).is_some()) {
            io_node::check(&spec)?;
        }
        let attached = self.lock();
        let link = |seat: &Seat| {
            let number = places[seat.at].node;
            attached.get(&number).cloned().ok_or(JobError::NoNode(number))
        };
        let links = seats.values().flatten().map(link).collect::<Result<Vec<_>, _>>()?;
        let taken = Taken::take(&links)?;
        drop(attached);
        let limits = Limits {
            ready: self.config.ready,
            timeout: spec.timeout()?,
            // to end the processes, to ask for more work, and something for a machine that is busy
            kill: self.config.grace.saturating_mul(3).saturating_add(control::DRAIN),
        };
        let go_on = spec.go_on;
        let whole = Setup {
            identity,
            size,
            torus: spec.process_torus(count, size),
            shares_output: seats.len() > 1,
            nodes: Vec::new(),
            exports: self.config.exports.clone(),
            spin_ns: self.config.spin.map(|d| d.as_nanos().try_into().unwrap_or(u64::MAX)),
            ready_ms: self.config.ready.as_millis().try_into().unwrap_or(u64::MAX),
            grace_ms: self.config.grace.as_millis().try_into().unwrap_or(u64::MAX),
            spec,
        };
        let mut parts = Vec::new();
        let job = self.start_workers(&whole, (places, seats, &links), &streams, &mut parts).and_then(|()| {
            let alarm = node::bell().map_err(|e| not_started(&e.into()))?;
            Job::new(std::mem::take(&mut parts), alarm, (size, go_on, mark), limits)
                .map_err(|e| not_started(&e))
        });
        match job {
            Ok(job) => {
                taken.keep();
                Ok(job)
            }
            Err(e) => {
                parts.into_iter().for_each(|(part, child)| abandon(&part, child));
                Err(e)
            }
        }
    }

    fn start_workers(
        &self,
        whole: &Setup,
        (places, seats, mut links): (&[Place], BTreeMap<u32, Vec<Seat>>, &[NodeLink]),
        streams: &Streams,
        parts: &mut Vec<(Part, Child)>,
    ) -> Result<(), JobError> {
        let turns = whole.shares_output.then(Turns::new).transpose().map_err(|e| not_started(&e))?;
        for (pset, seats) in seats {
            let (own, rest) = links.split_at(seats.len());
            links = rest;
            let mut setup = whole.clone();
            for (link, seat) in own.iter().zip(seats) {
                let place = &places[seat.at];
                if let Some(record) = &place.record {
                    link.write_record(record).map_err(|e| not_started(&e))?;
                }
                let (number, window, memory) = (link.number(), link.window(), link.process_memory());
                let personality = place.personality;
                setup.nodes.push(NodeSetup { number, window, memory, ranks: seat.ranks, personality });
            }
            let io_node = self.io_node(pset);
            let nodes = (pset, own.to_vec());
            let part = Part::start(&self.config, nodes, setup, streams, turns.as_ref(), io_node.as_ref());
            parts.push(part.map_err(|e| match io_node.and_then(|link| link.over()) {
                Some(why) if whole.shares_output => JobError::IoNodeFailed { pset, why },
                Some(why) => JobError::WorkerDied(why),
                None => not_started(&e),
            })?);
        }
        Ok(())
    }
}

/// Ends a worker whose job does not start: its nodes wait for the next.
fn abandon(part: &Part, child: Child) {
    let is_stuck = matches!(part::end(child), part::Ended::Stuck);
    part.hang_up();
    for node in &part.nodes {
        // it may have loaded programs
        if is_stuck || node.clear().is_err() {
            *node.lock() = NodeState::Lost;
        }
    }
}

/// Nodes that become free again unless they are kept.
struct Taken<'a>(&'a [NodeLink]);

impl<'a> Taken<'a> {
    fn take(nodes: &'a [NodeLink]) -> Result<Self, JobError> {
        for (n, node) in nodes.iter().enumerate() {
            let mut state = node.lock();
            let refused = match *state {
                NodeState::Free => {
                    *state = NodeState::Busy;
                    continue;
                }
                NodeState::Busy => JobError::NodeBusy(node.number()),
                NodeState::Lost => JobError::NodeLost(node.number()),
            };
            drop(state);
            drop(Self(&nodes[..n]));
            return Err(refused);
        }
        Ok(Self(nodes))
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for node in self.0 {
            let mut state = node.lock();
            // one whose worker cannot be ended stays lost
            if *state == NodeState::Busy {
                *state = NodeState::Free;
            }
        }
    }
}

/// The error of a job whose workers do not start.
fn not_started(error: &io::Error) -> JobError {
    JobError::System(format!("starting the job's workers: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_in_one_job_at_a_time() {
        let link = NodeLink::new(5, 16 << 20, 16 << 20, 0).expect("link");
        let two = [NodeLink::new(4, 16 << 20, 16 << 20, 0).expect("link"), link.clone()];
        let taken = Taken::take(std::slice::from_ref(&link)).expect("free");
        assert_eq!(Taken::take(&two).err(), Some(JobError::NodeBusy(5)));
        assert_eq!(two[0].state(), NodeState::Free, "given back");
        drop(taken);
        assert!(Taken::take(&two).is_ok());
    }
}
