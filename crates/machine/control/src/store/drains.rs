// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that get no new jobs, and the numbers of events that lead to it, in the database.

use colony_model::{Kind, Location};
use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::Store;
use crate::ControlError;
use crate::api::{Drain, Event, Rate, Threshold, now};

/// The user of a drain that no user has asked for.
const OWN: &str = "colony-control";
/// Locations and codes of one answer at most.
const MOST: u32 = 10_000;

fn drain(row: &Row<'_>) -> rusqlite::Result<Drain> {
    Ok(Drain { location: row.get(0)?, reason: row.get(1)?, user: row.get(2)?, since: row.get(3)? })
}

fn add(all: &Transaction<'_>, drain: &Drain) -> rusqlite::Result<bool> {
    let Drain { location, reason, user, since } = drain;
    let text = "INSERT OR IGNORE INTO drains (location, reason, user, since) VALUES (?, ?, ?, ?)";
    Ok(all.execute(text, params![location, reason, user, since])? == 1)
}

/// The locations that are drained.
fn open(all: &Transaction<'_>) -> rusqlite::Result<Vec<String>> {
    let text = "SELECT location FROM drains WHERE until IS NULL ORDER BY location";
    all.prepare(text)?.query_map([], |row| row.get(0))?.collect()
}

/// A time span in words.
fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 3600.0 && s % 3600.0 == 0.0 => format!("{} h", s / 3600.0),
        s if s >= 60.0 && s % 60.0 == 0.0 => format!("{} min", s / 60.0),
        s => format!("{s} s"),
    }
}

/// Drains the node of an event that is one too many of its kind. Returns the reason.
///
/// Events before the end of an earlier drain of the node are not counted: they have been seen to.
pub(super) fn by_threshold(all: &Transaction<'_>, event: &Event) -> rusqlite::Result<Option<String>> {
    let Event { location, code, .. } = event;
    let is_node = location.parse().is_ok_and(|l: Location| matches!(l.kind(), Kind::Compute | Kind::Io));
    let rule = "SELECT events, within_s FROM thresholds WHERE code = ? AND events > 0";
    let rule = all.query_row(rule, [code], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((most, within_s)) = rule.filter(|_| is_node) else { return Ok(None) };
    let text = "SELECT count(*) FROM ras WHERE location = ?1 AND code = ?2 AND time > max(?3, (
                    SELECT coalesce(max(until), 0) FROM drains
                    WHERE until IS NOT NULL AND (location = ?1 OR substr(?1, 1, length(location) + 1) = location || '-')
                ))";
    let (most, within_s): (i64, f64) = (most, within_s);
    let count: i64 = all.query_row(text, params![location, code, now() - within_s], |row| row.get(0))?;
    if count < most {
        return Ok(None);
    }
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let reason = format!("{code} {times} within {}", span(within_s));
    let new =
        Drain { location: location.clone(), reason: reason.clone(), user: OWN.to_owned(), since: now() };
    Ok(add(all, &new)?.then_some(reason))
}

impl Store {
    /// The parts of the machine that are drained, by location.
    pub(crate) fn drains(&self) -> Result<Vec<Drain>, ControlError> {
        self.read(|db| {
            let text =
                "SELECT location, reason, user, since FROM drains WHERE until IS NULL ORDER BY location";
            db.prepare(text)?.query_map([], drain)?.collect()
        })
    }

    /// Drains parts of the machine: all of them, or none if one is drained already. Returns that one.
    pub(crate) fn add_drains(&mut self, new: &[Drain]) -> Result<Option<String>, ControlError> {
        self.change(|all| {
            let drained = open(all)?;
            if let Some(known) = new.iter().find(|new| drained.contains(&new.location)) {
                return Ok(Some(known.location.clone()));
            }
            new.iter().try_for_each(|new| add(all, new).map(drop))?;
            Ok(None)
        })
    }

    /// Ends the drains of these parts of the machine, and of all parts of them: of all, or of none if one of them has no drain.
    /// Returns the locations that were drained, or the one that was not.
    pub(crate) fn end_drains(
        &mut self,
        parts: &[Location],
    ) -> Result<Result<Vec<String>, Location>, ControlError> {
        self.change(|all| {
            let drained = open(all)?;
            let is_of =
                |part: &Location, text: &String| text.parse().is_ok_and(|own: Location| part.contains(own));
            if let Some(part) = parts.iter().find(|part| !drained.iter().any(|text| is_of(part, text))) {
                return Ok(Err(*part));
            }
            let ended: Vec<String> =
                drained.into_iter().filter(|text| parts.iter().any(|part| is_of(part, text))).collect();
            let text = "UPDATE drains SET until = ? WHERE location = ? AND until IS NULL";
            ended.iter().try_for_each(|location| all.execute(text, params![now(), location]).map(drop))?;
            Ok(Ok(ended))
        })
    }

    /// The numbers of events that drain a node, by code.
    pub(crate) fn thresholds(&self) -> Result<Vec<Threshold>, ControlError> {
        self.read(|db| {
            let mut query = db.prepare("SELECT code, events, within_s FROM thresholds ORDER BY code")?;
            let threshold = |row: &Row<'_>| {
                Ok(Threshold { code: row.get(0)?, events: row.get(1)?, within_s: row.get(2)? })
            };
            query.query_map([], threshold)?.collect()
        })
    }

    pub(crate) fn set_threshold(&mut self, new: &Threshold) -> Result<(), ControlError> {
        self.change(|all| {
            let text = "INSERT OR REPLACE INTO thresholds VALUES (?, ?, ?)";
            all.execute(text, params![new.code, new.events, new.within_s]).map(drop)
        })
    }

    /// Events by location and code in the last `within_s` seconds, at locations that begin so; the most frequent first.
    pub(crate) fn rates(&self, within_s: f64, location: &str) -> Result<Vec<Rate>, ControlError> {
        self.read(|db| {
            let text = "SELECT location, code, count(*), max(time) FROM ras
                        WHERE time > ?1 AND substr(location, 1, length(?2)) = ?2
                        GROUP BY location, code ORDER BY count(*) DESC, location, code LIMIT ?3";
            let rate = |row: &Row<'_>| {
                let events: u64 = row.get(2)?;
                let per_hour = events as f64 * 3600.0 / within_s;
                Ok(Rate { location: row.get(0)?, code: row.get(1)?, events, per_hour, last: row.get(3)? })
            };
            db.prepare(text)?.query_map(params![now() - within_s, location, MOST], rate)?.collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Severity;
    use crate::store::NewEvent;
    use crate::store::tests::store;

    fn event(location: &str, code: &str, time: f64) -> NewEvent {
        let (location, code, message) = (location.to_owned(), code.to_owned(), "so".to_owned());
        NewEvent { time, severity: Severity::Error, location, code, message, job: None }
    }

    /// Ends drains. Returns the locations that were drained, or the one that was not.
    fn end(store: &mut Store, parts: &[&str]) -> Result<Vec<String>, String> {
        let parts: Vec<Location> = parts.iter().map(|part| part.parse().expect("a location")).collect();
        store.end_drains(&parts).expect("stored").map_err(|part| part.to_string())
    }

    #[test]
    fn a_location_stands_for_all_of_its_parts_and_lists_are_done_as_a_whole() {
        let (_folder, mut store) = store();
        let drain = |location: &str| {
            let (location, reason, user) = (location.to_owned(), "x".to_owned(), "eve".to_owned());
            Drain { location, reason, user, since: now() }
        };
        let mut add = |all: &[&str]| {
            let all: Vec<Drain> = all.iter().map(|location| drain(location)).collect();
            store.add_drains(&all).expect("stored")
        };
        assert_eq!(add(&["R00-M0-N00-J03", "R00-M0-N02", "R00-M0-N01-I00", "R00-M1-N00-J00"]), None);
        assert_eq!(add(&["R01", "R00-M0-N02"]).as_deref(), Some("R00-M0-N02"), "one is drained already");
        let open = |store: &Store| -> Vec<String> {
            store.drains().expect("read").into_iter().map(|drain| drain.location).collect()
        };
        assert_eq!(open(&store).len(), 4, "and the other was not added");
        assert_eq!(end(&mut store, &["R00-M0", "R01"]), Err("R01".to_owned()));
        assert_eq!(open(&store).len(), 4, "nothing was ended");
        assert_eq!(
            end(&mut store, &["R00-M0-N02-J01"]),
            Err("R00-M0-N02-J01".to_owned()),
            "only a part of one"
        );
        let ended = end(&mut store, &["R00-M0", "R00-M0-N02"]).expect("drained");
        assert_eq!(ended, ["R00-M0-N00-J03", "R00-M0-N01-I00", "R00-M0-N02"]);
        assert_eq!(open(&store), ["R00-M1-N00-J00"]);
    }

    #[test]
    fn the_third_event_of_a_code_within_the_window_drains_its_node_and_no_other() {
        let (_folder, mut store) = store();
        let node = "R00-M0-N00-J03";
        let count = |store: &mut Store, location: &str, time| {
            store.add_event(event(location, "node-died", time)).expect("added").len()
        };
        assert_eq!(count(&mut store, node, now() - 4000.0), 1, "outside of the window");
        assert_eq!(count(&mut store, node, now() - 3000.0), 1);
        assert_eq!(count(&mut store, "R00-M0-N00-J04", now()), 1, "another node");
        assert_eq!(count(&mut store, node, now()), 1);
        let added = store.add_event(event(node, "node-died", now())).expect("added");
        assert_eq!(added[1].code, "node-drained");
        assert_eq!(added[1].message, "node-died 3 times within 1 h");
        let drains = store.drains().expect("read");
        assert_eq!((drains.len(), drains[0].location.as_str(), drains[0].user.as_str()), (1, node, OWN));
        assert_eq!(count(&mut store, node, now()), 1, "it is drained already");
        assert_eq!(end(&mut store, &[node]), Ok(vec![node.to_owned()]));
        assert_eq!(end(&mut store, &[node]), Err(node.to_owned()));
        assert_eq!(count(&mut store, node, now()), 1, "what was before has been seen to");
        assert!(store.drains().expect("read").is_empty());
    }

    #[test]
    fn the_end_of_a_midplanes_drain_forgets_the_events_of_its_nodes_only() {
        let (_folder, mut store) = store();
        let whole = Drain { location: "R00-M0".into(), reason: "x".into(), user: "eve".into(), since: now() };
        for location in ["R00-M0-N00-J03", "R00-M1-N00-J03"] {
            for _ in 0..2 {
                store.add_event(event(location, "node-died", now())).expect("added");
            }
        }
        let mut add = || store.add_drains(std::slice::from_ref(&whole)).expect("stored");
        assert_eq!((add(), add()), (None, Some("R00-M0".to_owned())));
        assert!(end(&mut store, &["R00-M0"]).is_ok());
        let ends = |store: &mut Store, location| {
            store.add_event(event(location, "node-died", now())).expect("added").len()
        };
        assert_eq!((ends(&mut store, "R00-M0-N00-J03"), ends(&mut store, "R00-M1-N00-J03")), (1, 2));
    }

    #[test]
    fn thresholds_are_changed_and_switched_off_and_partitions_are_never_drained() {
        let (_folder, mut store) = store();
        let set = |store: &mut Store, code: &str, events| {
            let threshold = Threshold { code: code.to_owned(), events, within_s: 60.0 };
            store.set_threshold(&threshold).expect("stored");
        };
        set(&mut store, "node-died", 0);
        set(&mut store, "partition-lost", 1);
        for _ in 0..5 {
            store.add_event(event("R00-M0-N00-J00", "node-died", now())).expect("added");
            store.add_event(event("R00-M0", "partition-lost", now())).expect("added");
        }
        assert!(store.drains().expect("read").is_empty());
        set(&mut store, "node-died", 1);
        let added = store.add_event(event("R00-M0-N00-J00", "node-died", now())).expect("added");
        assert_eq!(added[1].message, "node-died 6 times within 1 min");
        let rates = store.rates(3600.0, "R00").expect("read");
        assert_eq!((rates[0].code.as_str(), rates[0].events), ("node-died", 6));
        assert!((rates[0].per_hour - 6.0).abs() < 1e-9);
        assert_eq!(store.rates(3600.0, "R01").expect("read"), []);
    }
}
