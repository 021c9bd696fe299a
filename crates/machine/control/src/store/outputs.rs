// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output that the machine keeps of ended jobs: how much of each user.

use rusqlite::{OptionalExtension as _, Transaction, params};

use super::Store;
use crate::ControlError;

/// Bytes of output that are kept of the ended jobs of a user. That of the last one is kept in any case.
const BYTES: u64 = 1 << 30;

/// The tables of version 10: bytes of the output that is kept of an ended job.
pub(super) const STEP: &str = "
    ALTER TABLE jobs ADD COLUMN output INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN is_output_removed INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX outputs_of_user ON jobs (uid, id, output) WHERE output > 0;
";

/// The ended jobs of a user whose output is too much, the oldest first.
fn outputs_to_remove(all: &Transaction<'_>, uid: u32) -> rusqlite::Result<Vec<u64>> {
    let text = "
        SELECT id FROM (
            SELECT id, row_number() OVER last AS number, sum(output) OVER last AS held
            FROM jobs WHERE uid = ?1 AND output > 0 WINDOW last AS (ORDER BY id DESC)
        ) WHERE number > 1 AND held > ?2 ORDER BY id";
    all.prepare(text)?.query_map(params![uid, BYTES], |row| row.get(0))?.collect()
}

impl Store {
    /// Stores how many bytes of output are kept of a job that has ended. Returns the jobs of the same user whose output is to be removed.
    pub(crate) fn store_output_size(&mut self, id: u64, bytes: u64) -> Result<Vec<u64>, ControlError> {
        self.change(|all| {
            let text = "UPDATE jobs SET output = ? WHERE id = ? AND state = 'ended' AND is_output_removed = 0 RETURNING uid";
            let uid = all.query_row(text, params![bytes, id], |row| row.get(0)).optional()?;
            let Some(uid) = uid else { return Ok(Vec::new()) };
            let removed = outputs_to_remove(all, uid)?;
            let mut remove =
                all.prepare("UPDATE jobs SET output = 0, is_output_removed = 1 WHERE id = ?")?;
            for id in &removed {
                remove.execute([id])?;
            }
            Ok(removed)
        })
    }

    /// Returns `true` if no size is stored for the output of an ended job: it has none, or the daemon was killed before it stored the size.
    pub(crate) fn lacks_output_size(&self, id: u64) -> Result<bool, ControlError> {
        let text = "SELECT EXISTS (SELECT 1 FROM jobs WHERE id = ? AND state = 'ended' AND output = 0)";
        self.read(|db| db.query_row(text, [id], |row| row.get(0)))
    }
}

#[cfg(test)]
mod tests {
    use crate::api::JobRequest;
    use crate::store::Store;
    use crate::store::tests::store;

    fn submit(store: &mut Store, uid: u32) -> u64 {
        let text = r#"{"partition": "A", "executable": "/bin/a", "directory": "/"}"#;
        let request: JobRequest = serde_json::from_str(text).expect("a request");
        store.add_job((uid, "eve"), &request).expect("added")
    }

    /// A job of a user that has ended with so much output. Returns its number, and the jobs whose output goes.
    fn end_one(store: &mut Store, uid: u32, mib: u64) -> (u64, Vec<u64>) {
        let id = submit(store, uid);
        store.end_job(id, 0, None).expect("stored");
        (id, store.store_output_size(id, mib << 20).expect("stored"))
    }

    #[test]
    fn the_oldest_outputs_of_a_user_go_if_they_are_too_much_and_those_of_others_stay() {
        let (_folder, mut store) = store();
        let (others, _) = end_one(&mut store, 6, 900);
        let (silent, _) = end_one(&mut store, 5, 0);
        let (first, none) = end_one(&mut store, 5, 400);
        let (second, _) = end_one(&mut store, 5, 400);
        assert_eq!(none, [0u64; 0]);
        let (third, gone) = end_one(&mut store, 5, 300);
        assert_eq!(gone, [first]);
        let is_removed = |store: &Store, id| store.job(id).expect("read").expect("known").is_output_removed;
        assert!(is_removed(&store, first), "the job is still known");
        assert!(![others, silent, second, third].iter().any(|id| is_removed(&store, *id)));
        // one that alone has too much stays until the next one ends
        let (large, gone) = end_one(&mut store, 5, 2000);
        assert_eq!(gone, [second, third]);
        let (_, gone) = end_one(&mut store, 5, 1);
        assert_eq!(gone, [large]);
        assert_eq!(store.store_output_size(large, 5).expect("stored"), [0u64; 0], "it stays removed");
        assert!(is_removed(&store, large));
    }

    #[test]
    fn the_output_of_a_job_that_runs_is_counted_when_it_has_ended() {
        let (_folder, mut store) = store();
        let id = submit(&mut store, 5);
        assert_eq!(store.store_output_size(id, 1 << 40).expect("stored"), [0u64; 0]);
        assert!(!store.lacks_output_size(id).expect("read"));
        store.end_job(id, 0, None).expect("stored");
        assert!(store.lacks_output_size(id).expect("read"));
        store.store_output_size(id, 7).expect("stored");
        assert!(!store.lacks_output_size(id).expect("read"));
    }
}
