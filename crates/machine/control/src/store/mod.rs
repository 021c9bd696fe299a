// SPDX-License-Identifier: MIT OR Apache-2.0
//! The database: what the daemon has decided and what has happened. Each decision is one transaction, made before the decision
//! is carried out, so that a daemon that is killed goes on where it was.

mod allocation;
mod drains;
mod ended;
mod jobs;
mod outputs;
mod partitions;
mod ras;
mod reserve;
mod rights;

use std::path::Path;
use std::time::Duration;

use colony_model::Shape;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::ControlError;
use crate::api::Allocation;

pub(crate) use jobs::{LONGEST_PAUSE_S, REQUEUES as MOST_REQUEUES, Requeue};
pub(crate) use partitions::{Change, Row};
pub(crate) use ras::{DRAINED, NewEvent, RasFilter};

/// Steps from each version of the tables to the next, from an empty database on. A step that was ever released is never changed.
const STEPS: [&str; 10] =
    [TABLES, DRAINS, BLOCKS, RIGHTS, IO_NODES, ALLOCATION, IO_EXPORTS, REQUEUES, ended::STEP, outputs::STEP];
/// Version of the tables.
const VERSION: i64 = STEPS.len() as i64;
/// Longest wait for another program that reads the database.
const BUSY: Duration = Duration::from_secs(10);

/// Unused pages of 4 KiB that are given back, if they are most of the file.
const UNUSED_PAGES: u64 = 4096;

const TABLES: &str = "
    CREATE TABLE machine (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        shape TEXT NOT NULL
    ) STRICT;
    CREATE TABLE partitions (
        name TEXT PRIMARY KEY, shape TEXT NOT NULL,
        x INTEGER NOT NULL, y INTEGER NOT NULL, z INTEGER NOT NULL,
        pset INTEGER NOT NULL, cpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL,
        state TEXT NOT NULL, error TEXT, boot_s REAL,
        pid INTEGER, pid_start INTEGER,
        news INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uid INTEGER NOT NULL, user TEXT NOT NULL, token TEXT,
        partition TEXT NOT NULL, request TEXT NOT NULL, state TEXT NOT NULL,
        submitted REAL NOT NULL, started REAL, ended REAL,
        code INTEGER, error TEXT,
        UNIQUE (uid, token)
    ) STRICT;
    CREATE INDEX jobs_by_state ON jobs (state, partition, id);
    CREATE TABLE ras (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL, severity INTEGER NOT NULL, location TEXT NOT NULL,
        code TEXT NOT NULL, message TEXT NOT NULL, job INTEGER
    ) STRICT;
";

const DRAINS: &str = "
    CREATE TABLE drains (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        location TEXT NOT NULL, reason TEXT NOT NULL, user TEXT NOT NULL,
        since REAL NOT NULL, until REAL
    ) STRICT;
    CREATE UNIQUE INDEX drained_now ON drains (location) WHERE until IS NULL;
    CREATE TABLE thresholds (
        code TEXT PRIMARY KEY, events INTEGER NOT NULL, within_s REAL NOT NULL
    ) STRICT;
    INSERT INTO thresholds VALUES
        ('node-broken', 1, 3600), ('node-died', 3, 3600), ('node-stopped', 3, 3600),
        ('node-restart', 3, 3600), ('io-node-failed', 3, 3600);
    CREATE INDEX ras_by_time ON ras (time);
";

const BLOCKS: &str = "ALTER TABLE jobs ADD COLUMN block TEXT;";

const RIGHTS: &str = "
    CREATE TABLE rights (
        partition TEXT NOT NULL, holder TEXT NOT NULL, PRIMARY KEY (partition, holder)
    ) STRICT;
";

const IO_NODES: &str = "
    ALTER TABLE partitions ADD COLUMN io_nodes TEXT NOT NULL DEFAULT 'process';
    INSERT INTO thresholds VALUES ('io-node-died', 3, 3600), ('io-node-broken', 1, 3600);
";

const ALLOCATION: &str = "
    CREATE TABLE allocation (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        scheduler TEXT NOT NULL, job TEXT NOT NULL, hosts INTEGER NOT NULL, cpus INTEGER NOT NULL,
        memory_mib INTEGER, ends REAL, stops REAL
    ) STRICT;
";

const IO_EXPORTS: &str = "ALTER TABLE partitions ADD COLUMN io_exports TEXT NOT NULL DEFAULT '[]';";

const REQUEUES: &str = "
    ALTER TABLE jobs ADD COLUMN requeues INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN not_before REAL;
    ALTER TABLE jobs ADD COLUMN is_cancelled INTEGER NOT NULL DEFAULT 0;
";

/// The database of a machine.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    file: String,
    reserve: reserve::DiskReserve,
}

impl Store {
    /// Opens the database, and makes it if it is not there. The tables of an older version are brought to this one.
    pub(crate) fn open(path: &Path) -> Result<Self, ControlError> {
        let file = path.display().to_string();
        let wrong = |source| ControlError::Database { file: file.clone(), source };
        let connection = Connection::open(path).map_err(wrong)?;
        let mut store = Self { connection, file: file.clone(), reserve: reserve::DiskReserve::beside(path) };
        store.prepare().map_err(wrong)?;
        let found = store.version().map_err(wrong)?;
        if found != VERSION {
            return Err(ControlError::Version { file, found, known: VERSION });
        }
        store.give_space_back().map_err(wrong)?;
        Ok(store)
    }

    /// Makes the file smaller if most of it is unused, as after many jobs were forgotten.
    fn give_space_back(&self) -> rusqlite::Result<()> {
        let count = |pragma: &str| self.connection.query_row(pragma, [], |row| row.get::<_, u64>(0));
        let (pages, unused) = (count("PRAGMA page_count")?, count("PRAGMA freelist_count")?);
        if unused >= UNUSED_PAGES && unused > pages / 2 {
            self.connection.execute_batch("VACUUM")
        } else {
            Ok(())
        }
    }

    fn prepare(&mut self) -> rusqlite::Result<()> {
        self.connection.busy_timeout(BUSY)?;
        self.connection.pragma_update(None, "journal_mode", "WAL")?;
        // a transaction that has ended survives a crash of the host, too
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version: i64 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let tables: i64 = change.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        // a database without a version that has tables is that of another program
        let known = usize::try_from(version).ok().filter(|&version| version > 0 || tables == 0);
        if let Some(missing) =
            known.and_then(|version| STEPS.get(version..)).filter(|steps| !steps.is_empty())
        {
            missing.iter().try_for_each(|step| change.execute_batch(step))?;
            change.pragma_update(None, "user_version", VERSION)?;
        }
        change.commit()
    }

    fn version(&self) -> rusqlite::Result<i64> {
        self.connection.query_row("PRAGMA user_version", [], |row| row.get(0))
    }

    /// Does `change` as one transaction.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, ControlError> {
        self.reserve.adjust();
        let done =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|all| {
                let result = change(&all)?;
                all.commit()?;
                Ok(result)
            });
        done.map_err(|source| {
            if source.sqlite_error_code() == Some(ErrorCode::DiskFull) {
                // the caller's next attempt has room
                self.reserve.release();
            }
            ControlError::Database { file: self.file.clone(), source }
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ControlError> {
        read(&self.connection).map_err(|source| ControlError::Database { file: self.file.clone(), source })
    }

    /// The extent of the machine, if one is set up.
    pub(crate) fn machine(&self) -> Result<Option<Shape>, ControlError> {
        self.read(|db| {
            let mut query = db.prepare("SELECT shape FROM machine")?;
            let mut rows = query.query_map([], |row| parsed(0, row.get(0)?))?;
            rows.next().transpose()
        })
    }

    /// Sets up a machine in place of the one before, without partitions.
    pub(crate) fn set_machine(
        &mut self,
        shape: Shape,
        allocation: Option<&Allocation>,
    ) -> Result<(), ControlError> {
        self.change(|all| {
            allocation::set(all, allocation)?;
            all.execute("DELETE FROM partitions", [])?;
            all.execute("DELETE FROM rights", [])?;
            all.execute("INSERT OR REPLACE INTO machine VALUES (1, ?)", [shape.to_string()])?;
            Ok(())
        })
    }
}

/// The value that a word of JSON stands for. A word that the tables cannot have is an error of the database.
fn parsed<T: serde::de::DeserializeOwned>(column: usize, word: String) -> rusqlite::Result<T> {
    serde_json::from_value(serde_json::Value::String(word))
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, e.into()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("machine.db")).expect("a database");
        (folder, store)
    }

    #[test]
    fn a_machine_is_found_again() {
        let (folder, mut store) = store();
        assert_eq!(store.machine().expect("read"), None);
        store.set_machine(Shape::MIDPLANE, None).expect("stored");
        drop(store);
        let store = Store::open(&folder.path().join("machine.db")).expect("a database");
        assert_eq!(store.machine().expect("read"), Some(Shape::MIDPLANE));
    }

    #[test]
    fn the_database_of_an_older_version_is_brought_to_this_one_with_all_it_holds() {
        for (version, known) in (1..VERSION).zip(1..) {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("machine.db");
            let old = Connection::open(&file).expect("a database");
            STEPS[..known].iter().for_each(|step| old.execute_batch(step).expect("made"));
            old.pragma_update(None, "user_version", version).expect("changed");
            old.execute("INSERT INTO machine VALUES (1, '8x8x8')", []).expect("added");
            drop(old);
            let store = Store::open(&file).expect("brought to this version");
            assert_eq!(store.machine().expect("read"), Some(Shape::MIDPLANE));
            assert_eq!(store.version().expect("read"), VERSION);
            assert!(!store.thresholds().expect("read").is_empty());
        }
    }

    #[test]
    fn a_database_of_another_version_is_refused_and_left_as_it_is() {
        let (folder, store) = store();
        store.connection.pragma_update(None, "user_version", 99).expect("changed");
        drop(store);
        let file = folder.path().join("machine.db");
        let again = Store::open(&file);
        assert!(matches!(again, Err(ControlError::Version { found: 99, known: VERSION, .. })), "{again:?}");
        std::fs::write(&file, b"no database at all, but a text of some length").expect("written");
        assert!(matches!(Store::open(&file), Err(ControlError::Database { .. })));
        assert!(std::fs::read(&file).expect("read").starts_with(b"no database"));
    }
}
