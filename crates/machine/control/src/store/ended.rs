// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that have ended: how long they are kept, and how many of a user.

use rusqlite::{OptionalExtension as _, Transaction, params};

use super::Store;
use crate::ControlError;
use crate::api::now;

/// Ended jobs that are kept of a user at most, and bytes of their descriptions. The last one is kept in any case.
const JOBS: u32 = 10_000;
const BYTES: u64 = 64 << 20;
/// Time for which an ended job is kept at most, seconds: 90 days.
const AGE_S: f64 = 90.0 * 86_400.0;
/// Jobs that are forgotten at once at most: a database of an older version may have many.
const BATCH: u32 = 1000;
/// Events in which events of jobs are looked for; those of earlier jobs are forgotten. Events without a job are kept.
const EVENTS: u32 = 100_000;

/// The tables of version 9. An ended job needs its environment no more, which may be large, and may have secrets.
pub(super) const STEP: &str = "
    ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
    UPDATE jobs SET request = json_remove(request, '$.environment') WHERE state = 'ended';
    UPDATE jobs SET bytes = octet_length(request);
    CREATE INDEX jobs_of_user ON jobs (uid, state, id, bytes);
    CREATE INDEX jobs_by_end ON jobs (ended) WHERE state = 'ended';
    CREATE INDEX ras_of_jobs ON ras (id) WHERE job IS NOT NULL;
";

/// The end of a job.
pub(super) fn end(all: &Transaction<'_>, id: u64, code: i32, error: Option<&str>) -> rusqlite::Result<()> {
    let text =
        "UPDATE jobs SET state = 'ended', ended = max(?, coalesce(started, submitted)), code = ?, error = ?,
                    request = json_remove(request, '$.environment')
                WHERE id = ? AND state != 'ended'";
    all.execute(text, params![now(), code, error, id])?;
    all.execute("UPDATE jobs SET bytes = octet_length(request) WHERE id = ?", [id]).map(drop)
}

/// Forgets jobs: those of this user that are too many, and those of all users that ended long ago. Returns their numbers.
pub(super) fn forget(all: &Transaction<'_>, uid: u32) -> rusqlite::Result<Vec<u64>> {
    let mut forgotten = too_many(all, uid)?;
    let too_old = "SELECT id FROM jobs WHERE state = 'ended' AND ended < ?1 LIMIT ?2";
    let old = all
        .prepare(too_old)?
        .query_map(params![now() - AGE_S, BATCH], |row| row.get(0))?
        .collect::<Result<Vec<u64>, _>>()?;
    forgotten.extend(old);
    forgotten.sort_unstable();
    forgotten.dedup();
    let mut delete = all.prepare("DELETE FROM jobs WHERE id = ?")?;
    for id in &forgotten {
        delete.execute([id])?;
    }
    Ok(forgotten)
}

/// The ended jobs of a user that are too many: none, or a hundredth more, because they are all looked at to find them.
fn too_many(all: &Transaction<'_>, uid: u32) -> rusqlite::Result<Vec<u64>> {
    let text = "SELECT count(*), coalesce(sum(bytes), 0) FROM jobs WHERE uid = ? AND state = 'ended'";
    let (jobs, bytes): (u32, u64) = all.query_row(text, [uid], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if jobs <= JOBS && bytes <= BYTES {
        return Ok(Vec::new());
    }
    let text = "
        SELECT id FROM (
            SELECT id, row_number() OVER last AS number, sum(bytes) OVER last AS held
            FROM jobs WHERE uid = ?1 AND state = 'ended' WINDOW last AS (ORDER BY id DESC)
        ) WHERE number > 1 AND (number > ?2 OR held > ?3) ORDER BY id LIMIT ?4";
    let values = params![uid, JOBS - JOBS / 100, BYTES - BYTES / 100, BATCH];
    all.prepare(text)?.query_map(values, |row| row.get(0))?.collect()
}

/// Forgets events of jobs, if there have been many events since.
pub(super) fn forget_events(all: &Transaction<'_>) -> rusqlite::Result<()> {
    let text = "DELETE FROM ras INDEXED BY ras_of_jobs
                WHERE job IS NOT NULL AND id <= (SELECT max(id) FROM ras) - ?";
    all.prepare(text)?.execute([EVENTS]).map(drop)
}

impl Store {
    /// A job has ended. The first end counts. It is never before its start, whatever the clock was set to meanwhile. Returns the jobs
    /// that are forgotten now.
    pub(crate) fn end_job(
        &mut self,
        id: u64,
        code: i32,
        error: Option<&str>,
    ) -> Result<Vec<u64>, ControlError> {
        self.change(|all| {
            end(all, id, code, error)?;
            let uid =
                all.query_row("SELECT uid FROM jobs WHERE id = ?", [id], |row| row.get(0)).optional()?;
            uid.map_or(Ok(Vec::new()), |uid| forget(all, uid))
        })
    }

    /// Returns `true` if there was a job with this number that is not known any more.
    pub(crate) fn is_forgotten(&self, id: u64) -> Result<bool, ControlError> {
        let text = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)";
        let last: u64 = self.read(|db| db.query_row(text, [], |row| row.get(0)))?;
        Ok((1..=last).contains(&id) && self.owner_of(id)?.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{JobRequest, JobState};
    use crate::store::ras::{NewEvent, RasFilter};
    use crate::store::tests::store;

    /// A job with an environment and an argument of so many bytes.
    fn request(environment: usize, argument: usize) -> JobRequest {
        let text = r#"{"partition": "A", "executable": "/bin/a", "directory": "/"}"#;
        let environment = [("A".to_owned(), "x".repeat(environment))].into();
        let arguments = vec!["y".repeat(argument)];
        JobRequest { environment, arguments, ..serde_json::from_str(text).expect("a request") }
    }

    /// Submits a job of a user, and ends it. Returns its number, and those of the jobs that were forgotten.
    fn end_one(store: &mut Store, uid: u32, job: &JobRequest) -> (u64, Vec<u64>) {
        let id = store.add_job((uid, "eve"), job).expect("added");
        let forgotten = store.end_job(id, 0, None).expect("stored");
        (id, forgotten)
    }

    /// The numbers of all jobs of a user, the oldest first.
    fn jobs_of(store: &Store, uid: u32) -> Vec<u64> {
        let text = "SELECT id FROM jobs WHERE uid = ? ORDER BY id";
        store.read(|db| db.prepare(text)?.query_map([uid], |row| row.get(0))?.collect()).expect("read")
    }

    fn pages(store: &Store) -> u64 {
        store.read(|db| db.query_row("PRAGMA page_count", [], |row| row.get(0))).expect("read")
    }

    #[test]
    fn ended_jobs_have_no_environment_and_the_database_does_not_grow_by_them() {
        let (_folder, mut store) = store();
        let large = request(250 << 10, 10);
        let (id, _) = end_one(&mut store, 5, &large);
        let ended = store.job(id).expect("read").expect("there");
        assert_eq!((ended.state, ended.request.environment.len()), (JobState::Ended, 0));
        assert_eq!(ended.request.arguments.len(), 1);
        let before = pages(&store);
        for _ in 0..50 {
            end_one(&mut store, 5, &large);
        }
        // the environments of all would have 3,000 pages of 4 KiB
        assert!(pages(&store) < before + 50, "{before} {}", pages(&store));
    }

    #[test]
    fn the_oldest_ended_jobs_of_a_user_are_forgotten_and_those_of_others_are_not() {
        let (_folder, mut store) = store();
        let large = request(0, 1_000_000);
        let open = store.add_job((5, "eve"), &large).expect("added");
        let (others, _) = end_one(&mut store, 6, &request(0, 0));
        let ended: Vec<u64> = (0..67).map(|_| end_one(&mut store, 5, &large).0).collect();
        assert_eq!(end_one(&mut store, 5, &large).1, ended[..2], "more than 64 MiB");
        assert_eq!(jobs_of(&store, 6), [others]);
        assert_eq!((jobs_of(&store, 5).len(), jobs_of(&store, 5)[0]), (67, open));
        // as many as a user may have
        let copy = "INSERT INTO jobs (uid, user, partition, request, state, submitted, ended, bytes)
                    SELECT 7, user, partition, request, state, submitted, ended, bytes FROM jobs WHERE id = ?";
        let copies =
            |all: &Transaction<'_>| (0..JOBS).try_for_each(|_| all.execute(copy, [others]).map(drop));
        store.change(copies).expect("stored");
        let oldest = jobs_of(&store, 7)[0];
        assert_eq!(end_one(&mut store, 7, &request(0, 0)).1[0], oldest);
        assert_eq!(jobs_of(&store, 7).len(), 9_900);
        assert_eq!(end_one(&mut store, 7, &request(0, 0)).1, [0u64; 0]);
    }

    #[test]
    fn jobs_that_ended_long_ago_are_forgotten_whoever_ends_the_next() {
        let (_folder, mut store) = store();
        let small = request(0, 0);
        let (old, _) = end_one(&mut store, 5, &small);
        let (young, _) = end_one(&mut store, 5, &small);
        let age = |all: &Transaction<'_>, id, ended: f64| {
            all.execute("UPDATE jobs SET ended = ? WHERE id = ?", params![ended, id]).map(drop)
        };
        store.change(|all| age(all, old, now() - AGE_S - 10.0)).expect("stored");
        store.change(|all| age(all, young, now() - AGE_S + 1000.0)).expect("stored");
        assert_eq!(end_one(&mut store, 6, &small).1, [old]);
        let known = |id| store.is_forgotten(id).expect("read");
        assert_eq!([old, young, 99].map(known), [true, false, false]);
        assert_eq!(jobs_of(&store, 5), [young]);
    }

    #[test]
    fn events_of_jobs_are_forgotten_after_many_others_and_those_of_the_machine_are_kept() {
        let (_folder, mut store) = store();
        let add = |store: &mut Store, job| {
            let (severity, location) = (crate::api::Severity::Info, "R00".to_owned());
            let (code, message) = ("job-requeued".to_owned(), "so".to_owned());
            let new = NewEvent { time: now(), severity, location, code, message, job };
            store.add_event(new).expect("stored")[0].id
        };
        let (of_job, of_machine) = (add(&mut store, Some(1)), add(&mut store, None));
        let text = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'ras'";
        store.change(|all| all.execute(text, [EVENTS - 1]).map(drop)).expect("stored");
        let seen = |store: &Store| -> Vec<u64> {
            let filter = RasFilter { limit: 10, ..RasFilter::default() };
            store.events(&filter).expect("read").iter().map(|event| event.id).collect()
        };
        let last = add(&mut store, Some(2));
        assert_eq!(seen(&store), [of_job, of_machine, last]);
        let next = add(&mut store, Some(2));
        assert_eq!(seen(&store), [of_machine, last, next]);
    }
}
