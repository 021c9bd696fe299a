// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in the database.

use rusqlite::{Connection, OptionalExtension as _, Params, Row, Transaction, params};

use super::ras::NewEvent;
use super::{Store, parsed, partitions, ras};
use crate::ControlError;
use crate::api::{Event, Job, JobBlock, JobRequest, JobState, now, word};

/// Jobs of one answer at most, and bytes of their descriptions, unless it is only one job.
const PAGE: u32 = 1000;
const PAGE_BYTES: usize = 4 << 20;
/// Jobs of a user that have not ended at most, and bytes of their descriptions; bytes of one.
const OPEN_JOBS: u64 = 1000;
const OPEN_BYTES: u64 = 64 << 20;
const JOB_BYTES: usize = 1 << 20;
/// Times that a job goes back into the queue at most.
pub(crate) const REQUEUES: u32 = 8;
/// The longest pause until a job begins again, seconds.
pub(crate) const LONGEST_PAUSE_S: f64 = 60.0;

/// The columns of a job, and those of a listing, which has neither environments nor tokens: they may be large, and secret.
const COLUMNS: &str =
    "id, user, request, state, submitted, started, ended, code, error, block, requeues, not_before,
    is_output_removed";
const LISTED: &str = "id, user, json_remove(request, '$.environment', '$.token'), state, submitted, started, ended, code, error,
    block, requeues, not_before, is_output_removed";

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
        requeues: row.get(10)?,
        not_before: row.get(11)?,
        is_output_removed: row.get(12)?,
        code: row.get(7)?,
        error: row.get(8)?,
    })
}

/// States of jobs that wait, of those that have nodes, and of both.
const QUEUED: &str = "('queued')";
const BEGUN: &str = "('starting', 'running')";
const OPEN: &str = "('queued', 'starting', 'running')";

/// The jobs of a partition in these states, in the order of their submission, without their environments.
fn listed(db: &Connection, partition: &str, states: &str) -> rusqlite::Result<Vec<Job>> {
    let text = format!("SELECT {LISTED} FROM jobs WHERE partition = ? AND state IN {states} ORDER BY id");
    db.prepare(&text)?.query_map([partition], job)?.collect()
}

/// The first of the jobs that are asked for, as many as one answer has.
fn page(db: &Connection, rule: &str, values: impl Params) -> rusqlite::Result<Vec<Job>> {
    let mut query = db.prepare(&format!("SELECT {LISTED} FROM jobs {rule}"))?;
    let mut rows = query.query(values)?;
    let (mut jobs, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        bytes += row.get_ref(2)?.as_bytes().map_or(0, <[u8]>::len);
        if !jobs.is_empty() && bytes > PAGE_BYTES {
            break;
        }
        jobs.push(job(row)?);
    }
    Ok(jobs)
}

/// The pause until a job begins again that has gone back into the queue so often, seconds: none at first, then longer and
/// longer, so that a machine that fails every job at once does not fail all of them.
fn pause_s(requeues: u32) -> f64 {
    match requeues {
        0 | 1 => 0.0,
        n => f64::from(1u32 << (n - 2).min(10)).min(LONGEST_PAUSE_S),
    }
}

/// A job that the machine has failed, and that may run again.
pub(crate) struct Requeue<'a> {
    pub(crate) id: u64,
    pub(crate) why: &'a str,
    /// The partition whose news this is, and their number, which is noted as stored.
    pub(crate) news: Option<(&'a str, u64)>,
    pub(crate) event: NewEvent,
}

/// Refuses one more job of a user who has too many.
fn check_room(all: &Transaction<'_>, uid: u32, bytes: u64) -> rusqlite::Result<Result<(), ControlError>> {
    let text =
        format!("SELECT count(*), coalesce(sum(bytes), 0) FROM jobs WHERE uid = ? AND state IN {OPEN}");
    let (jobs, held): (u64, u64) = all.query_row(&text, [uid], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let remedy = "wait until some have ended, or cancel some by `colony job cancel`";
    if jobs >= OPEN_JOBS {
        let text = format!("{jobs} of your jobs wait or run, and {OPEN_JOBS} may: {remedy}");
        return Ok(Err(ControlError::TooMany(text)));
    }
    if held.saturating_add(bytes) > OPEN_BYTES {
        let mib = OPEN_BYTES >> 20;
        let text =
            format!("the descriptions of your jobs that wait or run have {mib} MiB, the most: {remedy}");
        return Ok(Err(ControlError::TooMany(text)));
    }
    Ok(Ok(()))
}

impl Store {
    /// Adds a job to the queue, unless there is one with its token. Returns its number.
    pub(crate) fn add_job(
        &mut self,
        (uid, user): (u32, &str),
        request: &JobRequest,
    ) -> Result<u64, ControlError> {
        let text = serde_json::to_string(request).map_err(|e| ControlError::Wrong(e.to_string()))?;
        if text.len() > JOB_BYTES {
            let (bytes, most) = (text.len(), JOB_BYTES >> 10);
            let text = format!(
                "the description of the job has {bytes} bytes, and may have {most} KiB: use fewer arguments"
            );
            return Err(ControlError::Wrong(text));
        }
        self.reserve.check_space()?;
        let (partition, token) = (&request.partition, &request.token);
        self.change(|all| {
            let known = "SELECT id FROM jobs WHERE uid = ? AND token = ?";
            if let Some(id) = all.query_row(known, params![uid, token], |row| row.get(0)).optional()? {
                return Ok(Ok(id));
            }
            if let Err(refused) = check_room(all, uid, text.len() as u64)? {
                return Ok(Err(refused));
            }
            let insert = "INSERT INTO jobs (uid, user, token, partition, request, bytes, state, submitted)
                          VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
            let (bytes, state) = (text.len(), word(JobState::Queued));
            all.execute(insert, params![uid, user, token, partition, text, bytes, state, now()])?;
            Ok(Ok(all.last_insert_rowid().unsigned_abs()))
        })?
    }

    pub(crate) fn job(&self, id: u64) -> Result<Option<Job>, ControlError> {
        // no job has a number that the database cannot have
        let Ok(id) = i64::try_from(id) else { return Ok(None) };
        let text = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?");
        self.read(|db| db.query_row(&text, [id], job).optional())
    }

    /// The user id of a job.
    pub(crate) fn owner_of(&self, id: u64) -> Result<Option<u32>, ControlError> {
        let Ok(id) = i64::try_from(id) else { return Ok(None) };
        self.read(|db| db.query_row("SELECT uid FROM jobs WHERE id = ?", [id], |row| row.get(0)).optional())
    }

    /// The last jobs, or those before one: `limit` at most, the newest first. Fewer if there are more than an answer may have.
    pub(crate) fn jobs(&self, before: Option<u64>, limit: u32) -> Result<Vec<Job>, ControlError> {
        let before = before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
        let rule = "WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
        self.read(|db| page(db, rule, params![before, limit.min(PAGE)]))
    }

    /// The jobs that have not ended, the newest first, as many as one answer has; and how many are left out.
    pub(crate) fn open_jobs(&self) -> Result<(Vec<Job>, u64), ControlError> {
        self.read(|db| {
            let jobs = page(db, &format!("WHERE state IN {OPEN} ORDER BY id DESC LIMIT ?1"), [PAGE])?;
            let text = format!("SELECT count(*) FROM jobs WHERE state IN {OPEN}");
            let all: u64 = db.query_row(&text, [], |row| row.get(0))?;
            let left_out = all.saturating_sub(jobs.len() as u64);
            Ok((jobs, left_out))
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
    /// wait. Returns those that were taken, with their environments.
    pub(crate) fn take_jobs(
        &mut self,
        partition: &str,
        choose: impl FnOnce(&[Job], &[Job]) -> Vec<(u64, JobBlock)>,
    ) -> Result<Vec<Job>, ControlError> {
        self.change(|all| {
            let chosen = choose(&listed(all, partition, BEGUN)?, &listed(all, partition, QUEUED)?);
            let text = "UPDATE jobs SET state = ?, started = max(?, submitted), block = ?, error = NULL
                        WHERE id = ? AND state = 'queued'";
            let whole = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?");
            let mut taken = Vec::new();
            for (id, block) in &chosen {
                let block = serde_json::to_string(block)
                    .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
                if all.execute(text, params![word(JobState::Starting), now(), block, id])? == 1 {
                    taken.push(all.query_row(&whole, [id], job)?);
                }
            }
            taken.sort_by_key(|job| job.id);
            Ok(taken)
        })
    }

    /// Puts a job that the machine has failed back at its place in the queue, before all that were submitted later, with an
    /// event. Returns the events that were added; `None` if the job does not run again: it has done so too often, it was
    /// ended by its user, or has ended.
    pub(crate) fn requeue_job(&mut self, again: Requeue<'_>) -> Result<Option<Vec<Event>>, ControlError> {
        let Requeue { id, why, news, event } = again;
        self.change(|all| {
            let may_run = format!(
                "SELECT requeues FROM jobs WHERE id = ? AND state IN {BEGUN} AND is_cancelled = 0 AND requeues < {REQUEUES}"
            );
            let before: Option<u32> = all.query_row(&may_run, [id], |row| row.get(0)).optional()?;
            let Some(before) = before else { return Ok(None) };
            if let Some((partition, number)) = news
                && !partitions::take(all, partition, number)?
            {
                return Ok(Some(Vec::new()));
            }
            let text = "UPDATE jobs SET state = 'queued', started = NULL, block = NULL, error = ?, requeues = ?,
                        not_before = ? WHERE id = ?";
            let requeues = before + 1;
            all.execute(text, params![why, requeues, now() + pause_s(requeues), id])?;
            ras::add(all, event).map(Some)
        })
    }

    /// A job that its user ends does not run again.
    pub(crate) fn note_cancelled(&mut self, id: u64) -> Result<(), ControlError> {
        self.change(|all| all.execute("UPDATE jobs SET is_cancelled = 1 WHERE id = ?", [id]).map(drop))
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

    /// The ranks of a job have begun, unless the job is in the queue or has ended.
    pub(crate) fn begin_job(&mut self, id: u64) -> Result<(), ControlError> {
        self.change(|all| {
            all.execute("UPDATE jobs SET state = 'running' WHERE id = ? AND state = 'starting'", [id])
                .map(drop)
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
        let (open, left_out) = store.open_jobs().expect("read");
        assert_eq!((open.iter().map(|job| job.id).collect::<Vec<u64>>(), left_out), (vec![three, two], 0));
        assert_eq!(store.jobs(None, 1).expect("read").len(), 1);
        let again = JobRequest { token: Some("t".to_owned()), ..request("A") };
        let first = store.add_job((5, "eve"), &again).expect("added");
        assert_eq!(store.add_job((5, "eve"), &again).expect("known"), first, "a request that is repeated");
        assert_ne!(store.add_job((6, "bob"), &again).expect("added"), first, "the token of another user");
        assert_eq!(store.job(99).expect("read"), None);
    }

    fn event() -> NewEvent {
        let (severity, location) = (crate::api::Severity::Warning, "A".to_owned());
        let (code, message) = ("job-requeued".to_owned(), "so".to_owned());
        NewEvent { time: now(), severity, location, code, message, job: None }
    }

    /// Takes the first job of partition A from the queue.
    fn take_first(store: &mut Store) -> Vec<Job> {
        let block = JobBlock { origin: [0; 3], shape: "2x2x2".parse().expect("a shape") };
        let choose = |_: &[Job], queued: &[Job]| queued.iter().take(1).map(|job| (job.id, block)).collect();
        store.take_jobs("A", choose).expect("read")
    }

    fn put_back(store: &mut Store, id: u64, news: Option<(&str, u64)>) -> Option<usize> {
        let again = Requeue { id, why: "node 3 died", news, event: event() };
        store.requeue_job(again).expect("stored").map(|events| events.len())
    }

    #[test]
    fn a_job_that_the_machine_failed_is_first_in_the_queue_again_and_later_each_time() {
        let (_folder, mut store) = store();
        store.add_partition(&crate::store::partitions::tests::example("A")).expect("added");
        let first = store.add_job((5, "eve"), &request("A")).expect("added");
        store.add_job((5, "eve"), &request("A")).expect("added");
        for n in 1..=REQUEUES {
            assert_eq!(take_first(&mut store)[0].id, first, "it is the first each time");
            assert_eq!(put_back(&mut store, first, Some(("A", u64::from(n)))), Some(1), "with an event");
            assert_eq!(store.partition("A").expect("read").expect("there").news, u64::from(n));
            let job = store.job(first).expect("read").expect("there");
            assert_eq!((job.state, job.started, job.block, job.requeues), (JobState::Queued, None, None, n));
            assert_eq!(job.error.as_deref(), Some("node 3 died"));
            let pause = job.not_before.expect("a time") - now();
            assert!(pause <= pause_s(n) && pause > pause_s(n) - 60.0, "{n}: {pause}");
        }
        assert_eq!(take_first(&mut store)[0].id, first);
        assert_eq!(put_back(&mut store, first, None), None, "not for ever");
        let pauses: Vec<f64> = (1..=REQUEUES).map(pause_s).collect();
        assert_eq!(pauses, [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]);
    }

    #[test]
    fn a_job_that_was_cancelled_has_ended_or_waits_is_not_put_back() {
        let (_folder, mut store) = store();
        let add = |store: &mut Store| store.add_job((5, "eve"), &request("A")).expect("added");
        let cancelled = add(&mut store);
        assert_eq!(put_back(&mut store, cancelled, None), None, "it waits");
        take_first(&mut store);
        store.note_cancelled(cancelled).expect("stored");
        assert_eq!(put_back(&mut store, cancelled, None), None);
        store.end_job(cancelled, 255, None).expect("stored");
        let ended = add(&mut store);
        take_first(&mut store);
        store.end_job(ended, 0, None).expect("stored");
        assert_eq!(put_back(&mut store, ended, None), None);
        assert_eq!(store.job(ended).expect("read").expect("there").state, JobState::Ended);
    }

    #[test]
    fn listings_have_no_environments_and_are_bounded_and_paged() {
        let (_folder, mut store) = store();
        let large = |bytes: usize| {
            let environment = [("A".to_owned(), "x".repeat(200 << 10))].into();
            JobRequest { environment, arguments: vec!["y".repeat(bytes)], ..request("A") }
        };
        for _ in 0..12 {
            store.add_job((5, "eve"), &large(700 << 10)).expect("added");
        }
        let mut seen = Vec::new();
        let mut pages = 0;
        loop {
            let page = store.jobs(seen.last().copied(), u32::MAX).expect("read");
            assert!(page.iter().map(|job| job.request.arguments[0].len()).sum::<usize>() <= PAGE_BYTES);
            assert!(page.iter().all(|job| job.request.environment.is_empty()));
            if page.is_empty() {
                break;
            }
            pages += 1;
            seen.extend(page.iter().map(|job| job.id));
        }
        assert_eq!((pages, seen), (3, (1..=12).rev().collect()));
        let (open, left_out) = store.open_jobs().expect("read");
        assert_eq!((open.len() as u64 + left_out, left_out > 0), (12, true));
        assert_eq!(take_first(&mut store)[0].request.environment.len(), 1, "one that starts has its own");
        assert_eq!(store.job(u64::MAX).expect("read"), None);
        assert_eq!(store.owner_of(u64::MAX).expect("read"), None);
        assert_eq!(store.jobs(Some(u64::MAX), 1).expect("read").len(), 1);
    }

    #[test]
    fn one_user_has_a_bounded_number_of_jobs_and_others_go_on() {
        let (_folder, mut store) = store();
        let mut add =
            |uid, request: &JobRequest| store.add_job((uid, "eve"), request).map_err(|e| e.to_string());
        let large = JobRequest { arguments: vec!["y".repeat(JOB_BYTES - 2000)], ..request("A") };
        let mut added = 0;
        let refused = loop {
            match add(5, &large) {
                Ok(_) => added += 1,
                Err(text) => break text,
            }
        };
        assert!(added == 64 && refused.contains("64 MiB"), "{added}: {refused}");
        let huge = JobRequest { arguments: vec!["y".repeat(JOB_BYTES)], ..request("A") };
        assert!(add(6, &huge).is_err_and(|text| text.contains("1024 KiB")));
        assert!(add(6, &large).is_ok(), "another user");
        let first = store.add_job((7, "eve"), &request("A")).expect("added");
        let copy = "INSERT INTO jobs (uid, user, partition, request, state, submitted)
                    SELECT uid, user, partition, request, state, submitted FROM jobs WHERE id = ?";
        let copies =
            |all: &Transaction<'_>| (1..OPEN_JOBS).try_for_each(|_| all.execute(copy, [first]).map(drop));
        store.change(copies).expect("stored");
        let refused = store.add_job((7, "eve"), &request("A")).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|text| text.contains("1000 of your jobs")));
        store.end_job(first, 0, None).expect("stored");
        assert!(store.add_job((7, "eve"), &request("A")).is_ok(), "one of them has ended");
    }

    #[test]
    fn a_job_never_ends_before_it_began() {
        let (_folder, mut store) = store();
        let id = store.add_job((5, "eve"), &request("A")).expect("added");
        // the clock was two days ahead until now
        let ahead = now() + 172_800.0;
        let text = "UPDATE jobs SET submitted = ?1";
        store.change(|all| all.execute(text, [ahead]).map(drop)).expect("stored");
        take_first(&mut store);
        store.end_job(id, 0, None).expect("stored");
        let job = store.job(id).expect("read").expect("there");
        assert_eq!((job.started, job.ended), (Some(ahead), Some(ahead)));
    }
}
