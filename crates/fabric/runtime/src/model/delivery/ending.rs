// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a run: all is delivered, and nothing is left over.

use super::super::PES;
use super::state::{Message, OBJECTS, Object, Parcel, State, address};
use crate::location::Route;

/// At the end every message has been delivered, and from every PE the known places lead to the object, each newer
/// than the one before.
pub(super) fn is_complete(state: &State, homes: [usize; OBJECTS], messages: [u64; OBJECTS]) -> bool {
    let delivered = (0..OBJECTS).all(|o| state.program.delivered[o] == messages[1 - o]);
    delivered
        && (0..OBJECTS).all(|object| (0..PES).all(|pe| finds(state, pe, (object, homes[object]))))
        && (0..OBJECTS).all(|sender| agree(state, sender))
}

/// An object, wherever it is.
pub(super) fn object(state: &State, object: usize) -> Option<&Object> {
    state.pes.iter().find_map(|pe| pe.here[object].as_ref())
}

/// At the end, both objects of a pair keep a number or neither does, and nothing is kept for a pair that is to be retired.
fn agree(state: &State, sender: usize) -> bool {
    let (from, to) = (object(state, sender), object(state, 1 - sender));
    let (Some(from), Some(to)) = (from, to) else { return false };
    from.outgoing.pairs() == to.incoming.pairs() && to.incoming.early() == 0
}

/// Returns `true` if the known places lead from a PE to an object.
fn finds(state: &State, from: usize, (object, home): (usize, usize)) -> bool {
    let mut at = from;
    let mut epoch = None;
    while state.pes[at].here[object].is_none() {
        let locations = &state.pes[at].locations;
        let known = locations.place(address(object)).map(|p| p.epoch);
        if at != from && (known.is_none() || known <= epoch) {
            return false;
        }
        match locations.route(address(object), home as u32) {
            Route::To(place) => at = place.pe as usize,
            Route::Keep => return false,
        }
        epoch = known;
    }
    true
}

/// All messages that have not been run.
pub(super) fn messages(state: &State) -> impl Iterator<Item = &Message> {
    let under_way = state.channels.parcels().filter_map(|p| match p {
        Parcel::Message(message) => Some(message),
        _ => None,
    });
    under_way.chain(state.pes.iter().flat_map(|pe| pe.queue.iter().chain(pe.kept.iter().flatten())))
}
