// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users who may run jobs on a partition, in the database.

use rusqlite::params;

use super::Store;
use crate::ControlError;
use crate::api::{Holder, RightsRequest};

/// A holder as the database has it. Names have no line breaks.
fn text(holder: &Holder) -> String {
    match holder {
        Holder::User(name) => format!("user {name}"),
        Holder::Group(name) => format!("group {name}"),
    }
}

fn parsed(text: &str) -> Option<Holder> {
    match text.split_once(' ')? {
        ("user", name) => Some(Holder::User(name.to_owned())),
        ("group", name) => Some(Holder::Group(name.to_owned())),
        _ => None,
    }
}

impl Store {
    /// Those who may run jobs on a partition.
    pub(crate) fn rights(&self, partition: &str) -> Result<Vec<Holder>, ControlError> {
        self.read(|db| {
            let mut query = db.prepare("SELECT holder FROM rights WHERE partition = ? ORDER BY holder")?;
            let all = query.query_map([partition], |row| row.get::<_, String>(0))?;
            // what is none stays one who is allowed, so that an unknown word does not open the partition to all
            all.map(|text| text.map(|text| parsed(&text).unwrap_or(Holder::User(text)))).collect()
        })
    }

    pub(crate) fn set_rights(&mut self, partition: &str, change: &RightsRequest) -> Result<(), ControlError> {
        let statement = match change.may_run {
            true => "INSERT OR IGNORE INTO rights (partition, holder) VALUES (?, ?)",
            false => "DELETE FROM rights WHERE partition = ? AND holder = ?",
        };
        self.change(|all| all.execute(statement, params![partition, text(&change.holder)]).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::store;

    #[test]
    fn rights_are_kept_by_partition_and_end_with_it() {
        let (_folder, mut store) = store();
        let (eve, staff) = (Holder::User("eve".into()), Holder::Group("staff".into()));
        let set = |store: &mut Store, partition, holder: &Holder, may_run| {
            let change = RightsRequest { holder: holder.clone(), may_run };
            store.set_rights(partition, &change).expect("stored");
        };
        set(&mut store, "A", &eve, true);
        set(&mut store, "A", &eve, true);
        set(&mut store, "A", &staff, true);
        set(&mut store, "B", &staff, true);
        assert_eq!(store.rights("A").expect("read"), [staff.clone(), eve.clone()]);
        set(&mut store, "A", &staff, false);
        assert_eq!(store.rights("A").expect("read"), [eve]);
        store.remove_partition("A").expect("removed");
        assert_eq!(store.rights("A").expect("read"), []);
        assert_eq!(store.rights("B").expect("read"), [staff]);
    }
}
