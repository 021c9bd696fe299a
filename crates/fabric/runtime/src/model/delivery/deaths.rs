// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints and deaths: all PEs go back to the images that they made when nothing was under way.
//!
//! The model `checkpoints` checks which checkpoint that is, whoever dies in which moment. Here the images are made and read in one step each.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::Channels;
use super::state::{Checkpoint, Fault, OBJECTS, Object, Pe, State};
use crate::address::Address;
use crate::location::{Locations, Place};
use crate::message::{pack, unpack};
use crate::order::{Incoming, Outgoing};

/// The image of a PE. `Head` of `core/image.rs`
#[derive(Serialize, Deserialize)]
struct Image {
    objects: [Option<Object>; OBJECTS],
    /// In any order.
    places: Vec<(Address, Place)>,
}

/// Returns `true` if no message is under way or waits, so that the PEs make their images. `quiescence::Wave`
pub(super) fn is_quiet(state: &State) -> bool {
    let is_idle = |pe: &Pe| pe.queue.is_empty() && pe.kept.iter().all(Vec::is_empty);
    state.channels.parcels().next().is_none() && state.pes.iter().all(is_idle)
}

/// Returns `true` if the images lack nothing that the PEs keep.
pub(super) fn is_whole(state: &State) -> bool {
    let early = state.pes.iter().flat_map(|pe| pe.here.iter().flatten()).map(|o| o.incoming.early());
    early.sum::<usize>() == 0 && state.pes.iter().all(|pe| pe.kept_retirements.iter().all(Vec::is_empty))
}

/// All PEs make their images. `Core::write_head`
pub(super) fn save(state: &mut State) {
    let image = |pe: &Pe| {
        let mut places: Vec<_> = pe.locations.all().collect();
        places.sort_unstable_by_key(|(address, _)| *address);
        let mut bytes = Vec::new();
        pack(&Image { objects: pe.here.clone(), places }, &mut bytes).expect("numbers can be packed");
        bytes
    };
    let images = std::array::from_fn(|at| image(&state.pes[at]));
    state.checkpoint = Some(Arc::new(Checkpoint { images, program: state.program.clone() }));
}

/// A new PE reads its image. `Core::read_parts`
fn restored(at: usize, image: &[u8], fault: Option<Fault>) -> Pe {
    let Image { mut objects, places } = unpack(image).expect("it was packed");
    let mut locations = Locations::new(at as u32);
    if fault != Some(Fault::PlacesLost) {
        places.into_iter().for_each(|(address, place)| locations.learn(address, place));
    }
    for object in objects.iter_mut().flatten() {
        match fault {
            Some(Fault::NumbersLost) => object.outgoing = Outgoing::default(),
            Some(Fault::DeliveredAgain) => object.incoming = Incoming::default(),
            _ => {}
        }
    }
    Pe::new(locations, objects)
}

/// A PE dies: all connections end, and all PEs go back to the checkpoint. `Core::restore`
pub(super) fn die(state: &mut State, dead: usize, fault: Option<Fault>) -> Option<()> {
    let checkpoint = state.checkpoint.clone()?;
    state.deaths -= 1;
    if state.deaths == 0 {
        // two runs that no death will end are the same, whatever checkpoint they have
        (state.checkpoint, state.checkpoints) = (None, 0);
    }
    if fault != Some(Fault::EarlierGeneration) {
        state.channels = Channels::default();
    }
    for (at, image) in checkpoint.images.iter().enumerate() {
        if at == dead || fault != Some(Fault::OthersStay) {
            state.pes[at] = restored(at, image, fault);
        }
    }
    state.program = checkpoint.program.clone();
    Some(())
}
