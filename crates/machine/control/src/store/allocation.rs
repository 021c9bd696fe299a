// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocation of a site's scheduler in the database.

use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::{Store, parsed};
use crate::ControlError;
use crate::api::{Allocation, word};

fn allocation(row: &Row<'_>) -> rusqlite::Result<Allocation> {
    Ok(Allocation {
        scheduler: parsed(0, row.get(0)?)?,
        job: row.get(1)?,
        hosts: row.get(2)?,
        cpus: row.get(3)?,
        memory_mib: row.get(4)?,
        ends: row.get(5)?,
        stops: row.get(6)?,
    })
}

/// Replaces the allocation.
pub(super) fn set(all: &Transaction<'_>, new: Option<&Allocation>) -> rusqlite::Result<()> {
    all.execute("DELETE FROM allocation", [])?;
    let Some(Allocation { scheduler, job, hosts, cpus, memory_mib, ends, stops }) = new else {
        return Ok(());
    };
    let values = params![word(scheduler), job, hosts, cpus, memory_mib, ends, stops];
    all.execute("INSERT INTO allocation VALUES (1, ?, ?, ?, ?, ?, ?, ?)", values).map(drop)
}

impl Store {
    /// The allocation that the machine is a part of.
    pub(crate) fn allocation(&self) -> Result<Option<Allocation>, ControlError> {
        let text = "SELECT scheduler, job, hosts, cpus, memory_mib, ends, stops FROM allocation";
        self.read(|db| db.query_row(text, [], allocation).optional())
    }

    /// The machine is a part of no allocation any more.
    pub(crate) fn forget_allocation(&mut self) -> Result<(), ControlError> {
        self.change(|all| set(all, None))
    }
}

#[cfg(test)]
mod tests {
    use colony_model::Shape;

    use super::*;
    use crate::api::Scheduler;
    use crate::store::tests::store;

    #[test]
    fn an_allocation_belongs_to_one_machine_and_is_found_again() {
        let (folder, mut store) = store();
        assert_eq!(store.allocation().expect("read"), None);
        let own = Allocation {
            scheduler: Scheduler::Slurm,
            job: "77".to_owned(),
            hosts: 2,
            cpus: 4,
            memory_mib: Some(2000),
            ends: Some(1_800_000_000.0),
            stops: Some(1_799_999_940.5),
        };
        store.set_machine(Shape::MIDPLANE, Some(&own)).expect("stored");
        drop(store);
        let mut store = Store::open(&folder.path().join("machine.db")).expect("a database");
        assert_eq!(store.allocation().expect("read").as_ref(), Some(&own));
        let endless = Allocation { memory_mib: None, ends: None, stops: None, ..own };
        store.set_machine(Shape::MIDPLANE, Some(&endless)).expect("stored");
        assert_eq!(store.allocation().expect("read"), Some(endless.clone()));
        store.set_machine(Shape::MIDPLANE, None).expect("stored");
        assert_eq!(store.allocation().expect("read"), None);
        store.set_machine(Shape::MIDPLANE, Some(&endless)).expect("stored");
        store.forget_allocation().expect("stored");
        assert_eq!(store.allocation().expect("read"), None);
        assert_eq!(store.machine().expect("read"), Some(Shape::MIDPLANE));
    }
}
