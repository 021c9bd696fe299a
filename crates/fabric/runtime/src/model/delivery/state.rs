// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the model, its actions, and its faults.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::{Channels, PES};
use crate::address::{Address, ArrayId};
use crate::index::Index;
use crate::location::{Locations, Place};
use crate::order::{Incoming, Outgoing, Retirement};

pub(super) const OBJECTS: usize = 2;

/// The address of an object.
pub(super) fn address(object: usize) -> Address {
    Address { array: ArrayId(0), index: Index::from_halves([0, object as u64]) }
}

/// A message of one object to the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::model) struct Message {
    /// The receiver. The other object is the sender.
    pub(super) to: usize,
    pub(super) number: u64,
    /// Its number among all messages of the pair, also those before the pair was retired.
    pub(super) serial: u64,
    /// The PE that sent it.
    pub(super) origin: u32,
    /// The epoch of the place that it was sent to.
    pub(super) epoch: u32,
    /// Channels between PEs that it has crossed, counted only if a fault may let it go in circles.
    pub(super) hops: u8,
}

/// An object with its tables, as it migrates and as it is in an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::model) struct Object {
    pub(super) epoch: u32,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) enum Parcel {
    Message(Message),
    /// A step to retire the pair with the other object, sent to a place of this epoch.
    Retire(usize, Retirement, u32),
    Moved(usize, Box<Object>),
    Located(usize, Place),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) struct Pe {
    pub(super) locations: Locations,
    pub(super) here: [Option<Object>; OBJECTS],
    /// Messages that are ready to run.
    pub(super) queue: VecDeque<Message>,
    /// Messages for objects that will arrive or be created here.
    pub(super) kept: [Vec<Message>; OBJECTS],
    pub(super) kept_retirements: [Vec<Retirement>; OBJECTS],
}

impl Pe {
    /// Of a PE with no messages.
    pub(super) fn new(locations: Locations, here: [Option<Object>; OBJECTS]) -> Self {
        let (kept, kept_retirements) = (Default::default(), Default::default());
        Self { locations, here, queue: VecDeque::new(), kept, kept_retirements }
    }
}

/// What the program has done and may still do. The objects hold it, so it goes back with them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) struct Program {
    /// Migrations that may still happen.
    pub(super) migrations: u8,
    /// Messages that each object may still send.
    pub(super) unsent: [u64; OBJECTS],
    /// Times that each object may still ask to retire its pair as a sender.
    pub(super) asks: [u8; OBJECTS],
    /// Messages that each object has been given.
    pub(super) delivered: [u64; OBJECTS],
    /// Elements that are not yet created.
    pub(super) absent: [bool; OBJECTS],
}

/// A checkpoint: the images of all PEs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) struct Checkpoint {
    pub(super) images: [Vec<u8>; PES],
    pub(super) program: Program,
}

/// All PEs and the channels between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) struct State {
    pub(super) pes: [Pe; PES],
    pub(super) channels: Channels<Parcel>,
    pub(super) program: Program,
    /// The checkpoint to which all PEs go back when one dies. None once no PE dies any more.
    pub(super) checkpoint: Option<Arc<Checkpoint>>,
    /// Deaths and checkpoints that may still happen.
    pub(super) deaths: u8,
    pub(super) checkpoints: u8,
    /// A pair has been retired, and has talked again since; a receiver had to go on after it had retired a pair.
    pub(super) has_renewed: [bool; OBJECTS],
    pub(super) has_gone_on: bool,
    /// A message was delivered twice or out of order.
    pub(super) is_wrong: bool,
    /// A message was passed on to a place that is not newer than the one before.
    pub(super) is_circling: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) enum Action {
    /// An element is created, on its home.
    Create(usize),
    /// An object sends a message to the other one.
    Send(usize),
    /// An object asks the other one to retire the pair in which it is the sender.
    Retire(usize),
    /// An object leaves for a PE.
    Migrate(usize, usize),
    /// The first parcel of a channel arrives.
    Receive(usize, usize),
    /// A PE runs a message of its queue. The object leaves after this many messages, although the next ones have arrived.
    Run(usize, usize, Option<(u64, usize)>),
    /// All PEs make their images.
    Save,
    /// The process of a PE dies.
    Die(usize),
}

/// Something that an implementation may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Fault {
    /// Messages that were early and are the next ones when the object arrives are not delivered then.
    DueStay,
    /// Messages that are the next ones when the object leaves do not migrate with it.
    DueLost,
    /// A PE does not note where an object went.
    NoPointer,
    /// A PE takes any place that it is told, also an older one.
    OlderPlaces,
    /// An object's migrations are not counted.
    NoEpochs,
    /// Messages that wait for an object are not released when it arrives.
    KeptStay,
    /// Messages do not carry the epoch of the place that they are sent to.
    NoEpochInMessages,
    /// A receiver does not look at numbers.
    NoOrder,
    /// The numbers of an object's messages do not migrate with it.
    NumbersStay,
    /// A sender forgets a pair when it asks to retire it.
    ForgottenUnasked,
    /// A receiver forgets a pair before it has delivered all messages.
    ForgottenEarly,
    /// A sender that has sent more does not tell the receiver to go on.
    NotResumed,
    /// A sender that has sent more forgets the pair all the same.
    ForgottenAnyway,
    /// The messages that arrived before the receiver was told to go on are not delivered then.
    ResumedWithoutDue,
    /// Parcels that were sent before all PEs went back arrive after it.
    EarlierGeneration,
    /// Only the PE that has died goes back.
    OthersStay,
    /// A PE that goes back does not know where objects are.
    PlacesLost,
    /// Objects come back from their images without the numbers of their messages.
    NumbersLost,
    /// Objects come back without the numbers of the messages that they have delivered.
    DeliveredAgain,
}
