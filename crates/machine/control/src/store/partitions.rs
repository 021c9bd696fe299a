// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions in the database.

use colony_ciod::Export;
use colony_model::Shape;
use colony_node::task::TaskId;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension as _, Row as SqlRow, Transaction, params};

use super::{Store, parsed};
use crate::ControlError;
use crate::api::{NodeRequest, PartitionState, word};

/// A partition as the database has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) origin: [u32; 3],
    pub(crate) node: NodeRequest,
    pub(crate) state: PartitionState,
    pub(crate) error: Option<String>,
    pub(crate) boot_s: Option<f64>,
    /// The process that owns its nodes.
    pub(crate) owner: Option<TaskId>,
    /// Number of the last of its news that has been stored.
    pub(crate) news: u64,
}

/// A change of a partition's state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) state: PartitionState,
    pub(crate) error: Option<String>,
    pub(crate) boot_s: Option<f64>,
}

const COLUMNS: &str = "name, shape, x, y, z, pset, cpus, memory_mib, state, error, boot_s, pid, pid_start,
    news, io_nodes, io_exports";

fn row(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    let owner: (Option<i32>, Option<u64>) = (row.get(11)?, row.get(12)?);
    Ok(Row {
        name: row.get(0)?,
        shape: parsed(1, row.get(1)?)?,
        origin: [row.get(2)?, row.get(3)?, row.get(4)?],
        node: NodeRequest {
            pset: row.get(5)?,
            cpus: row.get(6)?,
            memory_mib: row.get(7)?,
            io_nodes: parsed(14, row.get(14)?)?,
            io_exports: exports(15, &row.get::<_, String>(15)?)?,
        },
        state: parsed(8, row.get(8)?)?,
        error: row.get(9)?,
        boot_s: row.get(10)?,
        owner: owner.0.zip(owner.1).map(|(tid, start_ticks)| TaskId { tid, start_ticks }),
        news: row.get(13)?,
    })
}

/// Exports in a column.
fn exports(column: usize, text: &str) -> rusqlite::Result<Vec<Export>> {
    let wrong =
        |e: serde_json::Error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, e.into());
    serde_json::from_str(text).map_err(wrong)
}

impl Store {
    /// All partitions, by name.
    pub(crate) fn partitions(&self) -> Result<Vec<Row>, ControlError> {
        self.read(|db| {
            let mut query = db.prepare(&format!("SELECT {COLUMNS} FROM partitions ORDER BY name"))?;
            query.query_map([], row)?.collect()
        })
    }

    pub(crate) fn partition(&self, name: &str) -> Result<Option<Row>, ControlError> {
        let text = format!("SELECT {COLUMNS} FROM partitions WHERE name = ?");
        self.read(|db| db.query_row(&text, [name], row).optional())
    }

    /// Adds a partition whose nodes are switched off.
    pub(crate) fn add_partition(&mut self, new: &Row) -> Result<(), ControlError> {
        let ([x, y, z], node) = (new.origin, &new.node);
        self.change(|all| {
            let shape = new.shape.to_string();
            let state = word(new.state);
            let NodeRequest { pset, cpus, memory_mib, io_nodes, io_exports } = node;
            let kind = word(*io_nodes);
            let exports = serde_json::to_string(io_exports)
                .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
            let values = params![new.name, shape, x, y, z, pset, cpus, memory_mib, state, kind, exports];
            let text =
                "INSERT INTO partitions (name, shape, x, y, z, pset, cpus, memory_mib, state, io_nodes, io_exports)
                        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
            all.execute(text, values).map(drop)
        })
    }

    /// Removes a partition.
    pub(crate) fn remove_partition(&mut self, name: &str) -> Result<(), ControlError> {
        self.change(|all| {
            all.execute("DELETE FROM partitions WHERE name = ?", [name])?;
            all.execute("DELETE FROM rights WHERE partition = ?", [name]).map(drop)
        })
    }

    /// A new process is to boot a partition's nodes. Its news are counted anew.
    pub(crate) fn begin_boot(&mut self, name: &str, owner: TaskId) -> Result<(), ControlError> {
        self.change(|all| {
            let text = "UPDATE partitions SET state = ?, error = NULL, boot_s = NULL, pid = ?, pid_start = ?, news = 0
                        WHERE name = ?";
            all.execute(text, params![word(PartitionState::Booting), owner.tid, owner.start_ticks, name]).map(drop)
        })
    }

    /// A partition has another state; without an owner, the process that owned its nodes has ended.
    pub(crate) fn set_partition(
        &mut self,
        name: &str,
        change: &Change,
        keeps_owner: bool,
    ) -> Result<(), ControlError> {
        self.change(|all| {
            let text = "UPDATE partitions SET state = ?, error = ?, boot_s = ? WHERE name = ?";
            all.execute(text, params![word(change.state), change.error, change.boot_s, name])?;
            if !keeps_owner {
                all.execute("UPDATE partitions SET pid = NULL, pid_start = NULL WHERE name = ?", [name])?;
            }
            Ok(())
        })
    }

    /// The news of a partition up to this number have been stored.
    pub(crate) fn taken(&mut self, name: &str, news: u64) -> Result<(), ControlError> {
        self.change(|all| take(all, name, news).map(drop))
    }
}

/// Notes as part of a change that the news of a partition up to this number are stored. Returns `false` if they were before.
pub(super) fn take(all: &Transaction<'_>, name: &str, news: u64) -> rusqlite::Result<bool> {
    let text = "UPDATE partitions SET news = ?1 WHERE name = ?2 AND news < ?1";
    Ok(all.execute(text, params![news, name])? == 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::api::IoNodeKind;
    use crate::store::tests::store;

    pub(crate) fn example(name: &str) -> Row {
        Row {
            name: name.to_owned(),
            shape: Shape::NODE_CARD,
            origin: [4, 0, 2],
            node: NodeRequest {
                pset: 8,
                cpus: 1,
                memory_mib: 16,
                io_nodes: IoNodeKind::Linux,
                io_exports: vec!["/a:ro".parse().expect("one")],
            },
            state: PartitionState::Free,
            error: None,
            boot_s: None,
            owner: None,
            news: 0,
        }
    }

    #[test]
    fn a_partition_keeps_its_state_and_its_owner() {
        let (_folder, mut store) = store();
        store.add_partition(&example("B")).expect("added");
        store.add_partition(&example("A")).expect("added");
        assert!(store.add_partition(&example("A")).is_err(), "there is one of that name");
        let owner = TaskId { tid: 7, start_ticks: 1 << 40 };
        store.begin_boot("A", owner).expect("stored");
        store.taken("A", 12).expect("stored");
        let change = Change { state: PartitionState::Ready, error: None, boot_s: Some(0.5) };
        store.set_partition("A", &change, true).expect("stored");
        let found = store.partition("A").expect("read").expect("it is there");
        assert_eq!((found.state, found.owner, found.news), (PartitionState::Ready, Some(owner), 12));
        let change = Change { state: PartitionState::Failed, error: Some("no".to_owned()), boot_s: None };
        store.set_partition("A", &change, false).expect("stored");
        let all = store.partitions().expect("read");
        assert_eq!((all[0].owner, all[0].error.as_deref()), (None, Some("no")));
        assert_eq!(all[1], example("B"));
    }
}
