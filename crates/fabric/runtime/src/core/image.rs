// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of a PE: its objects and all that the runtime keeps for them, when no message is under way.
//!
//! The packed states of the objects come first, then the [`Head`], then the head's length (8 bytes): so the states are
//! packed without a copy, whatever their sizes. Before the states are the fields that are pieces of their own.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::send::pack_payload;
use super::{ArrayState, Core, Vacant};
use crate::address::{Address, ArrayId};
use crate::broadcasts::Broadcasts;
use crate::checkpoint::disk::Complete;
use crate::checkpoint::draft::{Added, Draft};
use crate::checkpoint::fields::{NotPacked, with_fields};
use crate::checkpoint::store::Name;
use crate::class::Classes;
use crate::element::Element;
use crate::index::Index;
use crate::ledger::Ledger;
use crate::location::Place;
use crate::logging::history::History;
use crate::message::{Envelope, Malformed, pack, unpack};
use crate::order::Outgoing;
use crate::parcel::{PackedLedger, pack_ledger, unpack_ledger};
use crate::reduction::{Callback, Reductions};
use crate::schema::{ClassNumbers, ClassSchema, Description, Schema};
use crate::section::SectionName;
use crate::shape::{Map, Shape};

/// Bytes of the head's length.
const LENGTH: usize = 8;

/// What a checkpoint on disk and a program that reads it have in common, of these classes.
fn describe(classes: Vec<ClassSchema>) -> Description {
    static RUNTIME: OnceLock<u32> = OnceLock::new();
    let runtime = *RUNTIME.get_or_init(|| Schema::of::<Head>().digest());
    Description { build: crate::build::id(), runtime, classes }
}

/// The description of a program, for the checkpoint that it restarts from.
pub(crate) fn describe_program(classes: &Classes<Core>) -> Description {
    describe(classes.schemas().to_vec())
}

/// Everything of an image but the states of objects.
#[derive(Serialize, Deserialize)]
struct Head {
    number: u64,
    /// The round of load balancing that has ended.
    round: u64,
    pe: u32,
    pes: u32,
    arrays: Vec<ArrayHead>,
    elements: Vec<ElementHead>,
    places: Vec<(Address, Place)>,
    outgoing: Outgoing,
    next_array: u32,
    sections: Vec<(SectionName, Reductions)>,
    /// At PE 0: callbacks at quiescence.
    callbacks: Vec<Callback>,
    away: BTreeSet<u32>,
    /// Messages are logged from here on.
    logs: bool,
}

#[derive(Serialize, Deserialize)]
struct ArrayHead {
    id: ArrayId,
    class: u16,
    shape: Shape,
    map: Map,
    balanced: bool,
    broadcasts: Broadcasts,
    reductions: Reductions,
    at_root: Reductions,
    vacant: Vec<VacantHead>,
}

/// A removed element.
#[derive(Serialize, Deserialize)]
struct VacantHead {
    index: Index,
    epoch: u32,
    requests: u32,
    ledger: Option<PackedLedger>,
}

#[derive(Serialize, Deserialize)]
struct ElementHead {
    address: Address,
    epoch: u32,
    /// Bytes of its packed state, without fields that are pieces of their own, and bytes of these.
    bytes: u64,
    fields: Vec<u64>,
    ledger: PackedLedger,
}

fn wrong(reason: impl ToString) -> Malformed {
    Malformed::new("the image", reason)
}

/// The fields of all objects, and their states without these.
struct Packed<'a> {
    fields: &'a [u8],
    states: &'a [u8],
}

/// The head of an image, and its objects.
fn split(bytes: &[u8]) -> Result<(Head, Packed<'_>), Malformed> {
    let (rest, length) = bytes.split_last_chunk::<LENGTH>().ok_or_else(|| wrong("has no end"))?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    let split = length.and_then(|length| rest.len().checked_sub(length));
    let (objects, head) = rest.split_at(split.ok_or_else(|| wrong("is shorter than its head"))?);
    let head: Head = unpack(head)?;
    let mut states = objects;
    let fields = head.elements.iter().map(ElementHead::field_bytes).fold(0, u64::saturating_add);
    let fields = take(&mut states, fields)?;
    Ok((head, Packed { fields, states }))
}

/// Takes so many bytes off others.
fn take<'a>(from: &mut &'a [u8], bytes: u64) -> Result<&'a [u8], Malformed> {
    let split = usize::try_from(bytes).ok().and_then(|bytes| from.split_at_checked(bytes));
    let (taken, rest) = split.ok_or_else(|| wrong("ends inside the state of an object"))?;
    *from = rest;
    Ok(taken)
}

impl Head {
    /// Gives the arrays the numbers that their classes have in this program.
    fn renumber_classes(&mut self, numbers: &ClassNumbers) -> Result<(), Malformed> {
        for array in &mut self.arrays {
            let number = numbers.get(&array.class);
            array.class = *number.ok_or_else(|| wrong("has a class that its file does not describe"))?;
        }
        Ok(())
    }
}

impl ElementHead {
    fn field_bytes(&self) -> u64 {
        self.fields.iter().copied().fold(0, u64::saturating_add)
    }

    /// Takes the element's state off those that are left.
    fn state<'a>(&self, left: &mut Packed<'a>) -> Result<Packed<'a>, Malformed> {
        let fields = take(&mut left.fields, self.field_bytes())?;
        Ok(Packed { fields, states: take(&mut left.states, self.bytes)? })
    }
}

/// An image while it is packed: the states of all objects, which are in these slots.
pub(super) struct States {
    pub(super) draft: Draft,
    objects: Vec<(u32, Added)>,
}

/// Takes a ledger out of its place, for as long as it is packed.
fn taken(ledger: &mut Ledger<Envelope>) -> Ledger<Envelope> {
    std::mem::replace(ledger, Ledger::new(0, 0))
}

impl Core {
    /// Packs the early messages of a ledger.
    fn packed_ledger(&self, ledger: Ledger<Envelope>) -> Result<PackedLedger, Malformed> {
        pack_ledger(ledger, &|envelope, into| pack_payload(self.classes, &self.arrays, envelope, into))
    }

    /// Packs the states of all objects.
    pub(super) fn pack_states(&mut self, name: Name) -> Result<States, NotPacked> {
        let mut draft = self.checkpoints.draft(name)?;
        let mut objects = Vec::new();
        for (slot, element) in self.slots.iter() {
            let added = draft.add(|into| match (&element.object, self.classes.get(element.class)) {
                (Some(object), Some(info)) => (info.pack)(&**object, into),
                _ => Ok(()),
            });
            let added = added.map_err(|error| match error {
                NotPacked::Malformed(Malformed { what, reason }) => NotPacked::Malformed(Malformed::new(
                    self.show(element.address),
                    format!("{what} {reason}"),
                )),
                error => error,
            });
            objects.push((slot, added?));
        }
        Ok(States { draft, objects })
    }

    /// What a file says of the classes of this PE's arrays.
    pub(super) fn describe_image(&self) -> Description {
        let is_used = |schema: &&ClassSchema| self.arrays.values().any(|array| array.class == schema.number);
        describe(self.classes.schemas().iter().filter(is_used).cloned().collect())
    }

    /// Appends what the runtime keeps for the objects.
    pub(super) fn write_head(
        &mut self,
        number: u64,
        round: u64,
        states: &mut States,
    ) -> Result<(), Malformed> {
        let mut elements = Vec::with_capacity(states.objects.len());
        for (slot, added) in &states.objects {
            let Some(element) = self.slots.get_mut(*slot) else { continue };
            let (address, epoch) = (element.address, element.epoch);
            let ledger = taken(&mut element.ledger);
            let ledger = self.packed_ledger(ledger)?;
            let Added { bytes, fields } = added.clone();
            elements.push(ElementHead { address, epoch, bytes, fields, ledger });
        }
        let arrays = self.array_heads()?;
        let head = Head {
            number,
            round,
            pe: self.pe(),
            pes: self.pes(),
            arrays,
            elements,
            places: self.locations.all().collect(),
            outgoing: self.outgoing.clone(),
            next_array: self.next_array,
            sections: self.sections.iter().map(|(name, section)| (*name, section.clone())).collect(),
            callbacks: self.quiescence.callbacks.clone(),
            away: self.evacuation.away.clone(),
            logs: self.checkpoints.logs,
        };
        let into = states.draft.rest();
        let before = into.len();
        pack(&head, into)?;
        let length = (into.len() - before) as u64;
        into.extend_from_slice(&length.to_le_bytes());
        self.put_ledgers_back(head, &states.objects);
        Ok(())
    }

    fn array_heads(&mut self) -> Result<Vec<ArrayHead>, Malformed> {
        let mut heads = Vec::with_capacity(self.arrays.len());
        let ids: Vec<ArrayId> = self.arrays.keys().copied().collect();
        for id in ids {
            let Some(array) = self.arrays.get_mut(&id) else { continue };
            let vacant = std::mem::take(&mut array.vacant);
            let mut packed = Vec::with_capacity(vacant.len());
            for (index, Vacant { epoch, requests, ledger }) in vacant {
                let ledger = ledger.map(|ledger| self.packed_ledger(*ledger)).transpose()?;
                packed.push(VacantHead { index, epoch, requests, ledger });
            }
            let Some(array) = self.arrays.get(&id) else { continue };
            heads.push(ArrayHead {
                id,
                class: array.class,
                shape: array.shape,
                map: array.map,
                balanced: array.balanced,
                broadcasts: array.broadcasts.clone(),
                reductions: array.reductions.without_elements(),
                at_root: array.at_root.clone(),
                vacant: packed,
            });
        }
        Ok(heads)
    }

    /// Gives the ledgers back that an image was packed from.
    fn put_ledgers_back(&mut self, head: Head, objects: &[(u32, Added)]) {
        for (element, &(slot, _)) in head.elements.into_iter().zip(objects) {
            if let Some(place) = self.slots.get_mut(slot) {
                place.ledger = unpack_ledger(element.ledger);
            }
        }
        for array in head.arrays {
            if let Some(place) = self.arrays.get_mut(&array.id) {
                place.vacant = vacancies(array.vacant);
            }
        }
    }

    /// Makes this PE, which is new, what it was in a checkpoint. The objects resume. With `histories`, the PE runs again from there.
    pub(crate) fn restore(&mut self, number: u64, histories: Option<Vec<History>>) {
        let pe = self.pe();
        let Some(image) = self.checkpoints.image(number, pe) else {
            return self.fail_program(format!("PE {pe} has no image in checkpoint {number}"));
        };
        match self.read_image(&image.bytes()) {
            Ok(round) => self.go_on(number, round, histories),
            Err(error) => self.fail_program(format!("the image of PE {pe} in checkpoint {number}: {error}")),
        }
    }

    /// The objects, which have been restored, resume at the end of the round that the checkpoint ended.
    fn go_on(&mut self, number: u64, round: u64, histories: Option<Vec<History>>) {
        self.checkpoints.restore(number, round);
        if let Some(log) = &mut self.port.log {
            log.restore(number + 1, self.checkpoints.logs);
            // before anything is sent: others may have received what the objects and the runtime send as they resume
            if let Some(histories) = histories {
                log.begin_repeat(histories);
            }
        }
        self.run_restored();
        self.resume_all(round);
    }

    /// Begins with the round that a checkpoint ended, before the first object is restored.
    pub(super) fn restore_round(&mut self, round: u64) {
        self.balancer.sync.restore(round);
        // PE 0 has ended the round before the checkpoint
        self.balancer.detector.restore(round + 1);
    }

    /// Returns the round of load balancing that the image was made in.
    fn read_image(&mut self, bytes: &[u8]) -> Result<u64, Malformed> {
        let (head, states) = split(bytes)?;
        self.read_parts(head, states)
    }

    fn read_parts(&mut self, head: Head, states: Packed<'_>) -> Result<u64, Malformed> {
        if (head.pe, head.pes) != (self.pe(), self.pes()) {
            return Err(wrong(format!("is that of PE {} of {}", head.pe, head.pes)));
        }
        self.restore_round(head.round);
        self.outgoing = head.outgoing;
        self.next_array = head.next_array;
        self.sections = head.sections.into_iter().collect();
        self.quiescence.callbacks = head.callbacks;
        head.places.into_iter().for_each(|(address, place)| self.locations.learn(address, place));
        head.arrays.into_iter().for_each(|array| self.restore_array(array));
        let mut states = states;
        for element in head.elements {
            let state = element.state(&mut states)?;
            self.restore_element(element, state)?;
        }
        self.evacuation.restore(head.away, self.port.pe);
        self.checkpoints.logs = head.logs;
        Ok(head.round)
    }

    /// Takes what is for this PE from the image of a PE of a job with another number of PEs. Every object is at its home
    /// then. Called for the images of all PEs of that job, in order.
    fn add_parts(&mut self, head: Head, mut states: Packed<'_>) -> Result<u64, Malformed> {
        let (pe, pes) = (self.pe(), self.pes());
        if head.pe == 0 {
            self.restore_round(head.round);
        }
        let last = head.arrays.iter().map(|array| array.id.0 / pes + 1).max();
        self.next_array = self.next_array.max(last.unwrap_or(0));
        for array in head.arrays {
            self.add_part_of_array(array, (head.pe, head.pes))?;
        }
        for element in head.elements {
            let state = element.state(&mut states)?;
            if self.home_of(element.address) == Some(pe) {
                let ledger = moved_ledger(element.ledger, (head.pes, pes));
                self.restore_element(ElementHead { epoch: 0, ledger, ..element }, state)?;
            }
        }
        let sections =
            head.sections.into_iter().filter(|(name, _)| name.id % u64::from(pes) == u64::from(pe));
        self.sections.extend(sections);
        if head.pe == pe {
            self.outgoing = head.outgoing;
        }
        if head.pe == 0 && pe == 0 {
            self.quiescence.callbacks = head.callbacks;
        }
        Ok(head.round)
    }

    /// Takes what is for this PE from one PE's part of an array.
    fn add_part_of_array(&mut self, head: ArrayHead, (from, of): (u32, u32)) -> Result<(), Malformed> {
        let (pe, pes, id) = (self.pe(), self.pes(), head.id);
        if head.shape == Shape::Group {
            return Err(wrong(format!(
                "has a group, so it can be used on {of} PEs only, and this job has {pes}"
            )));
        }
        let is_root = self.root_of(id) == pe;
        if !self.arrays.contains_key(&id) {
            let (broadcasts, none) = (Broadcasts::after(head.broadcasts.count(), pes), Reductions::default());
            let ArrayHead { class, shape, map, balanced, .. } = head;
            let (reductions, at_root, vacant) = (none.clone(), none, Vec::new());
            self.restore_array(ArrayHead {
                id,
                class,
                shape,
                map,
                balanced,
                broadcasts,
                reductions,
                at_root,
                vacant,
            });
        }
        let vacant: Vec<_> = head
            .vacant
            .into_iter()
            .filter(|one| self.home_of(Address { array: id, index: one.index }) == Some(pe))
            .map(|one| {
                let ledger = one.ledger.map(|ledger| moved_ledger(ledger, (of, pes)));
                // no PE knows a place of it
                VacantHead { epoch: 0, ledger: ledger.filter(|ledger| !ledger.is_spent()), ..one }
            })
            .filter(|one| one.ledger.is_some() || one.requests > 0)
            .collect();
        let Some(array) = self.arrays.get_mut(&id) else { return Ok(()) };
        array.vacant.extend(vacancies(vacant));
        if !is_root {
            return Ok(());
        }
        // the root of the old job has the whole reductions; parts of all PEs are added to them
        if id.0 % of == from {
            let parts: Vec<_> = std::mem::replace(&mut array.at_root, head.at_root).parts().collect();
            parts
                .into_iter()
                .try_for_each(|(number, part)| array.at_root.add(number, part))
                .map_err(wrong)?;
        }
        let mut parts = head.reductions.parts();
        parts.try_for_each(|(number, part)| array.at_root.add(number, part)).map_err(wrong)
    }

    /// Makes this PE, which is new, what it was in a checkpoint on disk, or a part of it on another number of PEs. The
    /// objects resume.
    pub(crate) fn restore_from_disk(&mut self, checkpoint: &Complete) {
        match self.read_disk(checkpoint) {
            Ok(round) => self.go_on(checkpoint.number, round, None),
            Err(error) => self.fail_program(format!("restarting from a checkpoint: {error}")),
        }
    }

    fn read_disk(&mut self, checkpoint: &Complete) -> Result<u64, String> {
        let pes = if checkpoint.pes == self.pes() { self.pe()..self.pe() + 1 } else { 0..checkpoint.pes };
        let (mut round, now) = (0, describe_program(self.classes));
        for pe in pes {
            let (bytes, numbers) = checkpoint.read(pe, &now).map_err(|e| e.to_string())?;
            let read = split(&bytes).and_then(|(mut head, states)| {
                head.renumber_classes(&numbers)?;
                if checkpoint.pes == self.pes() {
                    self.read_parts(head, states)
                } else {
                    self.add_parts(head, states)
                }
            });
            round = read.map_err(|error| format!("PE {pe} of {}: {error}", checkpoint.pes))?;
        }
        Ok(round)
    }

    fn restore_array(&mut self, head: ArrayHead) {
        let ArrayHead { id, class, shape, map, balanced, broadcasts, reductions, at_root, vacant } = head;
        let state = ArrayState {
            class,
            shape,
            map,
            here: Default::default(),
            broadcasts,
            reductions,
            at_root,
            leaving: Default::default(),
            balanced,
            vacant: vacancies(vacant),
            insertions: Default::default(),
        };
        self.arrays.insert(id, state);
    }

    fn restore_element(&mut self, head: ElementHead, state: Packed<'_>) -> Result<(), Malformed> {
        let ElementHead { address, epoch, fields, ledger, .. } = head;
        let class = self.arrays.get(&address.array).map(|array| array.class);
        let class = class.ok_or_else(|| Malformed::new("the image", "has an element of an unknown array"))?;
        let unpack = self.classes.get(class).map(|info| info.unpack);
        let unpack =
            unpack.ok_or_else(|| Malformed::new("the image", "has an object of an unknown class"))?;
        let element = Element {
            address,
            class,
            epoch,
            object: Some(with_fields(state.fields, &fields, || unpack(state.states))?),
            ledger: unpack_ledger(ledger),
            tasks: Vec::new(),
            leaving: None,
            removing: false,
        };
        self.settle(element);
        Ok(())
    }
}

/// A ledger in a job that goes on with another number of PEs. Only the PEs that both numbers of PEs have go on with their numbers of
/// messages.
fn moved_ledger(mut ledger: PackedLedger, (before, after): (u32, u32)) -> PackedLedger {
    ledger.incoming.forget_pes_from(before.min(after));
    ledger
}

fn vacancies(packed: Vec<VacantHead>) -> rustc_hash::FxHashMap<Index, Vacant> {
    let vacant = |VacantHead { index, epoch, requests, ledger }| {
        let ledger = ledger.map(|ledger| Box::new(unpack_ledger(ledger)));
        (index, Vacant { epoch, requests, ledger })
    };
    packed.into_iter().map(vacant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_what_the_runtime_keeps_is_seen_in_full() {
        let schema = Schema::of::<Head>();
        assert!(schema.is_whole(), "{schema:?}");
    }
}
