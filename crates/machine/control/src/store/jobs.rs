// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in the database.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Store, parsed};
use crate::ControlError;
use crate::api::{Job, JobBlock, JobRequest, JobState, now, word};

const COLUMNS: &str = "id, user, request, state, submitted, started, ended, code, error, block";

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let (request, block): (String, Option<String>) = (row.get(2)?, row.get(9)?);
    let request = serde_json::from_str(&request)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, e.into()))?;
    let block = block.map(|text| serde_json::from_str(&text)).transpose();
    let block = block
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(9, rusqlite::types::Type::Text, e.into()))?;
    Ok(Job {
        id: row.get(0)?,
        user: row.get(1)?,
        request,
        state: parsed(3, row.get(3)?)?,
        block,
        waits: None,
        submitted: row.get(4)?,
        started: row.get(5)?,
        ended: row.get(6)?,
        code: row.get(7)?,
        error: row.get(8)?,
    })
}

/// States of jobs that wait, and of those that have nodes.
const QUEUED: &str = "('queued')";
const BEGUN: &str = "('starting', 'running')";

/// The jobs of a partition in these states, in the order of their submission.
fn listed(db: &Connection, partition: &str, states: &str) -> rusqlite::Result<Vec<Job>> {
    let text = format!("SELECT {COLUMNS} FROM jobs WHERE partition = ? AND state IN {states} ORDER BY id");
    db.prepare(&text)?.query_map([partition], job)?.collect()
}

impl Store {
    /// Adds a job to the queue, unless there is one with its token. Returns its number.
    pub(crate) fn add_job(
        &mut self,
        (uid, user): (u32, &str),
        request: &JobRequest,
    ) -> Result<u64, ControlError> {
        let text = serde_json::to_string(request).map_err(|e| ControlError::Wrong(e.to_string()))?;
        let (partition, token) = (&request.partition, &request.token);
        self.change(|all| {
            let known = "SELECT id FROM jobs WHERE uid = ? AND token = ?";
            if let Some(id) = all.query_row(known, params![uid, token], |row| row.get(0)).optional()? {
                return Ok(id);
            }
            let insert = "INSERT INTO jobs (uid, user, token, partition, request, state, submitted)
                          VALUES (?, ?, ?, ?, ?, ?, ?)";
            all.execute(insert, params![uid, user, token, partition, text, word(JobState::Queued), now()])?;
            Ok(all.last_insert_rowid().unsigned_abs())
        })
    }

    pub(crate) fn job(&self, id: u64) -> Result<Option<Job>, ControlError> {
        let text = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?");
        self.read(|db| db.query_row(&text, [id], job).optional())
    }

    /// The user id of a job.
    pub(crate) fn owner_of(&self, id: u64) -> Result<Option<u32>, ControlError> {
        self.read(|db| db.query_row("SELECT uid FROM jobs WHERE id = ?", [id], |row| row.get(0)).optional())
    }

    /// The last `limit` jobs, or all that have not ended; the newest first.
    pub(crate) fn jobs(&self, limit: Option<u32>) -> Result<Vec<Job>, ControlError> {
        self.read(|db| {
            let rule = match limit {
                Some(limit) => format!("ORDER BY id DESC LIMIT {limit}"),
                None => "WHERE state != 'ended' ORDER BY id DESC".to_owned(),
            };
            let mut query = db.prepare(&format!("SELECT {COLUMNS} FROM jobs {rule}"))?;
            query.query_map([], job)?.collect()
        })
    }

    /// The jobs of a partition that have been started and have not ended.
    pub(crate) fn begun(&self, partition: &str) -> Result<Vec<Job>, ControlError> {
        self.read(|db| listed(db, partition, BEGUN))
    }

    /// The jobs in the queue of a partition, the first one first.
    pub(crate) fn queued(&self, partition: &str) -> Result<Vec<Job>, ControlError> {
        self.read(|db| listed(db, partition, QUEUED))
    }

    pub(crate) fn has_queued(&self, partition: &str) -> Result<bool, ControlError> {
        let text = "SELECT EXISTS (SELECT 1 FROM jobs WHERE partition = ? AND state = 'queued')";
        self.read(|db| db.query_row(text, [partition], |row| row.get(0)))
    }

    /// Takes jobs of a partition from the queue, each with its nodes: `choose` is given those that have begun and those that
    /// wait.
    pub(crate) fn take_jobs(
        &mut self,
        partition: &str,
        choose: impl FnOnce(&[Job], &[Job]) -> Vec<(u64, JobBlock)>,
    ) -> Result<Vec<Job>, ControlError> {
        self.change(|all| {
            let mut queued = listed(all, partition, QUEUED)?;
            let chosen = choose(&listed(all, partition, BEGUN)?, &queued);
            let text = "UPDATE jobs SET state = ?, started = ?, block = ? WHERE id = ? AND state = 'queued'";
            for (id, block) in &chosen {
                let block = serde_json::to_string(block)
                    .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
                all.execute(text, params![word(JobState::Starting), now(), block, id])?;
            }
            queued.retain_mut(|job| {
                let own = chosen.iter().find(|(id, _)| *id == job.id);
                job.block = own.map(|(_, block)| *block);
                own.is_some()
            });
            Ok(queued)
        })
    }

    /// Sets the state of a job that has not ended.
    pub(crate) fn set_job(&mut self, id: u64, state: JobState) -> Result<(), ControlError> {
        self.change(|all| {
            all.execute(
                "UPDATE jobs SET state = ? WHERE id = ? AND state != 'ended'",
                params![word(state), id],
            )
            .map(drop)
        })
    }

    /// A job has ended. The first end counts.
    pub(crate) fn end_job(&mut self, id: u64, code: i32, error: Option<&str>) -> Result<(), ControlError> {
        self.change(|all| {
            let text = "UPDATE jobs SET state = 'ended', ended = ?, code = ?, error = ? WHERE id = ? AND state != 'ended'";
            all.execute(text, params![now(), code, error, id]).map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::store;

    fn request(partition: &str) -> JobRequest {
        let text = format!(r#"{{"partition": "{partition}", "executable": "/bin/a", "directory": "/"}}"#);
        serde_json::from_str(&text).expect("a request")
    }

    #[test]
    fn jobs_are_taken_once_with_their_nodes_and_put_back_after_a_kill() {
        let (_folder, mut store) = store();
        let add = |store: &mut Store, name| store.add_job((5, "eve"), &request(name)).expect("added");
        let (one, two, three) = (add(&mut store, "A"), add(&mut store, "A"), add(&mut store, "B"));
        let block = JobBlock { origin: [0, 2, 0], shape: "2x2x2".parse().expect("a shape") };
        let take = |store: &mut Store, name: &str, most: usize| -> Vec<u64> {
            let choose = |begun: &[Job], queued: &[Job]| {
                let free = most.saturating_sub(begun.len());
                queued.iter().take(free).map(|job| (job.id, block)).collect()
            };
            store.take_jobs(name, choose).expect("read").iter().map(|job| job.id).collect()
        };
        assert_eq!(take(&mut store, "A", 1), [one]);
        assert_eq!(take(&mut store, "A", 1), [0u64; 0], "the first has begun");
        assert_eq!(take(&mut store, "B", 1), [three]);
        assert_eq!(store.begun("A").expect("read")[0].block, Some(block));
        store.end_job(one, 3, Some("why")).expect("stored");
        store.end_job(one, 0, None).expect("stored");
        store.set_job(one, JobState::Running).expect("stored");
        let ended = store.job(one).expect("read").expect("it is there");
        assert_eq!(
            (ended.state, ended.code, ended.error.as_deref()),
            (JobState::Ended, Some(3), Some("why"))
        );
        assert!(store.has_queued("A").expect("read") && !store.has_queued("B").expect("read"));
        assert_eq!(take(&mut store, "A", 1), [two]);
        // a daemon that was killed puts it back
        store.set_job(two, JobState::Queued).expect("stored");
        assert_eq!(store.begun("A").expect("read"), []);
        assert_eq!(take(&mut store, "A", 2), [two]);
        assert_eq!(store.owner_of(two).expect("read"), Some(5));
        let open: Vec<u64> = store.jobs(None).expect("read").iter().map(|job| job.id).collect();
        assert_eq!(open, [three, two]);
        assert_eq!(store.jobs(Some(1)).expect("read").len(), 1);
        let again = JobRequest { token: Some("t".to_owned()), ..request("A") };
        let first = store.add_job((5, "eve"), &again).expect("added");
        assert_eq!(store.add_job((5, "eve"), &again).expect("known"), first, "a request that is repeated");
        assert_ne!(store.add_job((6, "bob"), &again).expect("added"), first, "the token of another user");
        assert_eq!(store.job(99).expect("read"), None);
    }
}
