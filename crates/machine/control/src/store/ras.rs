// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events in the database.

use rusqlite::{Row, Transaction, params};

use super::{Store, drains, ended, partitions};
use crate::ControlError;
use crate::api::{Event, Severity, now};

/// Events of one answer at most.
const MOST: u32 = 10_000;

/// The code of the event that a node gets no more jobs.
pub(crate) const DRAINED: &str = "node-drained";

/// An event before it has a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewEvent {
    pub(crate) time: f64,
    pub(crate) severity: Severity,
    pub(crate) location: String,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) job: Option<u64>,
}

/// Events that are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct RasFilter {
    /// Those after this number; without one, the last ones.
    pub(crate) after: Option<u64>,
    /// Of this severity, or worse.
    pub(crate) severity: Option<Severity>,
    /// Locations that begin so.
    pub(crate) location: Option<String>,
    pub(crate) limit: u32,
}

const SEVERITIES: [Severity; 4] = [Severity::Info, Severity::Warning, Severity::Error, Severity::Fatal];

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let severity: usize = row.get(2)?;
    Ok(Event {
        id: row.get(0)?,
        time: row.get(1)?,
        severity: SEVERITIES.get(severity).copied().unwrap_or(Severity::Fatal),
        location: row.get(3)?,
        code: row.get(4)?,
        message: row.get(5)?,
        job: row.get(6)?,
    })
}

/// Adds an event as part of a change.
fn insert(all: &Transaction<'_>, new: NewEvent) -> rusqlite::Result<Event> {
    let text = "INSERT INTO ras (time, severity, location, code, message, job) VALUES (?, ?, ?, ?, ?, ?)";
    let NewEvent { time, severity, location, code, message, job } = new;
    all.execute(text, params![time, severity as i64, location, code, message, job])?;
    let id = all.last_insert_rowid().unsigned_abs();
    Ok(Event { id, time, severity, location, code, message, job })
}

/// Adds an event, and drains its node if it is one too many.
pub(super) fn add(all: &Transaction<'_>, new: NewEvent) -> rusqlite::Result<Vec<Event>> {
    let event = insert(all, new)?;
    ended::forget_events(all)?;
    let reason = drains::by_threshold(all, &event)?;
    let location = event.location.clone();
    let drained = reason.map(|message| {
        let (severity, code) = (Severity::Error, DRAINED.to_owned());
        insert(all, NewEvent { time: now(), severity, location, code, message, job: None })
    });
    Ok(std::iter::once(event).chain(drained.transpose()?).collect())
}

impl Store {
    /// Adds an event. If it is one too many, its node is drained with it. Returns all events that were added, with their
    /// numbers.
    pub(crate) fn add_event(&mut self, new: NewEvent) -> Result<Vec<Event>, ControlError> {
        self.change(|all| add(all, new))
    }

    /// Adds an event that is news of a partition, and in the same transaction notes its number as stored. News that were
    /// stored before are not added again: a daemon that is killed stores and counts each event once.
    pub(crate) fn take_event(
        &mut self,
        (partition, news): (&str, u64),
        new: NewEvent,
    ) -> Result<Vec<Event>, ControlError> {
        self.change(
            |all| if partitions::take(all, partition, news)? { add(all, new) } else { Ok(Vec::new()) },
        )
    }

    /// The events that are asked for, the oldest first.
    pub(crate) fn events(&self, filter: &RasFilter) -> Result<Vec<Event>, ControlError> {
        let worse = filter.severity.map_or(0, |severity| severity as i64);
        let order = if filter.after.is_some() { "ASC" } else { "DESC" };
        let prefix = filter.location.as_deref().unwrap_or("");
        let text = format!(
            "SELECT id, time, severity, location, code, message, job FROM ras
             WHERE id > ?1 AND severity >= ?2 AND substr(location, 1, length(?3)) = ?3
             ORDER BY id {order} LIMIT ?4"
        );
        self.read(|db| {
            let mut query = db.prepare(&text)?;
            // no event has a number that the database cannot have
            let after = filter.after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
            let values = params![after, worse, prefix, filter.limit.min(MOST)];
            let mut events: Vec<Event> = query.query_map(values, event)?.collect::<Result<_, _>>()?;
            events.sort_by_key(|event| event.id);
            Ok(events)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::partitions::tests::example;
    use crate::store::tests::store;

    #[test]
    fn events_are_filtered_by_severity_place_and_number() {
        let (_folder, mut store) = store();
        for (n, severity) in (0..8).zip(SEVERITIES.iter().cycle()) {
            let location = format!("R0{}-M0", n % 2);
            let (code, message) = ("node-died".to_owned(), format!("event {n}"));
            let new =
                NewEvent { time: f64::from(n), severity: *severity, location, code, message, job: Some(3) };
            assert_eq!(store.add_event(new).expect("added")[0].id, n as u64 + 1);
        }
        let ids = |filter: RasFilter| -> Vec<u64> {
            store.events(&filter).expect("read").iter().map(|event| event.id).collect()
        };
        let limit = 100;
        assert_eq!(ids(RasFilter { limit: 3, ..RasFilter::default() }), [6, 7, 8], "the last ones");
        assert_eq!(
            ids(RasFilter { after: Some(2), limit: 2, ..RasFilter::default() }),
            [3, 4],
            "those that follow"
        );
        let severity = Some(Severity::Error);
        assert_eq!(ids(RasFilter { severity, limit, ..RasFilter::default() }), [3, 4, 7, 8]);
        assert_eq!(ids(RasFilter { after: Some(u64::MAX), limit, ..RasFilter::default() }), [0u64; 0]);
        let location = Some("R01".to_owned());
        assert_eq!(ids(RasFilter { location, limit, ..RasFilter::default() }), [2, 4, 6, 8]);
    }

    #[test]
    fn an_event_that_a_partition_tells_again_after_a_kill_is_stored_and_counted_once() {
        let (folder, mut store) = store();
        store.add_partition(&example("A")).expect("added");
        let event = |n: u64| {
            let (severity, code) = (Severity::Error, "node-died".to_owned());
            let (location, message) = ("R00-M0-N00-J03".to_owned(), format!("event {n}"));
            NewEvent { time: now(), severity, location, code, message, job: None }
        };
        for n in [1, 2, 2, 1] {
            store.take_event(("A", n), event(n)).expect("stored");
            // the daemon is killed before it asks for the next, and asks for the same again
            drop(store);
            store = Store::open(&folder.path().join("machine.db")).expect("a database");
        }
        assert_eq!(store.events(&RasFilter { limit: 9, ..RasFilter::default() }).expect("read").len(), 2);
        assert!(store.drains().expect("read").is_empty(), "two events are not three");
        assert_eq!(store.partition("A").expect("read").expect("it is there").news, 2);
        let added = store.take_event(("A", 5), event(5)).expect("stored");
        assert_eq!((added.len(), added[1].code.as_str()), (2, DRAINED), "the third drains the node");
        // the number goes with the event: what cannot be stored is told again
        store.read(|db| db.execute_batch("DROP TABLE ras")).expect("dropped");
        assert!(store.take_event(("A", 6), event(6)).is_err());
        assert_eq!(store.partition("A").expect("read").expect("it is there").news, 5);
    }
}
