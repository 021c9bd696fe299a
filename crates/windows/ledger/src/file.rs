// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of the ledger: one a node for root, one for each other user.

use std::fs;
use std::io;
use std::path::Path;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use super::record::{Entry, Layer, Owner, Record};
use crate::state::Form;

/// The largest file: some 700,000 tasks. A kernel has numbers for four million, but no memory of a node for their stacks.
pub(crate) const LARGEST: u64 = 32 << 20;

/// Version 2 has transactions among its owners; what version 1 has is read, too.
const FORM: Form = Form { name: "colony.ledger", version: 2, largest: LARGEST };

/// The record as it is written: affinities and owners are named by their place in a list, because thousands of tasks share them.
#[derive(Serialize, Deserialize)]
struct Saved {
    affinities: Vec<CpuSet>,
    owners: Vec<Owner>,
    tasks: Vec<SavedTask>,
    #[serde(default)]
    order: u64,
}

/// Number and start of a task, the place of its own affinity, and its layers: the place of the owner, and of what the owner gave.
type SavedTask = (i32, u64, usize, Vec<(usize, Option<usize>)>);

/// The record in a file; an empty one if there is no file, or one of another boot.
///
/// # Errors
/// As [`Form::read`]: [`InvalidData`](io::ErrorKind::InvalidData) only if the bytes are wrong.
pub(crate) fn load(path: &Path) -> io::Result<Record> {
    match FORM.read(path) {
        Ok(None) => Ok(Record::default()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
        Ok(Some(saved)) => record(saved).ok_or_else(|| {
            let reason = "it names affinities or owners that it does not have";
            io::Error::new(io::ErrorKind::InvalidData, reason)
        }),
        Err(e) => Err(e),
    }
}

/// Writes the record; an empty one removes the file.
///
/// # Errors
/// A record that would be larger than [`LARGEST`], or what the file system says. The file is as it was then.
pub(crate) fn save(path: &Path, record: &Record) -> io::Result<()> {
    if record.tasks.is_empty() && record.owners.is_empty() {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    }
    FORM.write(path, &saved(record))
}

fn record(saved: Saved) -> Option<Record> {
    let mut record = Record::default();
    for (tid, start_ticks, own, layers) in saved.tasks {
        let layer = |(owner, given): (usize, Option<usize>)| {
            let given = match given {
                Some(at) => Some(saved.affinities.get(at)?.clone()),
                None => None,
            };
            Some(Layer { owner: saved.owners.get(owner)?.id.clone(), given })
        };
        let layers = layers.into_iter().map(layer).collect::<Option<Vec<Layer>>>()?;
        let own = saved.affinities.get(own)?.clone();
        record.tasks.insert(TaskId { tid, start_ticks }, Entry { own, layers });
    }
    (record.owners, record.order) = (saved.owners, saved.order);
    Some(record)
}

fn saved(record: &Record) -> Saved {
    let mut affinities: Vec<CpuSet> = Vec::new();
    let mut place = |cpus: &CpuSet| {
        affinities.iter().position(|known| known == cpus).unwrap_or_else(|| {
            affinities.push(cpus.clone());
            affinities.len() - 1
        })
    };
    let mut tasks = Vec::with_capacity(record.tasks.len());
    for (task, entry) in &record.tasks {
        let own = place(&entry.own);
        let layers = entry.layers.iter().filter_map(|layer| {
            let owner = record.owners.iter().position(|owner| owner.id == layer.owner)?;
            Some((owner, layer.given.as_ref().map(&mut place)))
        });
        tasks.push((task.tid, task.start_ticks, own, layers.collect()));
    }
    Saved { affinities, owners: record.owners.clone(), tasks, order: record.order }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Narrowing, OwnerId};
    use crate::state::boot;

    fn set(list: &str) -> CpuSet {
        list.parse().expect("a list")
    }

    fn some_record() -> Record {
        let process = TaskId { tid: 7, start_ticks: 70 };
        let id = OwnerId::Process { process, serial: 3 };
        let transaction = OwnerId::Transaction { journal: "/run/journal.json".into() };
        let owner = Owner {
            id: id.clone(),
            resets: vec![set("0-3")],
            narrows: Some(Narrowing { taken: set("3"), rest: set("0-2") }),
            members: vec![process],
            earlier: Vec::new(),
        };
        let other = Owner { id: transaction.clone(), resets: Vec::new(), narrows: None, ..owner.clone() };
        let layers =
            vec![Layer { owner: id, given: Some(set("1")) }, Layer { owner: transaction, given: None }];
        let tasks = [(TaskId { tid: 9, start_ticks: 90 }, Entry { own: set("0-1"), layers })];
        Record { owners: vec![owner, other], tasks: tasks.into(), order: 4 }
    }

    #[test]
    fn what_is_written_is_read_again_and_an_empty_record_leaves_no_file() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("ledger");
        assert_eq!(load(&path).expect("no file"), Record::default());
        save(&path, &some_record()).expect("writable");
        assert_eq!(load(&path).expect("own text"), some_record());
        save(&path, &Record::default()).expect("removable");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_another_boot_is_empty_and_one_of_another_form_is_an_error() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("ledger");
        save(&path, &some_record()).expect("writable");
        let text = fs::read_to_string(&path).expect("readable");
        fs::write(&path, text.replace(&boot().expect("linux"), "another boot")).expect("writable");
        assert_eq!(load(&path).expect("readable"), Record::default());
        let kind_of = |text: String| {
            fs::write(&path, text).expect("writable");
            load(&path).expect_err("another form").kind()
        };
        // what a newer version has changed is for that version to undo
        let newer = text.replace("colony.ledger/2", "colony.ledger/3").replace("\"tasks\"", "\"unheard-of\"");
        assert_eq!(kind_of(newer), io::ErrorKind::Unsupported);
        for damaged in [text.replace("colony.ledger/2", "colony.dinner/2"), text[..text.len() / 2].to_owned()]
        {
            assert_eq!(kind_of(damaged), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_ledger_of_the_version_before_is_read() {
        let file = tempfile::NamedTempFile::new().expect("temp dir");
        let what = r#"{"affinities":["0-1","1"],"tasks":[[9,90,0,[[0,1]]]],"owners":[
            {"id":{"process":{"tid":7,"start_ticks":70},"serial":3},"resets":[],"members":[],"earlier":[]}]}"#;
        let boot = boot().expect("linux");
        let text = format!(r#"{{"schema":"colony.ledger/1","boot":"{boot}","what":{what}}}"#);
        fs::write(file.path(), text).expect("writable");
        let record = load(file.path()).expect("the version before");
        let process = TaskId { tid: 7, start_ticks: 70 };
        assert_eq!(record.owners[0].id, OwnerId::Process { process, serial: 3 });
        assert_eq!(record.tasks.len(), 1);
    }

    #[test]
    fn a_file_that_is_too_large_is_an_error_that_names_the_limit_and_the_file_stays() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("ledger");
        fs::File::create(&path).and_then(|file| file.set_len(LARGEST + 1)).expect("a sparse file");
        assert!(load(&path).is_err_and(|e| e.to_string().contains(&LARGEST.to_string())));
        assert!(path.exists());
    }

    #[test]
    fn a_record_that_is_too_large_is_not_written_and_the_file_stays() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("ledger");
        save(&path, &some_record()).expect("writable");
        let mut large = some_record();
        let journal = "x".repeat(usize::try_from(LARGEST).expect("a size")).into();
        large.owners[1].id = OwnerId::Transaction { journal };
        assert!(save(&path, &large).is_err_and(|e| e.to_string().contains("33554432")));
        assert_eq!(load(&path).expect("own text"), some_record());
    }

    #[test]
    fn names_of_affinities_that_are_not_there_are_an_error() {
        let mut other = saved(&some_record());
        other.affinities.pop();
        assert_eq!(record(other), None);
    }

    proptest! {
        #[test]
        fn no_content_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let file = tempfile::NamedTempFile::new().expect("temp dir");
            fs::write(file.path(), bytes).expect("writable");
            prop_assert!(load(file.path()).is_err());
        }
    }
}
