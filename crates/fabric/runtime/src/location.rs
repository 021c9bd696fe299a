// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where objects are: the location protocol, as a state machine that sends nothing itself.
//!
//! Each address has a *home* PE, a function of the address alone. An object's *epoch* counts its migrations, so of two
//! places the one with the larger epoch is newer.
//!
//! | event | action |
//! |---|---|
//! | a message for an object that is not here | [`Locations::pass_on`]: to the newest place known here, with its epoch; with none, to the home |
//! | a message that was sent to this PE with an epoch | the object comes here at this epoch: as if this PE had been told |
//! | the newest place known is this PE, and the object is not here | keep the message: the object is on its way here |
//! | this PE is the home, and no place is known | keep the message: the object is not yet created |
//! | the object leaves | [`Locations::departed`]: the PE keeps where it went and forwards from then on |
//! | the object arrives | [`Locations::arrived`]: release kept messages; tell the home the new place |
//! | a forwarded message | tell the PE that sent it the newest place ([`Locations::learn`]) |
//!
//! A PE never forgets where an object went. That is why a message may wait at a PE which is the newest place known: if
//! the object had come and gone, this PE would know a newer place. Since a message carries the epoch of the place that
//! it is sent to, each PE that passes it on sends it to a newer place than the one before: a message crosses at most one
//! channel more than its object migrates. Without the epoch, messages would go in circles between PEs that the object
//! has left for as long as the object is under way. Tests check the protocol exhaustively together with
//! [`order`](crate::order), on the code of this file.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// A place where an object is, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The PE.
    pub pe: u32,
    /// Migrations of the object before it came there.
    pub epoch: u32,
}

/// The next step of a message whose receiver is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Send it to this place. The epoch is 0 if no place is known: then the PE is the home.
    To(Place),
    /// Keep it: the object will arrive or be created here.
    Keep,
}

/// The places that one PE knows, of objects that are not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locations {
    pe: u32,
    known: FxHashMap<Address, Place>,
}

/// The hash does not depend on the order in which places were learned.
impl Hash for Locations {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_unstable_by_key(|(address, _)| **address);
        (self.pe, known).hash(hasher);
    }
}

impl Locations {
    /// Of a PE that knows nothing.
    #[must_use]
    pub fn new(pe: u32) -> Self {
        Self { pe, known: FxHashMap::default() }
    }

    /// The next step of a message that is sent here, for an object that is not here.
    #[must_use]
    pub fn route(&self, to: Address, home: u32) -> Route {
        let next = self.place(to).unwrap_or(Place { pe: home, epoch: 0 });
        if next.pe == self.pe { Route::Keep } else { Route::To(next) }
    }

    /// The next step of a message that has arrived, for an object that is not here. `epoch` is that of the place to
    /// which the message was sent; 0 says nothing.
    pub fn pass_on(&mut self, to: Address, home: u32, epoch: u32) -> Route {
        if epoch > 0 {
            self.learn(to, Place { pe: self.pe, epoch });
        }
        self.route(to, home)
    }

    /// The newest place known here.
    #[must_use]
    pub fn place(&self, of: Address) -> Option<Place> {
        self.known.get(&of).copied()
    }

    /// Takes a place that another PE knows. An older one than that known here changes nothing.
    pub fn learn(&mut self, of: Address, place: Place) {
        let known = self.known.entry(of).or_insert(place);
        if known.epoch < place.epoch {
            *known = place;
        }
    }

    /// An object that was here, at `epoch`, leaves for another PE. Returns its new place.
    pub fn departed(&mut self, object: Address, epoch: u32, to: u32) -> Place {
        let place = Place { pe: to, epoch: epoch + 1 };
        self.known.insert(object, place);
        place
    }

    /// An object arrives here. Returns the PE to tell, its home, unless that is this one.
    pub fn arrived(&mut self, object: Address, epoch: u32, home: u32) -> Option<u32> {
        self.learn(object, Place { pe: self.pe, epoch });
        (home != self.pe).then_some(home)
    }

    /// All places known, for an image.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Address, Place)> {
        self.known.iter().map(|(address, place)| (*address, *place))
    }

    /// The number of places known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns `true` if no place is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
