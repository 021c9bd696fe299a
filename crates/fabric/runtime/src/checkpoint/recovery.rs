// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agreement of all ranks on the checkpoint from which they go on, before any PE runs in a new generation.
//!
//! Each rank sends rank 0 the names of its intact images. Rank 0 chooses the newest checkpoint of which an image of every
//! PE is left, and who sends a copy to whom, so that every image is on its PE's rank and on the buddy's again. A rank that
//! has all its copies tells every other rank, and goes on once all others have told it so: frames of PEs come after that.
//! Without such a checkpoint, rank 0 looks for one on disk; without any, the program begins anew. With logs of messages, only
//! the process that has been replaced goes back, if the others [can go on](crate::logging::exchange::go_on).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::disk::Complete;
use super::store::{Image, Name, Store};
use crate::bulk::Bulk;
use crate::logging::exchange::{GoBack, LogNote, Notes, go_on, send};
use crate::logging::history::History;
use crate::logging::log::{Log, Survivor};
use crate::message::Malformed;
use crate::report::report_line;
use crate::transport::{Transport, TransportError};

/// Bytes of an image in one frame.
const CHUNK: usize = 1 << 20;
/// The longest wait for a frame between two looks.
const WAIT: Duration = Duration::from_millis(10);

/// One copy to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) pe: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// The checkpoint from which the job goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) transfers: Vec<Transfer>,
    /// With logs: the rank that runs again.
    pub(crate) repeats: Option<u32>,
}

/// The state from which the job goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin<T> {
    /// A checkpoint in memory.
    Memory(T),
    /// The same for a process that has been replaced, which runs again; the others go on.
    Log(T),
    /// A checkpoint on disk.
    Disk(Complete),
    /// None: the program begins.
    Anew,
}

/// A frame of the agreement.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    Inventory(Vec<Name>, Option<Survivor>),
    Plan(Origin<Plan>),
    /// A part of an image; all parts come in order.
    Part {
        name: Name,
        length: u64,
        checksum: u32,
        bytes: Bulk<u8>,
    },
    Log(LogNote),
    Ready,
}

/// The ranks of a job, for the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    /// PEs of each rank.
    pub(crate) threads: u32,
    /// The buddy of each rank. Empty if there are no checkpoints.
    pub(crate) buddies: &'a [u32],
}

/// Chooses the newest checkpoint of which every PE's image is left. `inventories` are by rank.
pub(crate) fn plan(inventories: &[Vec<Name>], layout: Layout<'_>) -> Option<Plan> {
    let mut holders = BTreeMap::<u64, BTreeMap<u32, BTreeSet<u32>>>::new();
    for (rank, names) in (0..).zip(inventories) {
        for &(number, pe) in names {
            holders.entry(number).or_default().entry(pe).or_default().insert(rank);
        }
    }
    let pes = inventories.len() as u32 * layout.threads;
    let (&number, of_pes) =
        holders.iter().rev().find(|(_, of_pes)| (0..pes).all(|pe| of_pes.contains_key(&pe)))?;
    let mut transfers = Vec::new();
    for (&pe, ranks) in of_pes.range(..pes) {
        let own = pe / layout.threads;
        let buddy = layout.buddies.get(own as usize).copied();
        for to in std::iter::once(own).chain(buddy).filter(|rank| !ranks.contains(rank)) {
            if let Some(&from) = ranks.first() {
                transfers.push(Transfer { pe, from, to });
            }
        }
    }
    Some(Plan { number, transfers, repeats: None })
}

/// The agreement, on one rank.
struct Agreement<'a> {
    transport: &'a mut dyn Transport,
    store: &'a Store,
    /// At rank 0.
    inventories: BTreeMap<u32, (Vec<Name>, Option<Survivor>)>,
    plan: Option<Origin<Plan>>,
    /// Images of which parts have arrived.
    parts: BTreeMap<Name, (Vec<u8>, u64, u32)>,
    logs: Notes,
    ready: BTreeSet<u32>,
    /// Frames of PEs of other ranks that went on earlier.
    early: Vec<(u32, Vec<u8>)>,
}

/// The outcome of the agreement on one rank.
#[derive(Debug)]
pub(crate) struct Agreed {
    /// The checkpoint; images of one in memory are in the store now.
    pub(crate) origin: Origin<u64>,
    /// At rank 0: why all ranks go back although messages are logged.
    pub(crate) why: Option<GoBack>,
    /// With [`Origin::Log`]: the rank that runs again, and what all ranks have of this one, by their ranks.
    pub(crate) repeats: Option<u32>,
    pub(crate) histories: Vec<History>,
    /// Frames that have arrived for the PEs.
    pub(crate) early: Vec<(u32, Vec<u8>)>,
}

/// Agrees with all other ranks, which call this too. `disk` is the newest checkpoint on disk; a process that has a log and
/// has not been replaced gives it with what it says of itself.
///
/// # Errors
/// [`TransportError`]: another rank dies meanwhile.
pub(crate) fn agree(
    transport: &mut dyn Transport,
    store: &Store,
    layout: Layout<'_>,
    disk: &dyn Fn() -> Option<Complete>,
    survivor: Option<(Survivor, &Log)>,
) -> Result<Agreed, TransportError> {
    let (rank, size) = (transport.rank(), transport.size());
    let (intact, broken) = store.inventory();
    for (number, pe) in broken {
        report_line!(
            "warning: the copy of PE {pe} in checkpoint {number} on rank {rank} is corrupt; the other copy is used"
        );
    }
    let mut agreement = Agreement {
        transport,
        store,
        inventories: BTreeMap::new(),
        plan: None,
        parts: BTreeMap::new(),
        logs: Notes::new(size),
        ready: BTreeSet::new(),
        early: Vec::new(),
    };
    let (survivor, log) = survivor.unzip();
    let mut why = None;
    if rank == 0 {
        agreement.inventories.insert(0, (intact, survivor));
        agreement.receive_until(|a| a.inventories.len() == size as usize)?;
        let inventories = std::mem::take(&mut agreement.inventories).into_values();
        let (inventories, survivors): (Vec<_>, Vec<_>) = inventories.unzip();
        let plan = match (plan(&inventories, layout), go_on(&survivors)) {
            (Some(plan), Ok((epoch, repeats))) if plan.number + 1 == epoch => {
                Origin::Log(Plan { repeats, ..plan })
            }
            (plan, went_on) => {
                why = Some(went_on.err().unwrap_or(GoBack::NoImage)).filter(|why| *why != GoBack::NoLog);
                plan.map(Origin::Memory).or_else(|| disk().map(Origin::Disk)).unwrap_or(Origin::Anew)
            }
        };
        for to in 1..size {
            agreement.send(to, &Note::Plan(plan.clone()))?;
        }
        agreement.plan = Some(plan);
    } else {
        agreement.send(0, &Note::Inventory(intact, survivor))?;
        agreement.receive_until(|a| a.plan.is_some())?;
    }
    let mut repeats = None;
    let origin = match agreement.plan.take() {
        Some(Origin::Log(plan)) => {
            agreement.exchange(&plan)?;
            agreement.store.keep_only(plan.number);
            repeats = plan.repeats;
            agreement.exchange_logs(log, repeats)?;
            Origin::Log(plan.number)
        }
        Some(Origin::Memory(plan)) => {
            agreement.exchange(&plan)?;
            agreement.store.keep_only(plan.number);
            Origin::Memory(plan.number)
        }
        Some(Origin::Disk(complete)) => {
            agreement.store.clear();
            Origin::Disk(complete)
        }
        Some(Origin::Anew) | None => {
            agreement.store.clear();
            Origin::Anew
        }
    };
    for to in (0..size).filter(|to| *to != rank) {
        agreement.send(to, &Note::Ready)?;
    }
    agreement.receive_until(|a| a.ready.len() + 1 == size as usize)?;
    Ok(Agreed { origin, why, repeats, histories: agreement.logs.histories, early: agreement.early })
}

impl Agreement<'_> {
    fn send(&mut self, to: u32, note: &Note) -> Result<(), TransportError> {
        let mut frame = postcard::to_allocvec(note).map_err(|e| malformed(&e))?;
        self.transport.send(to, &mut frame)
    }

    /// Sends and receives the copies of a plan.
    fn exchange(&mut self, plan: &Plan) -> Result<(), TransportError> {
        let rank = self.transport.rank();
        for transfer in plan.transfers.iter().filter(|transfer| transfer.from == rank) {
            let name = (plan.number, transfer.pe);
            let Some(image) = self.store.get(name) else { continue };
            let (length, checksum) = (image.length(), image.checksum());
            for part in image.chunks(CHUNK) {
                let bytes = Bulk(part.to_vec());
                self.send(transfer.to, &Note::Part { name, length, checksum, bytes })?;
            }
        }
        let wanted: Vec<Name> =
            plan.transfers.iter().filter(|t| t.to == rank).map(|t| (plan.number, t.pe)).collect();
        self.receive_until(|a| wanted.iter().all(|name| a.store.get(*name).is_some()))
    }

    /// Sends and receives what PEs need to go on where they are, and what the one that runs again needs.
    fn exchange_logs(&mut self, log: Option<&Log>, repeats: Option<u32>) -> Result<(), TransportError> {
        let (rank, size) = (self.transport.rank(), self.transport.size());
        for to in (0..size).filter(|to| *to != rank) {
            send(log, to, repeats == Some(to), |note| self.send(to, &Note::Log(note)))?;
        }
        self.receive_until(|a| a.logs.are_complete())
    }

    /// Takes notes until a condition holds.
    fn receive_until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), TransportError> {
        while !holds(self) {
            let mut frames = Vec::new();
            if self.transport.poll(&mut |from, frame| frames.push((from, frame.to_vec())))? {
                for (from, frame) in frames {
                    self.take(from, frame)?;
                }
            } else {
                self.transport.wait(WAIT)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, from: u32, frame: Vec<u8>) -> Result<(), TransportError> {
        if self.ready.contains(&from) {
            self.early.push((from, frame));
            return Ok(());
        }
        match postcard::from_bytes(&frame).map_err(|e| malformed(&e))? {
            Note::Inventory(names, survivor) => {
                self.inventories.insert(from, (names, survivor));
            }
            Note::Plan(plan) => self.plan = Some(plan),
            Note::Part { name, length, checksum, bytes } => {
                let (image, ..) = self.parts.entry(name).or_insert_with(|| (Vec::new(), length, checksum));
                image.extend_from_slice(&bytes);
                if image.len() as u64 >= length
                    && let Some((bytes, _, checksum)) = self.parts.remove(&name)
                {
                    self.store.put(name, Image::with_checksum(bytes, checksum));
                }
            }
            Note::Log(note) => self.logs.take(from, note),
            Note::Ready => {
                self.ready.insert(from);
            }
        }
        Ok(())
    }
}

impl From<Malformed> for TransportError {
    fn from(error: Malformed) -> Self {
        Self::Failed { doing: "reading the log of messages".to_owned(), reason: error.to_string() }
    }
}

fn malformed(error: &postcard::Error) -> TransportError {
    TransportError::Failed { doing: "agreeing on a checkpoint".to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::memory::Memory;

    const FIRST: [Origin<u64>; 3] = [Origin::Memory(1), Origin::Memory(1), Origin::Memory(1)];
    const LAYOUT: Layout<'static> = Layout { threads: 2, buddies: &[1, 2, 0] };

    fn image(number: u64, pe: u32) -> Vec<u8> {
        (0..CHUNK + 1000).map(|i| (i as u64 * 31 + number * 7 + u64::from(pe)) as u8).collect()
    }

    /// The stores of three ranks that have committed checkpoint 1.
    fn stores() -> Vec<Store> {
        let stores: Vec<Store> = (0..3).map(|_| Store::default()).collect();
        for pe in 0..6 {
            let own = pe as usize / 2;
            for rank in [own, LAYOUT.buddies[own] as usize] {
                stores[rank].put((1, pe), Image::new(image(1, pe)));
            }
        }
        stores
    }

    fn agree_all(stores: &[Store]) -> Vec<Origin<u64>> {
        std::thread::scope(|scope| {
            let ranks = Memory::ranks(stores.len() as u32).into_iter().zip(stores);
            let handles: Vec<_> = ranks
                .map(|(mut memory, store)| {
                    scope.spawn(move || agree(&mut memory, store, LAYOUT, &|| None, None).expect("no death"))
                })
                .collect();
            handles.into_iter().map(|h| h.join().expect("no panic").origin).collect()
        })
    }

    fn assert_whole(stores: &[Store], number: u64) {
        for pe in 0..6u32 {
            let own = pe as usize / 2;
            for rank in [own, LAYOUT.buddies[own] as usize] {
                let copy = stores[rank].get((number, pe)).expect("a copy");
                assert!(copy.is_intact() && *copy.bytes() == image(number, pe), "rank {rank}, PE {pe}");
            }
        }
    }

    #[test]
    fn the_images_of_any_rank_that_died_come_from_its_buddy_and_both_copies_are_there_again() {
        for dead in 0..3 {
            let mut stores = stores();
            stores[dead] = Store::default();
            assert_eq!(agree_all(&stores), FIRST);
            assert_whole(&stores, 1);
        }
    }

    #[test]
    fn a_corrupt_copy_is_not_used() {
        for rank in 0..3 {
            let stores = stores();
            let pe = rank as u32 * 2;
            let mut broken = image(1, pe);
            broken[77] ^= 4;
            let checksum = crc32fast::hash(&image(1, pe));
            stores[rank].put((1, pe), Image::with_checksum(broken, checksum));
            assert_eq!(agree_all(&stores), FIRST);
            assert_whole(&stores, 1);
        }
    }

    #[test]
    fn a_death_during_a_checkpoint_leaves_the_one_before() {
        let stores = stores();
        // PE 0's new image has not reached its buddy, and its rank has died
        (1..6).for_each(|pe| stores[pe as usize / 2].put((2, pe), Image::new(image(2, pe))));
        let survivors = [Store::default(), stores[1].clone(), stores[2].clone()];
        assert_eq!(agree_all(&survivors), FIRST);
        assert_whole(&survivors, 1);
    }

    #[test]
    fn a_rank_and_its_buddy_that_die_at_once_take_the_checkpoint_with_them() {
        let mut stores = stores();
        (stores[0], stores[1]) = (Store::default(), Store::default());
        assert_eq!(agree_all(&stores), [Origin::Anew, Origin::Anew, Origin::Anew]);
        assert_eq!(stores[2].bytes(), 0);
    }

    proptest! {
        #[test]
        fn the_plan_is_the_newest_whole_checkpoint_and_sends_only_what_is_missing(
            held in prop::collection::vec(prop::collection::btree_set((0u64..3, 0u32..6), 0..18), 3),
        ) {
            let inventories: Vec<Vec<Name>> = held.iter().map(|names| names.iter().copied().collect()).collect();
            let is_whole = |number: u64| (0..6).all(|pe| held.iter().any(|names| names.contains(&(number, pe))));
            let newest = (0..3).rev().find(|number| is_whole(*number));
            let plan = plan(&inventories, LAYOUT);
            prop_assert_eq!(plan.as_ref().map(|plan| plan.number), newest);
            let Some(plan) = plan else { return Ok(()) };
            let mut after = held.clone();
            for Transfer { pe, from, to } in plan.transfers {
                prop_assert!(held[from as usize].contains(&(plan.number, pe)));
                prop_assert!(after[to as usize].insert((plan.number, pe)), "sent twice or needlessly");
            }
            for pe in 0..6u32 {
                let own = pe / 2;
                for rank in [own, LAYOUT.buddies[own as usize]] {
                    prop_assert!(after[rank as usize].contains(&(plan.number, pe)));
                }
            }
        }
    }
}
