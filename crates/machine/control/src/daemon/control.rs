// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control system of a machine: its database, the keepers of its partitions, and the listeners to changes of both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use colony_model::{Block, Machine, Partition as ModelPartition, PsetSize};
use nix::sys::eventfd::EventFd;
use tokio::sync::broadcast;

use super::unresponsive::UnresponsivePartitions;
use crate::ControlError;
use crate::api::{Event, Job, JobState, MACHINE_FAILED, NodeState, PartitionState, Severity, now};
use crate::store::{Change, NewEvent, Row, Store};
use colony_control_api::folder::UP;

/// Events that a slow listener may miss before it is told so.
const BACKLOG: usize = 4096;

/// Something that listeners are told.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Told {
    Ras(Event),
    Partition { name: String, state: PartitionState },
    Job { id: u64, state: JobState },
    Nodes { partition: String, nodes: BTreeMap<NodeState, Vec<u32>> },
}

/// The control system of a machine.
#[derive(Debug)]
pub(crate) struct Control {
    folder: PathBuf,
    store: Mutex<Store>,
    /// The bells of the keepers, by partition.
    pub(super) keepers: Mutex<BTreeMap<String, Arc<EventFd>>>,
    /// Boots of each partition since the last that succeeded.
    pub(super) boots: Mutex<BTreeMap<String, u32>>,
    pub(super) unresponsive: UnresponsivePartitions,
    /// Held while a partition is started or removed: two requests do not start it twice.
    pub(super) changing: Mutex<()>,
    told: broadcast::Sender<Told>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that the model of the machine refuses.
pub(super) fn wrong(error: impl ToString) -> ControlError {
    ControlError::Wrong(error.to_string())
}

impl Control {
    /// The machine of a folder.
    pub(super) fn open(folder: PathBuf) -> Result<Arc<Self>, ControlError> {
        let store = Store::open(&folder.join("machine.db"))?;
        Ok(Arc::new(Self {
            folder,
            store: Mutex::new(store),
            keepers: Mutex::default(),
            boots: Mutex::default(),
            unresponsive: UnresponsivePartitions::default(),
            changing: Mutex::default(),
            told: broadcast::channel(BACKLOG).0,
        }))
    }

    /// Notes for clients whether a daemon should run.
    pub(super) fn note_up(&self, is_up: bool) -> Result<(), ControlError> {
        let path = self.folder.join(UP);
        let done = if is_up { std::fs::write(&path, []) } else { std::fs::remove_file(&path) };
        match done {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ControlError::io(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Told> {
        self.told.subscribe()
    }

    pub(super) fn socket(&self, partition: &str) -> PathBuf {
        self.folder.join("partitions").join(partition).join("socket")
    }

    /// Returns `true` if somebody is told what changes.
    pub(super) fn has_listeners(&self) -> bool {
        self.told.receiver_count() > 0
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Tells all who listen. Without listeners, nobody is told.
    pub(super) fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }

    /// Stores an event that is news of a partition, with their number.
    pub(super) fn take_event(&self, news: (&str, u64), new: NewEvent) -> Result<(), ControlError> {
        let events = self.store().take_event(news, new)?;
        self.tell_events(events);
        Ok(())
    }

    pub(super) fn tell_events(&self, events: Vec<Event>) {
        events.into_iter().for_each(|event| self.tell(Told::Ras(event)));
    }

    /// Stores an event of the daemon, as far as the database works.
    pub(super) fn report(
        &self,
        severity: Severity,
        location: &str,
        code: &str,
        message: String,
        job: Option<u64>,
    ) {
        let (location, code) = (location.to_owned(), code.to_owned());
        let new = NewEvent { time: now(), severity, location, code, message, job };
        let events = self.store().add_event(new).unwrap_or_default();
        self.tell_events(events);
    }

    pub(super) fn job_changed(&self, id: u64) {
        let job = self.store().job(id);
        if let Ok(Some(Job { state, .. })) = job {
            self.tell(Told::Job { id, state });
        }
    }

    pub(super) fn end_job(&self, id: u64, code: i32, error: Option<&str>) -> Result<(), ControlError> {
        let forgotten = self.store().end_job(id, code, error)?;
        self.job_changed(id);
        forgotten.into_iter().for_each(|id| self.remove_outputs(id));
        self.count_output(id)
    }

    pub(super) fn row(&self, name: &str) -> Result<Row, ControlError> {
        let row = self.store().partition(name)?;
        row.ok_or_else(|| {
            ControlError::Unknown(format!("there is no partition {name}: `colony machine status` lists them"))
        })
    }

    pub(super) fn model_machine(&self) -> Result<Machine, ControlError> {
        let shape = self.store().machine()?;
        let shape = shape.ok_or_else(|| {
            ControlError::Conflict("no machine is set up: `colony machine up` does that".to_owned())
        })?;
        Machine::new(shape).map_err(wrong)
    }

    pub(super) fn model(&self, row: &Row) -> Result<ModelPartition, ControlError> {
        let machine = self.model_machine()?;
        let block = Block::new(machine, row.origin, row.shape).map_err(wrong)?;
        let pset = PsetSize::new(row.node.pset).map_err(wrong)?;
        ModelPartition::new(machine, &row.name, block, pset).map_err(wrong)
    }

    /// The location of a node, or of a partition.
    pub(super) fn location(&self, partition: &str, node: Option<u32>) -> Result<String, ControlError> {
        let Some(node) = node else { return Ok(partition.to_owned()) };
        Ok(self.model(&self.row(partition)?)?.location(node).to_string())
    }

    /// A partition says that its state has changed.
    pub(super) fn partition_changed(&self, name: &str, change: &Change) -> Result<(), ControlError> {
        {
            let mut store = self.store();
            // one that is being switched off stays so, whatever its nodes say
            if store.partition(name)?.is_none_or(|row| row.state == PartitionState::Freeing) {
                return Ok(());
            }
            store.set_partition(name, change, true)?;
        }
        match change.state {
            PartitionState::Ready => drop(lock(&self.boots).remove(name)),
            PartitionState::Failed => {
                let why = change.error.as_deref().unwrap_or("its nodes do not boot");
                self.fail_queue(name, MACHINE_FAILED, why)?;
            }
            _ => {}
        }
        self.tell(Told::Partition { name: name.to_owned(), state: change.state });
        Ok(())
    }

    /// Ends the jobs that wait for a partition.
    pub(super) fn fail_queue(&self, name: &str, code: i32, why: &str) -> Result<(), ControlError> {
        let waiting = self.store().queued(name)?;
        for job in waiting {
            self.end_job(job.id, code, Some(&format!("partition {name} takes no jobs: {why}")))?;
        }
        Ok(())
    }

    /// Tells the keeper of a partition that there is something to do.
    pub(super) fn ring(&self, name: &str) {
        if let Some(bell) = lock(&self.keepers).get(name) {
            // a bell that cannot be counted up has been rung
            let _ = bell.write(1);
        }
    }
}
