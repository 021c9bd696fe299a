// SPDX-License-Identifier: MIT OR Apache-2.0
//! `LBDatafile` of DARMA/vt: one JSON file a rank, with the loads of its tasks in each phase and their messages
//! (<https://docs.vt.darma-project.org>, "LB data files").

use std::collections::{HashMap, HashSet};
use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::number::{Bytes, Real, Whole, parse};
use super::{FileError, Read};
use crate::database::{Database, Edge, Object};
use crate::limits::MAX_PES;

/// Type of the files.
pub const TYPE: &str = "LBDatafile";

#[derive(Deserialize)]
#[serde(expecting = "a file of vt: an object with `phases`")]
struct Document<'a> {
    #[serde(borrow)]
    phases: Vec<&'a RawValue>,
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "the metadata of a file: an object")]
struct Metadata {
    rank: Option<Whole>,
    shared_node: Option<SharedNode>,
    phases: Option<PhaseList>,
}

/// The machine of a rank. Its `size` is that of the whole job if that runs on one machine.
#[derive(Deserialize)]
#[serde(expecting = "the node of a rank: an object")]
struct SharedNode {
    size: Option<Whole>,
    num_nodes: Option<Whole>,
}

#[derive(Deserialize)]
#[serde(expecting = "the list of phases: an object")]
struct PhaseList {
    identical_to_previous: Option<Numbers>,
}

/// Numbers of phases, one by one and as ranges with their last.
#[derive(Deserialize)]
#[serde(expecting = "an object with `list` and `range`")]
struct Numbers {
    #[serde(default)]
    list: Vec<Whole>,
    #[serde(default)]
    range: Vec<(Whole, Whole)>,
}

impl Numbers {
    /// True if every number from `first` to `last` is listed. Ranges are not counted through: they have no upper bound.
    fn contain_all(&self, first: u64, last: u64) -> bool {
        let mut ranges: Vec<(u64, u64)> = self.list.iter().map(|n| (n.0, n.0)).collect();
        ranges.extend(self.range.iter().map(|(first, last)| (first.0, last.0)));
        ranges.sort_unstable();
        let mut next = first;
        for (begin, end) in ranges.into_iter().filter(|(_, end)| *end >= first) {
            if begin > next {
                return false;
            }
            if end >= last {
                return true;
            }
            next = next.max(end + 1);
        }
        false
    }

    fn last(&self) -> Option<u64> {
        let ranges = self.range.iter().filter(|(first, last)| first.0 <= last.0);
        self.list.iter().chain(ranges.map(|r| &r.1)).map(|n| n.0).max()
    }
}

#[derive(Deserialize)]
#[serde(expecting = "a phase: an object with `id`")]
struct PhaseId {
    id: Whole,
}

#[derive(Deserialize)]
#[serde(expecting = "a phase: an object with `tasks`")]
struct Phase {
    tasks: Vec<Task>,
    #[serde(default)]
    communications: Vec<Communication>,
}

#[derive(Deserialize)]
#[serde(expecting = "a task: an object")]
struct Task {
    entity: Entity,
    node: Whole,
    resource: String,
    time: Real,
    user_defined: Option<UserDefined>,
}

/// The bytes of a task's state: vt has no field for them, programs that write them use this one.
#[derive(Deserialize)]
#[serde(expecting = "an object with values of the program")]
struct UserDefined {
    task_serialized_bytes: Option<Bytes>,
}

/// The field of [`UserDefined`].
const STATE_BYTES: &str = "task_serialized_bytes";

#[derive(Deserialize)]
#[serde(expecting = "a communication: an object")]
struct Communication {
    from: Entity,
    to: Entity,
    bytes: Bytes,
    messages: Whole,
}

/// An object or a node. vt names objects by an encoded `id`, or by `seq_id` and `home`.
#[derive(Deserialize)]
#[serde(expecting = "an entity: an object with `id`, or `seq_id` and `home`")]
struct Entity {
    id: Option<Whole>,
    seq_id: Option<Whole>,
    home: Option<Whole>,
    r#type: String,
    migratable: Option<bool>,
}

impl Entity {
    /// A number of its own for each object.
    fn key(&self) -> Result<u64, FileError> {
        let wrong = |text: String| Err(FileError::Content(text));
        match (self.id, self.seq_id) {
            (Some(id), _) => Ok(id.0),
            (None, Some(Whole(seq_id))) => {
                let Some(Whole(home)) = self.home else {
                    return wrong(format!("the entity with seq_id {seq_id} has no `home`"));
                };
                if seq_id >> 38 != 0 || home >= MAX_PES.into() {
                    return wrong(format!("an entity's seq_id {seq_id} or home {home} is too large"));
                }
                // as in vt's own encoding, an object that may not move is counted on its own
                Ok(home << 39 | seq_id << 1 | u64::from(self.migratable.unwrap_or(true)))
            }
            (None, None) => {
                wrong("an entity has neither `id` nor `seq_id`; vt writes one of them".to_owned())
            }
        }
    }
}

/// Files of many ranks, read one after another.
#[derive(Debug)]
pub(super) struct Ranks {
    wanted: Option<u64>,
    /// Tasks, and the bytes of their states if the file has them.
    objects: Vec<(Object, Option<u64>)>,
    numbers: HashMap<u64, u32>,
    edges: Vec<(u64, u64, u64, u64)>,
    skipped_edges: u64,
    files: u64,
    /// Ranks that the metadata of files name.
    ranks: HashSet<u64>,
    /// The last PE that a task or the metadata of a file names: a PE without tasks is a PE.
    last_pe: u64,
}

impl Ranks {
    pub(super) fn new(wanted: Option<u64>) -> Self {
        let (objects, edges) = (Vec::new(), Vec::new());
        let (numbers, ranks) = (HashMap::new(), HashSet::new());
        Self { wanted, objects, numbers, edges, skipped_edges: 0, files: 0, ranks, last_pe: 0 }
    }

    /// Adds a rank's file.
    pub(super) fn add(&mut self, content: &[u8]) -> Result<(), FileError> {
        let document: Document<'_> = parse(content, "")?;
        let metadata = document.metadata.unwrap_or_default();
        self.add_rank(metadata.rank)?;
        self.add_node(metadata.shared_node)?;
        let ids: Vec<u64> = (0..)
            .zip(&document.phases)
            .map(|(i, p): (usize, _)| {
                parse::<PhaseId>(p.get().as_bytes(), &format!("phases[{i}]")).map(|p| p.id.0)
            })
            .collect::<Result<_, _>>()?;
        let identical = metadata.phases.and_then(|p| p.identical_to_previous);
        let last = ids.iter().copied().chain(identical.as_ref().and_then(Numbers::last)).max();
        // the first file decides what the last phase is
        let Some(wanted) = self.wanted.or(last) else {
            return Err(FileError::Content("the file has no phases".to_owned()));
        };
        self.wanted = Some(wanted);
        let Some(at) = place_of_phase(wanted, &ids, identical.as_ref()) else {
            let there: Vec<String> = ids.iter().take(20).map(ToString::to_string).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return Err(FileError::Phase { wanted, there });
        };
        let phase: Phase = parse(document.phases[at].get().as_bytes(), &format!("phases[{at}]"))?;
        for task in phase.tasks {
            self.add_task(&task)?;
        }
        for c in phase.communications {
            if c.from.r#type != "object" || c.to.r#type != "object" {
                self.skipped_edges += 1;
                continue;
            }
            self.edges.push((c.from.key()?, c.to.key()?, c.bytes.0, c.messages.0));
        }
        Ok(())
    }

    /// Counts a file, and the rank that it is of if it says so.
    fn add_rank(&mut self, rank: Option<Whole>) -> Result<(), FileError> {
        self.files += 1;
        let Some(Whole(rank)) = rank else { return Ok(()) };
        if rank >= MAX_PES.into() {
            return Err(FileError::Content(format!(
                "metadata.rank is {rank}; at most {MAX_PES} ranks are possible"
            )));
        }
        if !self.ranks.insert(rank) {
            return Err(FileError::Content(format!(
                "rank {rank} is there twice: was a rank's file given twice?"
            )));
        }
        self.last_pe = self.last_pe.max(rank);
        Ok(())
    }

    /// Counts the ranks of a job on one machine.
    fn add_node(&mut self, node: Option<SharedNode>) -> Result<(), FileError> {
        let Some(SharedNode { size: Some(Whole(size)), num_nodes: Some(Whole(1)) }) = node else {
            return Ok(());
        };
        if size > MAX_PES.into() {
            return Err(FileError::Content(format!(
                "metadata.shared_node.size is {size}; at most {MAX_PES} ranks are possible"
            )));
        }
        self.last_pe = self.last_pe.max(size.saturating_sub(1));
        Ok(())
    }

    fn add_task(&mut self, task: &Task) -> Result<(), FileError> {
        let id = task.entity.key()?;
        if task.resource != "cpu" {
            let resource: String = task.resource.chars().take(60).collect();
            return Err(FileError::Content(format!(
                "task {id} is of resource `{resource}`; only `cpu` is known"
            )));
        }
        let Whole(node) = task.node;
        if node >= MAX_PES.into() {
            return Err(FileError::Content(format!(
                "task {id} is on node {node}; at most {MAX_PES} are possible"
            )));
        }
        if self.numbers.insert(id, self.objects.len() as u32).is_some() {
            return Err(FileError::Content(format!(
                "task {id} is there twice: was a rank's file given twice?"
            )));
        }
        self.last_pe = self.last_pe.max(node);
        let bytes = task.user_defined.as_ref().and_then(|u| u.task_serialized_bytes).map(|b| b.0);
        let object = Object {
            id,
            pe: node as u32,
            load_s: task.time.0,
            bytes: bytes.unwrap_or(0),
            migratable: task.entity.migratable.unwrap_or(false),
        };
        self.objects.push((object, bytes));
        Ok(())
    }

    /// The database of all files.
    pub(super) fn finish(self) -> Result<Read, FileError> {
        // files without a rank in their metadata are ranks all the same
        let pes = self.files.max(self.last_pe + 1);
        let missing_ranks = self.missing_ranks(pes);
        let mut database = Database::of_equal_pes(u32::try_from(pes).unwrap_or(u32::MAX))?;
        database.reserve(self.objects.len(), self.edges.len());
        for (object, bytes) in self.objects {
            let number = database.push_object(object)?;
            if bytes.is_none() {
                database.forget_bytes(number)?;
            }
        }
        let mut skipped_edges = self.skipped_edges;
        for (from, to, bytes, messages) in self.edges {
            match (self.numbers.get(&from), self.numbers.get(&to)) {
                (Some(&from), Some(&to)) => database.push_edge(Edge { from, to, bytes, messages })?,
                _ => skipped_edges += 1,
            }
        }
        Ok(Read { database, skipped_edges, missing_ranks })
    }

    /// The ranks of which there is no file, if every file names its rank.
    fn missing_ranks(&self, pes: u64) -> Vec<u32> {
        match self.files == self.ranks.len() as u64 {
            true => (0..pes)
                .filter(|rank| !self.ranks.contains(rank))
                .filter_map(|rank| rank.try_into().ok())
                .collect(),
            false => Vec::new(),
        }
    }
}

/// The place of a phase among those of a file. vt writes no phase that is identical to the one before, and lists it in
/// the metadata.
fn place_of_phase(wanted: u64, ids: &[u64], identical: Option<&Numbers>) -> Option<usize> {
    if let Some(at) = ids.iter().position(|&id| id == wanted) {
        return Some(at);
    }
    let (at, &written) = ids.iter().enumerate().filter(|(_, id)| **id < wanted).max_by_key(|(_, id)| **id)?;
    // a phase in between that is not listed was skipped: then nothing tells the loads
    identical?.contain_all(written + 1, wanted).then_some(at)
}

#[derive(Serialize)]
struct TaskOut {
    entity: EntityOut,
    node: u32,
    resource: &'static str,
    subphases: [SubphaseOut; 1],
    time: f64,
    user_defined: HashMap<&'static str, u64>,
}

#[derive(Clone, Copy, Serialize)]
struct SubphaseOut {
    id: u32,
    time: f64,
}

#[derive(Clone, Copy, Serialize)]
struct EntityOut {
    collection_id: u32,
    home: u32,
    id: u64,
    migratable: bool,
    r#type: &'static str,
}

#[derive(Serialize)]
struct CommunicationOut {
    r#type: &'static str,
    from: EntityOut,
    to: EntityOut,
    bytes: f64,
    messages: u64,
}

/// Collection of all objects; vt asks for one.
const COLLECTION: u32 = 7;

/// Writes the file of one rank, with one phase: the tasks that `placement` puts there, and the messages that they send.
///
/// # Errors
/// Errors of the writer.
///
/// # Panics
/// The placement is not of this database; see [`Database::check_placement`].
pub fn write_rank(
    database: &Database,
    placement: &[u32],
    rank: u32,
    mut to: impl Write,
) -> std::io::Result<()> {
    let entity = |number: usize| {
        let Object { id, pe: home, migratable, .. } = database.object(number);
        EntityOut { collection_id: COLLECTION, home, id, migratable, r#type: "object" }
    };
    write!(to, "{{\"type\":\"{TYPE}\",\"metadata\":{{\"type\":\"{TYPE}\",\"rank\":{rank}}},")?;
    write!(to, "\"phases\":[{{\"id\":0,\"tasks\":[")?;
    let mut comma = "";
    for number in (0..database.objects()).filter(|&n| placement[n] == rank) {
        let time = database.object(number).load_s;
        let task = TaskOut {
            entity: entity(number),
            node: rank,
            resource: "cpu",
            subphases: [SubphaseOut { id: 0, time }],
            time,
            user_defined: database
                .known_bytes(number)
                .map(|bytes| (STATE_BYTES, bytes))
                .into_iter()
                .collect(),
        };
        writeln!(to, "{comma}")?;
        serde_json::to_writer(&mut to, &task)?;
        comma = ",";
    }
    write!(to, "],\"communications\":[")?;
    comma = "";
    for e in database.edges().iter().filter(|e| placement[e.from as usize] == rank) {
        let (from, target) = (entity(e.from as usize), entity(e.to as usize));
        let (bytes, messages) = (e.bytes as f64, e.messages);
        writeln!(to, "{comma}")?;
        serde_json::to_writer(
            &mut to,
            &CommunicationOut { r#type: "SendRecv", from, to: target, bytes, messages },
        )?;
        comma = ",";
    }
    writeln!(to, "]}}]}}")
}
