// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in the database.

use rusqlite::{OptionalExtension as _, Row, params};

use super::{Store, parsed};
use crate::ControlError;
use crate::api::{Job, JobRequest, JobState, now, word};

const COLUMNS: &str = "id, user, request, state, submitted, started, ended, code, error";

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let request: String = row.get(2)?;
    let request = serde_json::from_str(&request)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, e.into()))?;
    Ok(Job {
        id: row.get(0)?,
        user: row.get(1)?,
        request,
        state: parsed(3, row.get(3)?)?,
        submitted: row.get(4)?,
        started: row.get(5)?,
        ended: row.get(6)?,
        code: row.get(7)?,
        error: row.get(8)?,
    })
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
        self.read(|db| {
            let text = format!(
                "SELECT {COLUMNS} FROM jobs WHERE partition = ? AND state IN ('starting', 'running') ORDER BY id"
            );
            db.prepare(&text)?.query_map([partition], job)?.collect()
        })
    }

    /// Takes the next job of a partition from the queue, unless one has begun.
    pub(crate) fn take_job(&mut self, partition: &str) -> Result<Option<Job>, ControlError> {
        self.change(|all| {
            let begun = "SELECT count(*) FROM jobs WHERE partition = ? AND state IN ('starting', 'running')";
            if all.query_row(begun, [partition], |row| row.get::<_, i64>(0))? > 0 {
                return Ok(None);
            }
            let next = format!(
                "SELECT {COLUMNS} FROM jobs WHERE partition = ? AND state = 'queued' ORDER BY id LIMIT 1"
            );
            let Some(found) = all.query_row(&next, [partition], job).optional()? else { return Ok(None) };
            let text = "UPDATE jobs SET state = ?, started = ? WHERE id = ?";
            all.execute(text, params![word(JobState::Starting), now(), found.id])?;
            Ok(Some(found))
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
    fn a_partition_runs_one_job_after_the_other_in_their_order() {
        let (_folder, mut store) = store();
        let add = |store: &mut Store, name| store.add_job((5, "eve"), &request(name)).expect("added");
        let (one, two, three) = (add(&mut store, "A"), add(&mut store, "A"), add(&mut store, "B"));
        let take = |store: &mut Store, name| store.take_job(name).expect("read").map(|job| job.id);
        assert_eq!(take(&mut store, "A"), Some(one));
        assert_eq!(take(&mut store, "A"), None, "the first has begun");
        assert_eq!(take(&mut store, "B"), Some(three));
        store.end_job(one, 3, Some("why")).expect("stored");
        store.end_job(one, 0, None).expect("stored");
        store.set_job(one, JobState::Running).expect("stored");
        let ended = store.job(one).expect("read").expect("it is there");
        assert_eq!(
            (ended.state, ended.code, ended.error.as_deref()),
            (JobState::Ended, Some(3), Some("why"))
        );
        assert_eq!(take(&mut store, "A"), Some(two));
        // a daemon that was killed puts it back
        store.set_job(two, JobState::Queued).expect("stored");
        assert_eq!(store.begun("A").expect("read"), []);
        assert_eq!(take(&mut store, "A"), Some(two));
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
