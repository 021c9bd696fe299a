// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of users to the control system.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colony_ciod::Export;
use colony_model::{Block, FreeMap, Machine, NodeRef, Partition as ModelPartition, PsetSize, Request};

use super::control::{Control, lock, wrong};
use super::drains::shown;
use super::keeper::connect;
use super::peer::Peer;
use super::status::StatusAnswer;
use crate::ControlError;
use crate::api::{
    self, IoNodeKind, Job, JobRequest, JobState, MachineRequest, NodeRequest, NodeState, PartitionRequest,
    PartitionState,
};
use crate::service::machine_of;
use crate::service::protocol::{Answer, Ask, ask};
use crate::store::{Change, Row};

/// Bytes of the environment of a job at most.
const ENVIRONMENT: usize = 256 << 10;
/// Signals by which users end jobs: SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM. Such a job does not run again.
const ENDING: [i32; 5] = [1, 2, 3, 9, 15];
/// Longest wait for partitions to end.
const DOWN: Duration = Duration::from_secs(60);

impl Control {
    /// Sets up a machine, and boots a partition of all its nodes if that is asked for.
    pub(super) fn set_up(
        self: &Arc<Self>,
        peer: Peer,
        request: &MachineRequest,
    ) -> Result<api::Machine, ControlError> {
        peer.check_operator("set up a machine")?;
        let machine = Machine::new(request.shape).map_err(wrong)?;
        let allocation = self.accept(request.allocation.as_ref())?;
        if let Some(node) = &request.partition {
            // before anything is stored
            let block = Block::whole(machine);
            let pset = PsetSize::new(node.pset).map_err(wrong)?;
            ModelPartition::new(machine, &block.name(machine), block, pset).map_err(wrong)?;
            check_node(node)?;
            if let Some(own) = &allocation {
                own.check(machine.nodes(), node, 0).map_err(ControlError::Wrong)?;
            }
        }
        {
            let _changing = lock(&self.changing);
            let mut store = self.store();
            if store.partitions()?.iter().any(|row| row.owner.is_some()) {
                return Err(ControlError::Conflict(
                    "the machine is up: `colony machine down` ends it".to_owned(),
                ));
            }
            store.set_machine(request.shape, allocation.as_ref())?;
        }
        self.note_up(true)?;
        if let Some(nodes) = request.partition.clone() {
            let all = PartitionRequest { name: None, shape: request.shape, origin: Some([0; 3]), nodes };
            let name = self.add_partition(peer, &all)?.name;
            self.boot(peer, &name)?;
        }
        self.machine()
    }

    /// Makes a partition whose nodes are switched off.
    pub(super) fn add_partition(
        &self,
        peer: Peer,
        request: &PartitionRequest,
    ) -> Result<api::Partition, ControlError> {
        peer.check_operator("make a partition")?;
        check_node(&request.nodes)?;
        let _changing = lock(&self.changing);
        let machine = self.model_machine()?;
        let rows = self.store().partitions()?;
        let others = rows.iter().map(|row| self.model(row)).collect::<Result<Vec<_>, _>>()?;
        let block = match request.origin {
            Some(origin) => Block::new(machine, origin, request.shape).map_err(wrong)?,
            None => first_fit(machine, &others, request)?,
        };
        let name = request.name.clone().unwrap_or_else(|| block.name(machine));
        let pset = PsetSize::new(request.nodes.pset).map_err(wrong)?;
        let new = ModelPartition::new(machine, &name, block, pset).map_err(wrong)?;
        self.check_allocation(block.shape().nodes(), &request.nodes)?;
        new.check_beside(&others).map_err(|e| ControlError::Conflict(e.to_string()))?;
        self.store().add_partition(&Row {
            name: name.clone(),
            shape: block.shape(),
            origin: block.origin(),
            node: request.nodes.clone(),
            state: PartitionState::Free,
            error: None,
            boot_s: None,
            owner: None,
            news: 0,
        })?;
        self.partition(&name)
    }

    /// Removes a partition whose nodes are switched off.
    pub(super) fn remove_partition(&self, peer: Peer, name: &str) -> Result<(), ControlError> {
        peer.check_operator("remove a partition")?;
        let _changing = lock(&self.changing);
        if self.row(name)?.owner.is_some() {
            let text = format!("partition {name} is booted: `colony partition free {name}` first");
            return Err(ControlError::Conflict(text));
        }
        self.store().remove_partition(name)
    }

    /// Boots the nodes of a partition.
    pub(super) fn boot(self: &Arc<Self>, peer: Peer, name: &str) -> Result<(), ControlError> {
        peer.check_operator("boot a partition")?;
        let _changing = lock(&self.changing);
        let row = self.row(name)?;
        if row.owner.is_some() {
            return Err(ControlError::Conflict(format!("partition {name} is booted already")));
        }
        self.start(&row)
    }

    /// Begins to switch a partition's nodes off.
    pub(super) fn free(&self, peer: Peer, name: &str) -> Result<(), ControlError> {
        peer.check_operator("switch a partition off")?;
        let _changing = lock(&self.changing);
        let row = self.row(name)?;
        let state = if row.owner.is_some() { PartitionState::Freeing } else { PartitionState::Free };
        self.store().set_partition(name, &Change { state, error: None, boot_s: None }, true)?;
        self.fail_queue(name, 1, "it is being switched off")?;
        self.ring(name);
        Ok(())
    }

    /// Switches all partitions off, and waits for their end.
    pub(super) fn down(&self, peer: Peer) -> Result<(), ControlError> {
        peer.check_operator("switch the machine off")?;
        self.switch_off()
    }

    /// As [`Control::down`], at the daemon's own wish.
    pub(super) fn switch_off(&self) -> Result<(), ControlError> {
        let rows = self.store().partitions()?;
        for row in &rows {
            self.free(Peer::own(), &row.name)?;
        }
        let began = Instant::now();
        loop {
            let rows = self.store().partitions()?;
            let Some(running) = rows.iter().find(|row| row.owner.is_some()) else {
                return self.set_off();
            };
            if began.elapsed() > DOWN {
                let text = format!("partition {} has not ended within {} s", running.name, DOWN.as_secs());
                return Err(ControlError::Conflict(text));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// All nodes are off.
    pub(super) fn set_off(&self) -> Result<(), ControlError> {
        self.store().forget_allocation()?;
        self.note_up(false)
    }

    /// The states of a partition's nodes, as its process tells them.
    pub(super) fn node_states(&self, row: &Row) -> Vec<NodeState> {
        self.query_status(row).nodes(row.shape.nodes())
    }

    /// The states of all nodes, by partition.
    pub(super) fn all_node_states(&self) -> Result<BTreeMap<String, Vec<NodeState>>, ControlError> {
        let rows = self.store().partitions()?;
        let shown_states = |row: Row| {
            let states = shown(&self.node_states(&row), &self.drained(&row)?);
            Ok((row.name, states))
        };
        rows.into_iter().map(shown_states).collect()
    }

    /// The machine, its partitions and the jobs that wait or run.
    pub(super) fn machine(&self) -> Result<api::Machine, ControlError> {
        let shape = self.model_machine()?.shape();
        let rows = self.store().partitions()?;
        let partitions = rows.into_iter().map(|row| self.described(row)).collect();
        let (jobs, more_jobs) = self.store().open_jobs()?;
        let drains = self.store().drains()?;
        let allocation = self.store().allocation()?;
        let schema = "colony.machine/1".to_owned();
        Ok(api::Machine { schema, shape, partitions, jobs, more_jobs, drains, allocation })
    }

    pub(super) fn partition(&self, name: &str) -> Result<api::Partition, ControlError> {
        Ok(self.described(self.row(name)?))
    }

    fn described(&self, row: Row) -> api::Partition {
        let mut nodes = BTreeMap::new();
        let allowed = self.store().rights(&row.name).unwrap_or_default();
        let drained = self.drained(&row).unwrap_or_default();
        let answer = self.query_status(&row);
        let unresponsive = match &answer {
            StatusAnswer::Unresponsive(why) => Some(why.clone()),
            StatusAnswer::Off | StatusAnswer::Status(_) => None,
        };
        let states = answer.nodes(row.shape.nodes());
        let is_ready = row.state == PartitionState::Ready && unresponsive.is_none();
        let free = is_ready.then(|| self.free_nodes(&row, &states).ok()).flatten();
        // it is not stored: it follows from what is drained
        let is_degraded = is_ready && drained.iter().any(Option::is_some);
        let usable = is_degraded.then(|| self.usable_nodes(&row).ok()).flatten();
        for state in shown(&states, &drained) {
            *nodes.entry(state).or_default() += 1;
        }
        api::Partition {
            allowed,
            io_nodes: row.shape.nodes() / row.node.pset.max(1),
            name: row.name,
            shape: row.shape,
            origin: row.origin,
            node: row.node,
            state: match row.state {
                PartitionState::Ready | PartitionState::Booting if unresponsive.is_some() => {
                    PartitionState::Lost
                }
                _ if is_degraded => PartitionState::Degraded,
                state => state,
            },
            error: row.error.or(unresponsive),
            pid: row.owner.map(|owner| owner.tid.cast_unsigned()),
            boot_s: row.boot_s,
            nodes,
            free,
            usable,
        }
    }

    /// The nodes of a partition.
    pub(super) fn nodes(&self, name: &str) -> Result<Vec<api::Node>, ControlError> {
        let row = self.row(name)?;
        let model = self.model(&row)?;
        let drained = self.drained(&row)?;
        let states = shown(&self.node_states(&row), &drained);
        let node = |(number, (state, drained)): (u32, (NodeState, Option<String>))| {
            let location = model.location(number);
            let coords = model.machine().coords(location).map_err(wrong)?;
            let pset = model.psets().place(number).0;
            Ok(api::Node { number, location: location.to_string(), coords, pset, state, drained })
        };
        (0..).zip(states.into_iter().zip(drained)).map(node).collect()
    }

    /// A node of a partition and its personality.
    pub(super) fn node(&self, name: &str, number: u32) -> Result<api::NodeDetail, ControlError> {
        let row = self.row(name)?;
        let node = usize::try_from(number).ok().and_then(|at| self.nodes(name).ok()?.into_iter().nth(at));
        let node = node.ok_or_else(|| {
            let text = format!("partition {name} has no node {number}: it has {} nodes", row.shape.nodes());
            ControlError::Unknown(text)
        })?;
        let model = self.model(&row)?;
        let place = model.compute_personality(number, row.node.memory_mib.saturating_mul(1 << 20));
        let location = |node: NodeRef| match node {
            NodeRef::Compute(node) => model.location(node).to_string(),
            NodeRef::Io(pset) => model.io_location(pset).to_string(),
        };
        let personality = api::NodePersonality {
            memory_mib: row.node.memory_mib,
            torus: place.torus,
            torus_coords: place.torus.coords(number),
            rank_in_pset: model.psets().place(number).1,
            pset_size: place.pset_size,
            io_node: model.io_location(place.pset).to_string(),
            parent: place.route.parent.map(location),
            children: place.route.children.into_iter().flatten().map(location).collect(),
            depth: place.route.depth,
        };
        Ok(api::NodeDetail { node, personality })
    }

    /// Adds a job to the queue of its partition.
    pub(super) fn submit(&self, peer: Peer, mut request: JobRequest) -> Result<Job, ControlError> {
        let row = self.row(&request.partition)?;
        self.check_may_run(peer, &row.name)?;
        if !matches!(row.state, PartitionState::Ready | PartitionState::Booting) {
            let why = row.error.map(|error| format!(" ({error})")).unwrap_or_default();
            let text =
                format!("partition {0} is not booted{why}: `colony partition boot {0}` does that", row.name);
            return Err(ControlError::Conflict(text));
        }
        self.check_fits(&row, &request)?;
        self.check_in_time(request.timeout_s)?;
        check_files(&row.node, &request)?;
        check_environment(&request)?;
        request.user = peer.user_of_job(request.user)?;
        if request.sends_stdin && request.stdin.is_some() {
            return Err(wrong("standard input is a file or is sent: leave one out"));
        }
        if request.sends_stdin && request.requeue {
            return Err(wrong("a job whose standard input is sent cannot run again: name a file for it"));
        }
        if request.timeout_s.is_some_and(|seconds| Duration::try_from_secs_f64(seconds).is_err()) {
            return Err(ControlError::Wrong("the time limit is no number of seconds".to_owned()));
        }
        let id = self.store().add_job((peer.uid, &peer.name()), &request)?;
        self.job_changed(id);
        self.ring(&request.partition);
        self.job(id)
    }

    pub(super) fn job(&self, id: u64) -> Result<Job, ControlError> {
        let store = self.store();
        if let Some(job) = store.job(id)? {
            return Ok(job);
        }
        let what = match store.is_forgotten(id)? {
            true => format!(
                "job {id} ended long ago and is forgotten: `colony job list` lists those that are known"
            ),
            false => format!("there is no job {id}: `colony job list` lists them"),
        };
        Err(ControlError::Unknown(what))
    }

    /// A job, with what it waits for.
    pub(super) fn explained(&self, id: u64) -> Result<Job, ControlError> {
        let mut job = self.job(id)?;
        if job.state == JobState::Queued {
            // a partition that has just been removed says nothing
            job.waits = self.waits_for(&job).ok().flatten();
        }
        Ok(job)
    }

    /// Sends a signal to a job. One that waits in the queue ends.
    pub(super) fn signal(&self, peer: Peer, id: u64, signal: i32) -> Result<(), ControlError> {
        let job = self.job(id)?;
        let owner = self.store().owner_of(id)?;
        peer.check_owner(owner, id)?;
        if !(1..=64).contains(&signal) {
            return Err(ControlError::Wrong(format!("{signal} is no signal: 1 to 64 are")));
        }
        match job.state {
            JobState::Ended => Err(ControlError::Conflict(format!("job {id} has ended"))),
            JobState::Queued => self.end_job(id, 128 + signal, Some("it was ended before it began")),
            JobState::Starting | JobState::Running => {
                if ENDING.contains(&signal) {
                    self.store().note_cancelled(id)?;
                }
                let name = &job.request.partition;
                self.check_responsive(name)?;
                let service = |source| ControlError::Service { name: name.clone(), source };
                let mut lines = connect(&self.socket(name), None).map_err(service)?;
                match ask(&mut lines, &Ask::Signal { job: id, signal }).map_err(service)? {
                    Answer::Refused(why) => Err(ControlError::Conflict(why)),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The first free block of the shape that is asked for.
fn first_fit(
    machine: Machine,
    others: &[ModelPartition],
    request: &PartitionRequest,
) -> Result<Block, ControlError> {
    let blocks: Vec<Block> = others.iter().map(ModelPartition::block).collect();
    let free = FreeMap::without(machine, &blocks);
    let asked = Request::Shape(request.shape);
    free.check(asked).map_err(wrong)?;
    free.first_fit(asked).ok_or_else(|| {
        let largest = free.fragmentation().largest.map_or("none".to_owned(), |shape| shape.to_string());
        ControlError::Conflict(format!(
            "no {} nodes are free in one block: {} of {} nodes are free, the largest free block is {largest}; remove a \
             partition or take a smaller shape",
            request.shape,
            free.free(),
            machine.nodes(),
        ))
    })
}

/// Refuses files that the I/O nodes of this kind cannot have.
fn check_files(node: &NodeRequest, request: &JobRequest) -> Result<(), ControlError> {
    let refuse = |text: &str| Err(ControlError::Wrong(text.to_owned()));
    match node.io_nodes {
        IoNodeKind::Process if !request.copies.is_empty() => {
            refuse("nothing is copied into I/O nodes that are processes: they have the files of the host")
        }
        IoNodeKind::Process | IoNodeKind::Linux => Ok(()),
    }
}

/// Refuses an environment that is too large: the daemon keeps it, and each node gets it.
fn check_environment(request: &JobRequest) -> Result<(), ControlError> {
    let bytes: usize = request.environment.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if bytes <= ENVIRONMENT {
        return Ok(());
    }
    let most = ENVIRONMENT >> 10;
    Err(wrong(format!(
        "the environment of the job has {bytes} bytes, and may have {most} KiB: pass fewer variables, or a file"
    )))
}

fn check_node(node: &NodeRequest) -> Result<(), ControlError> {
    if node.io_nodes == IoNodeKind::Process && !node.io_exports.is_empty() {
        let why = "nothing is exported to I/O nodes that are processes: they have the files of the host";
        return Err(ControlError::Wrong(why.into()));
    }
    Export::check(&node.io_exports).map_err(wrong)?;
    let machine = machine_of(node);
    machine.check().and_then(|()| machine.check_pset(node.pset)).map_err(wrong)
}
