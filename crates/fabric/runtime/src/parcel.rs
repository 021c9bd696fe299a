// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parcels between PEs, and their bytes between processes.

use serde::{Deserialize, Serialize};
use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address::{Address, ArrayId};
use crate::checkpoint::options::Period;
use crate::checkpoint::outline::Outline;
use crate::checkpoint::store::Name;
use crate::class::AnyObject;
use crate::index::Index;
use crate::ledger::Ledger;
use crate::location::Place;
use crate::message::{Envelope, Malformed, Payload, pack, unpack};
use crate::order::{Retirement, Traffic};
use crate::quiescence::Wave;
use crate::reduction::{Callback, Partial};
use crate::section::SectionName;
use crate::shape::{Map, Shape};
use crate::sync::Status;

/// Anything that one PE sends another.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// A message to an object.
    Message(Envelope),
    /// An object that migrates.
    Moved(Box<Moved>),
    /// A message of the runtime itself.
    System(System),
}

impl Parcel {
    /// Parcels of the search for quiescence are not counted by it, and those that no PE sends.
    pub(crate) fn is_counted(&self) -> bool {
        use System::{Counts, LeaveSoon, Probe, Steal};
        !matches!(self, Self::System(Probe { .. } | Counts { .. } | Steal { .. } | LeaveSoon))
    }
}

/// An object that migrates, with all that belongs to it. `S` and `M` are the forms of its state and its messages.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Moved<S = State, M = Envelope> {
    pub(crate) address: Address,
    pub(crate) epoch: u32,
    /// The PE that it left.
    pub(crate) from: u32,
    pub(crate) state: S,
    pub(crate) ledger: Ledger<M>,
    /// The object moves because of a decision of load balancing, which counts arrivals.
    pub(crate) balanced: bool,
    /// The round of load balancing in which the object is due next; none if it takes no part.
    pub(crate) due: Option<u64>,
}

/// An object that migrates to another process; without a state, it has been removed.
type PackedMoved = Moved<Option<Vec<u8>>, Envelope<Vec<u8>>>;

/// An object's state.
#[derive(Debug)]
pub(crate) enum State {
    /// The object itself, between PEs of one process.
    Object(AnyObject),
    /// Its bytes.
    Packed(Vec<u8>),
    /// The object has been removed. What the runtime keeps for it goes home, for the next object at its index.
    Removed,
}

/// The load of one object, for load balancing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ObjectLoad {
    pub(crate) address: Address,
    /// CPU seconds.
    pub(crate) load: f64,
    /// Bytes of its packed state, if known.
    pub(crate) bytes: u64,
    pub(crate) migratable: bool,
}

/// Messages of one object to another, for load balancing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ObjectTraffic {
    /// The sender, by its place among the PE's objects.
    pub(crate) from: u32,
    pub(crate) to: Address,
    pub(crate) traffic: Traffic,
}

/// The loads of one PE, for load balancing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Loads {
    pub(crate) pe: u32,
    pub(crate) objects: Vec<ObjectLoad>,
    pub(crate) traffic: Vec<ObjectTraffic>,
    /// Seconds taken from the PE by others since the last round.
    pub(crate) stolen: f64,
    /// Seconds since the last round.
    pub(crate) wall: f64,
}

/// The progress of a PE's image.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Saved {
    /// The PE has its own copy of so many bytes, of which so many are sent to the buddy. `can_write`: it has written the
    /// one before to the second level, as files of this run.
    Own { bytes: u64, sent: u64, can_write: bool },
    /// The buddy has the second copy.
    Second,
}

/// A message of the runtime itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum System {
    /// A newer place of an object.
    Located { object: Address, place: Place },
    /// Creates an array's elements on every PE.
    Create { array: ArrayId, class: u16, shape: Shape, map: Map, balanced: bool, init: Vec<u8> },
    /// Asks an array's root for an element. The number is that of the first reduction in which the element takes part.
    Insert { object: Address, init: Vec<u8>, reduction: Option<u64> },
    /// Creates one element, on its home PE.
    Place { object: Address, init: Vec<u8>, reduction: u64 },
    /// An element has been removed that would have contributed to `reduction` next: to the array's root.
    Leave { array: ArrayId, reduction: u64 },
    /// Asks an array's root for a broadcast.
    Ask { array: ArrayId, entry: u16, id: u64, message: Vec<u8> },
    /// A broadcast on its way down the tree of PEs.
    Broadcast { array: ArrayId, number: u64, entry: u16, id: u64, message: Vec<u8> },
    /// An object that left the receiver has arrived. `broadcast` is the number of the next one that it was to be given.
    Installed { array: ArrayId, broadcast: u64 },
    /// A PE needs no broadcast below this number any more.
    Done { array: ArrayId, pe: u32, below: u64 },
    /// No PE needs a broadcast below this number any more.
    Trim { array: ArrayId, below: u64 },
    /// A message to some elements that the sender believes on this PE: each with its message number.
    Multicast {
        array: ArrayId,
        to: Vec<(Index, u64)>,
        from: Address,
        origin: u32,
        entry: u16,
        id: u64,
        message: Vec<u8>,
    },
    /// A part of a reduction, for the array's root.
    Partial { array: ArrayId, number: u64, part: Partial },
    /// A part of a reduction of a section, for its root.
    SectionPart { section: SectionName, number: u64, part: Partial },
    /// The reply to a request.
    Reply { to: Address, request: u32, message: Vec<u8> },
    /// A step of an object to retire its pair with another one, sent to a place of this epoch as a message is.
    Retire { to: Address, from: Address, epoch: u32, step: Retirement },
    /// Asks for the counts of parcels.
    Probe { wave: u64 },
    /// The counts.
    Counts { wave: u64, counts: Wave },
    /// Calls back when no message is under way.
    WhenQuiet { callback: Callback },
    /// An idle PE asks another of its process for an object.
    Steal { thief: u32 },
    /// No object of a PE is due in a round of load balancing.
    Report { pe: u32, status: Status },
    /// Load balancing has begun: PEs without objects report too.
    Balance { round: u64 },
    /// PE 0 asks whether a report still holds.
    Confirm { wave: u64 },
    /// The answer, and the loads of the PE's objects if none of them is due.
    Answer { wave: u64, status: Status, loads: Loads },
    /// The decision: objects that leave the receiver, and how many will arrive.
    Migrate { round: u64, leave: Vec<(Address, u32)>, arrive: u32 },
    /// Some objects that the decision moves to the receiver stay where they are.
    Stay { count: u32 },
    /// A PE has sent and received all objects of a decision.
    Migrated { round: u64 },
    /// All objects are at their places.
    Resume { round: u64 },
    /// A signal asks a PE to be evacuated, or readmitted: for PE 0.
    EvacuateSoon { pe: u32, away: bool },
    /// Requests the evacuation of the PE, or its readmission.
    Evacuate { away: bool },
    /// A PE has been evacuated, or readmitted.
    Away { pe: u32, away: bool },
    /// Makes the image of the PE in a checkpoint, at the end of a round of load balancing. Messages are logged from then on.
    Capture { number: u64, round: u64, logs: bool },
    /// An image whose parts follow, to the buddy.
    Outline { name: Name, outline: Outline },
    /// The buddy has taken some parts, and asks for as many more.
    PartsTaken { name: Name },
    /// A PE has begun to send its image, or its buddy has all of it: for PE 0.
    Saved { number: u64, saved: Saved },
    /// An image cannot be made or kept: for PE 0.
    Refuse { number: u64, why: String },
    /// The checkpoint is complete: older ones are dropped, and the round ends. With `to_disk`, images are written to the
    /// second level; with `leaves`, the processes end then.
    Commit { number: u64, round: u64, to_disk: Option<u64>, leaves: bool },
    /// The checkpoint is not made: the round ends.
    Abandon { number: u64, round: u64 },
    /// Changes the period of checkpoints: for PE 0.
    CheckpointEvery { period: Option<Period> },
    /// Messages are logged from the next checkpoint on, or not: for PE 0.
    LogMessages { on: bool },
    /// The log of a PE is long: for PE 0.
    CheckpointSoon,
    /// The launcher wants the job to go on with another number of ranks: for PE 0, from its process.
    LeaveSoon,
    /// Ends the program.
    Exit { code: u8 },
}

/// An address as bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAddress {
    array: U32,
    index: [U64; 2],
}

impl From<Address> for RawAddress {
    #[inline]
    fn from(address: Address) -> Self {
        Self { array: address.array.0.into(), index: address.index.halves().map(Into::into) }
    }
}

impl From<RawAddress> for Address {
    #[inline]
    fn from(raw: RawAddress) -> Self {
        Self { array: ArrayId(raw.array.get()), index: Index::from_halves(raw.index.map(U64::get)) }
    }
}

/// The bytes before each parcel: its length without them, the PE of the receiving process, and its kind.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawParcel {
    length: U32,
    local: U16,
    kind: u8,
}

/// The bytes of an [`Envelope`] before its message.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEnvelope {
    to: RawAddress,
    from: RawAddress,
    number: U64,
    reply: U32,
    origin: U32,
    priority: I32,
    entry: U16,
    epoch: U32,
    id: U64,
}

/// The bytes before a parcel of this length, for a PE of the process that it goes to.
pub(crate) fn head(length: u32, local: u16, kind: u8) -> [u8; size_of::<RawParcel>()] {
    zerocopy::transmute!(RawParcel { length: length.into(), local: local.into(), kind })
}

pub(crate) const MESSAGE: u8 = 1;
const MOVED: u8 = 2;
pub(crate) const SYSTEM: u8 = 3;
/// A [`Part`](crate::checkpoint::part::Part), which is no [`Parcel`]: its bytes go from an image into a frame, and from a frame into an image.
pub(crate) const PART: u8 = 4;
/// Of the log, and no [`Parcel`]s: determinants of the sender, the mark of an epoch, the end of a repetition.
pub(crate) const DETERMINANTS: u8 = 5;
pub(crate) const EPOCH: u8 = 6;
pub(crate) const REPEATED: u8 = 7;
/// The number of the run, for its time line: no [`Parcel`], because the program does not depend on it.
pub(crate) const RUN: u8 = 8;

/// Packs the content of a message.
pub(crate) type PackPayload<'a> = &'a dyn Fn(&Envelope, &mut Vec<u8>) -> Result<(), Malformed>;

/// Packs the state of an object.
pub(crate) type PackState<'a> = &'a dyn Fn(Address, &AnyObject, &mut Vec<u8>) -> Result<(), Malformed>;

/// A ledger with its early messages packed.
pub(crate) type PackedLedger = Ledger<Envelope<Vec<u8>>>;

/// Packs the early messages of a ledger.
pub(crate) fn pack_ledger(
    ledger: Ledger<Envelope>,
    pack_payload: PackPayload<'_>,
) -> Result<PackedLedger, Malformed> {
    let mut failed = None;
    let packed = ledger.map(|envelope| {
        let mut message = Vec::new();
        if let Err(error) = pack_payload(&envelope, &mut message) {
            failed.get_or_insert(error);
        }
        envelope.map(|_| message)
    });
    failed.map_or(Ok(packed), Err)
}

/// The same ledger, whose early messages stay packed until they are delivered.
pub(crate) fn unpack_ledger(ledger: PackedLedger) -> Ledger<Envelope> {
    ledger.map(|envelope| envelope.map(Payload::Packed))
}

/// Appends a parcel's bytes, for a PE of the process that they go to. If the parcel cannot be packed, nothing is appended.
pub(crate) fn encode(
    parcel: Parcel,
    local: u16,
    pack_payload: PackPayload<'_>,
    pack_state: PackState<'_>,
    into: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let start = into.len();
    into.extend_from_slice(&[0; size_of::<RawParcel>()]);
    let encoded = encode_content(parcel, pack_payload, pack_state, into).and_then(|kind| {
        let bytes = into.len() - start - size_of::<RawParcel>();
        let length = u32::try_from(bytes).map_err(|_| {
            Malformed::new("a message", format!("has {bytes} bytes; at most {} are possible", u32::MAX))
        })?;
        into[start..start + size_of::<RawParcel>()].copy_from_slice(&head(length, local, kind));
        Ok(())
    });
    if encoded.is_err() {
        into.truncate(start);
    }
    encoded
}

/// Appends the bytes of a parcel behind its head. Returns its kind.
fn encode_content(
    parcel: Parcel,
    pack_payload: PackPayload<'_>,
    pack_state: PackState<'_>,
    into: &mut Vec<u8>,
) -> Result<u8, Malformed> {
    let kind = match parcel {
        Parcel::Message(envelope) => {
            into.extend_from_slice(raw(&envelope).as_bytes());
            pack_payload(&envelope, into)?;
            MESSAGE
        }
        Parcel::Moved(moved) => {
            let Moved { address, epoch, from, state, ledger, balanced, due } = *moved;
            let state = match state {
                State::Object(object) => {
                    let mut bytes = Vec::new();
                    pack_state(address, &object, &mut bytes)?;
                    Some(bytes)
                }
                State::Packed(bytes) => Some(bytes),
                State::Removed => None,
            };
            let ledger = pack_ledger(ledger, pack_payload)?;
            let moved: PackedMoved = Moved { address, epoch, from, state, ledger, balanced, due };
            pack(&moved, into)?;
            MOVED
        }
        Parcel::System(system) => {
            pack(&system, into)?;
            SYSTEM
        }
    };
    Ok(kind)
}

#[inline]
fn raw(envelope: &Envelope) -> RawEnvelope {
    RawEnvelope {
        to: envelope.to.into(),
        from: envelope.from.into(),
        number: envelope.number.into(),
        reply: envelope.reply.into(),
        origin: envelope.origin.into(),
        priority: envelope.priority.into(),
        entry: envelope.entry.into(),
        epoch: envelope.epoch.into(),
        id: envelope.id.into(),
    }
}

/// The bytes of a message before and after its number in the time line, which differs when a PE runs again.
#[inline]
pub(crate) fn around_id(message: &[u8]) -> (&[u8], &[u8]) {
    let begin = std::mem::offset_of!(RawEnvelope, id);
    let after = begin + size_of::<U64>();
    (message.get(..begin).unwrap_or(message), message.get(after..).unwrap_or_default())
}

/// Splits the first parcel off a frame: the PE of this process that it is for, its kind and bytes, and the rest.
#[inline]
pub(crate) fn split(frame: &[u8]) -> Result<(u16, Encoded<'_>, &[u8]), Malformed> {
    let wrong = |reason: &str| Malformed::new("a frame", reason);
    let (head, rest) =
        RawParcel::ref_from_prefix(frame).map_err(|_| wrong("ends inside the head of a parcel"))?;
    let (bytes, rest) =
        rest.split_at_checked(head.length.get() as usize).ok_or_else(|| wrong("ends inside a parcel"))?;
    Ok((head.local.get(), Encoded { kind: head.kind, bytes }, rest))
}

/// The bytes of one parcel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded<'a> {
    pub(crate) kind: u8,
    pub(crate) bytes: &'a [u8],
}

impl Encoded<'_> {
    /// Appends the parcel to a frame for the only PE of a process.
    pub(crate) fn append_to(&self, frame: &mut Vec<u8>) {
        let length = U32::new(self.bytes.len() as u32);
        frame.extend_from_slice(RawParcel { length, local: U16::new(0), kind: self.kind }.as_bytes());
        frame.extend_from_slice(self.bytes);
    }
}

/// Unpacks a message's content at once where its type is known; `None` keeps the bytes.
pub(crate) type UnpackPayload<'a> = &'a dyn Fn(Address, u16, &[u8]) -> Result<Option<AnyObject>, Malformed>;

/// Decodes a parcel.
pub(crate) fn decode(encoded: Encoded<'_>, unpack_payload: UnpackPayload<'_>) -> Result<Parcel, Malformed> {
    match encoded.kind {
        MESSAGE => {
            let (head, bytes) = RawEnvelope::ref_from_prefix(encoded.bytes)
                .map_err(|_| Malformed::new("a message", "ends inside its head"))?;
            let (to, entry) = (head.to.into(), head.entry.get());
            let payload = match unpack_payload(to, entry, bytes)? {
                Some(message) => Payload::Typed(message),
                None => Payload::Packed(bytes.to_vec()),
            };
            Ok(Parcel::Message(Envelope {
                to,
                from: head.from.into(),
                number: head.number.get(),
                reply: head.reply.get(),
                origin: head.origin.get(),
                priority: head.priority.get(),
                entry,
                epoch: head.epoch.get(),
                id: head.id.get(),
                payload,
            }))
        }
        MOVED => {
            let moved: PackedMoved = unpack(encoded.bytes)?;
            let Moved { address, epoch, from, state, ledger, balanced, due } = moved;
            let ledger = unpack_ledger(ledger);
            let state = state.map_or(State::Removed, State::Packed);
            Ok(Parcel::Moved(Box::new(Moved { address, epoch, from, state, ledger, balanced, due })))
        }
        SYSTEM => Ok(Parcel::System(unpack(encoded.bytes)?)),
        kind => Err(Malformed::new("a parcel", format!("is of kind {kind}, which does not exist"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_that_cannot_be_packed_leaves_the_frame_as_it_was() {
        let refused = || Malformed::new("a value", "cannot be packed");
        let message = |_: &Envelope, into: &mut Vec<u8>| {
            into.extend_from_slice(b"half");
            Err(refused())
        };
        let state = |_: Address, _: &AnyObject, _: &mut Vec<u8>| Err(refused());
        let mut frame = Vec::new();
        encode(Parcel::System(System::Exit { code: 3 }), 0, &message, &state, &mut frame).expect("packs");
        let before = frame.clone();
        let (to, from) = (Address::pe(1), Address::pe(0));
        let payload = Payload::Packed(Vec::new());
        let (number, reply, origin, priority, entry, epoch, id) = (1, 0, 0, 0, 0, 0, 0);
        let envelope = Envelope { to, from, number, reply, origin, priority, entry, epoch, id, payload };
        let error = encode(Parcel::Message(envelope), 0, &message, &state, &mut frame).expect_err("refused");
        assert_eq!((error, &frame), (refused(), &before));
        let (_, encoded, rest) = split(&frame).expect("whole");
        assert_eq!((encoded.kind, rest.len()), (SYSTEM, 0));
    }
}
