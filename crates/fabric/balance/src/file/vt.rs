// SPDX-License-Identifier: MIT OR Apache-2.0
//! `LBDatafile` of DARMA/vt: one JSON file a rank, with the loads of its tasks in each phase and their messages
//! (<https://docs.vt.darma-project.org>, "LB data files").

use std::collections::HashMap;
use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{FileError, Read};
use crate::database::{Database, Edge, Object};
use crate::limits::MAX_PES;

/// Type of the files.
pub const TYPE: &str = "LBDatafile";

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    phases: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct PhaseId {
    id: u64,
}

#[derive(Deserialize)]
struct Phase {
    tasks: Vec<Task>,
    #[serde(default)]
    communications: Vec<Communication>,
}

#[derive(Deserialize)]
struct Task {
    entity: Entity,
    node: u64,
    resource: String,
    time: f64,
    #[serde(default)]
    user_defined: HashMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Communication {
    from: Entity,
    to: Entity,
    bytes: f64,
    messages: u64,
}

/// An object or a node. vt names objects by an encoded `id`, or by `seq_id` and `home`.
#[derive(Deserialize)]
struct Entity {
    id: Option<u64>,
    seq_id: Option<u64>,
    home: Option<u64>,
    r#type: String,
    migratable: Option<bool>,
}

impl Entity {
    /// A number of its own for each object.
    fn key(&self) -> Result<u64, FileError> {
        let wrong = |text: String| Err(FileError::Content(text));
        match (self.id, self.seq_id) {
            (Some(id), _) => Ok(id),
            (None, Some(seq_id)) => {
                let home = self.home.unwrap_or(0);
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

/// The bytes of a task's state: vt has no field for them, programs that write them use this one.
const STATE_BYTES: &str = "task_serialized_bytes";

/// Files of many ranks, read one after another.
#[derive(Debug)]
pub(super) struct Ranks {
    wanted: Option<u64>,
    objects: Vec<Object>,
    numbers: HashMap<u64, u32>,
    edges: Vec<(u64, u64, u64, u64)>,
    skipped_edges: u64,
    last_pe: u64,
}

impl Ranks {
    pub(super) fn new(wanted: Option<u64>) -> Self {
        let (objects, edges) = (Vec::new(), Vec::new());
        Self { wanted, objects, numbers: HashMap::new(), edges, skipped_edges: 0, last_pe: 0 }
    }

    /// Adds a rank's file.
    pub(super) fn add(&mut self, content: &[u8]) -> Result<(), FileError> {
        let document: Document<'_> = serde_json::from_slice(content)?;
        let ids: Vec<u64> = document
            .phases
            .iter()
            .map(|p| serde_json::from_str::<PhaseId>(p.get()).map(|p| p.id))
            .collect::<Result<_, _>>()?;
        // the first file decides what the last phase is
        let Some(wanted) = self.wanted.or(ids.iter().copied().max()) else {
            return Err(FileError::Content("the file has no phases".to_owned()));
        };
        self.wanted = Some(wanted);
        let Some(at) = ids.iter().position(|&id| id == wanted) else {
            let there: Vec<String> = ids.iter().take(20).map(ToString::to_string).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return Err(FileError::Phase { wanted, there });
        };
        let phase: Phase = serde_json::from_str(document.phases[at].get())?;
        for task in phase.tasks {
            self.add_task(&task)?;
        }
        for c in phase.communications {
            if c.from.r#type != "object" || c.to.r#type != "object" {
                self.skipped_edges += 1;
                continue;
            }
            if !(0.0..=2f64.powi(63)).contains(&c.bytes) {
                return Err(FileError::Content(format!("a communication has {} bytes", c.bytes)));
            }
            self.edges.push((c.from.key()?, c.to.key()?, c.bytes as u64, c.messages));
        }
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
        if task.node >= MAX_PES.into() {
            return Err(FileError::Content(format!(
                "task {id} is on node {}; at most {MAX_PES} are possible",
                task.node
            )));
        }
        if self.numbers.insert(id, self.objects.len() as u32).is_some() {
            return Err(FileError::Content(format!(
                "task {id} is there twice: was a rank's file given twice?"
            )));
        }
        self.last_pe = self.last_pe.max(task.node);
        self.objects.push(Object {
            id,
            pe: task.node as u32,
            load_s: task.time,
            bytes: task.user_defined.get(STATE_BYTES).and_then(serde_json::Value::as_u64).unwrap_or(0),
            migratable: task.entity.migratable.unwrap_or(false),
        });
        Ok(())
    }

    /// The database of all files.
    pub(super) fn finish(self) -> Result<Read, FileError> {
        let mut database = Database::of_equal_pes(self.last_pe as u32 + 1)?;
        database.reserve(self.objects.len(), self.edges.len());
        for object in self.objects {
            database.push_object(object)?;
        }
        let mut skipped_edges = self.skipped_edges;
        for (from, to, bytes, messages) in self.edges {
            match (self.numbers.get(&from), self.numbers.get(&to)) {
                (Some(&from), Some(&to)) => database.push_edge(Edge { from, to, bytes, messages })?,
                _ => skipped_edges += 1,
            }
        }
        Ok(Read { database, skipped_edges })
    }
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
        let Object { load_s: time, bytes, .. } = database.object(number);
        let task = TaskOut {
            entity: entity(number),
            node: rank,
            resource: "cpu",
            subphases: [SubphaseOut { id: 0, time }],
            time,
            user_defined: HashMap::from([(STATE_BYTES, bytes)]),
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
