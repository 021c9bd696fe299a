// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of a PE in a checkpoint is made and sent to the buddy, which puts it together.

use super::Core;
use crate::checkpoint::fields::{NoMemory, NotPacked};
use crate::checkpoint::outline::Outline;
use crate::checkpoint::part::Part;
use crate::checkpoint::pieces::{Assembly, Refusal, Sending};
use crate::checkpoint::store::Name;
use crate::message::Malformed;
use crate::parcel::{Parcel, Saved, System};

/// Bytes of an image that are sent at once. Their copies on the way, in frames and sockets, stay in the cache.
const PART: u64 = 192 << 10;
/// Times as many that may be under way.
const WINDOW: u64 = 8;
/// Times as many that a buddy takes before it asks for as many more.
const STEP: u64 = 2;

impl Core {
    /// Makes this PE's image if a checkpoint needs it, and begins to send it.
    pub(crate) fn capture_if_due(&mut self) {
        if let Some((number, round)) = self.checkpoints.take_due() {
            match self.capture(number, round) {
                Ok(()) => {}
                Err(NotPacked::NoMemory(NoMemory(bytes))) => {
                    let why = format!("PE {} has no memory for {bytes} bytes of its image", self.pe());
                    self.post(0, Parcel::System(System::Refuse { number, why }));
                }
                Err(NotPacked::Malformed(error)) => self.fail_program(format!("a checkpoint: {error}")),
            }
        }
    }

    fn capture(&mut self, number: u64, round: u64) -> Result<(), NotPacked> {
        let name = (number, self.pe());
        let mut states = self.pack_states(name)?;
        self.write_head(number, round, &mut states)?;
        let (pieces, base) = self.checkpoints.finish_draft(states.draft);
        let sending = Sending::new(name, pieces);
        let bytes = sending.image_length();
        let Some(buddy) = self.checkpoints.buddy else {
            self.checkpoints.store.put(name, sending.into_image());
            self.tell_saved(number, bytes, 0);
            return Ok(());
        };
        let (outline, sent) = (sending.outline(base), sending.length());
        self.post(buddy, Parcel::System(System::Outline { name, outline }));
        self.checkpoints.sending = Some(sending);
        self.tell_saved(number, bytes, sent);
        for _ in 0..WINDOW {
            self.send_parts();
        }
        Ok(())
    }

    /// Tells PE 0 that this PE has begun to send its image.
    fn tell_saved(&mut self, number: u64, bytes: u64, sent: u64) {
        let saved = Saved::Own { bytes, sent, can_write: self.checkpoints.can_write() };
        self.post(0, Parcel::System(System::Saved { number, saved }));
    }

    /// The buddy has taken some parts of an image.
    pub(crate) fn parts_taken(&mut self, name: Name) {
        if self.checkpoints.sending.as_ref().is_some_and(|sending| sending.name == name) {
            (0..STEP).for_each(|_| self.send_parts());
        }
    }

    /// Sends the next [`PART`] bytes of this PE's image, if some are left.
    fn send_parts(&mut self) {
        let Self { checkpoints, port, quiescence, .. } = self;
        let (Some(buddy), Some(sending)) = (checkpoints.buddy, &mut checkpoints.sending) else { return };
        let (rank, local) = (port.rank_of(buddy), (buddy % port.threads) as u16);
        let end = sending.at() + PART;
        let mut encoded = Ok::<(), Malformed>(());
        while let Some(part) = sending.next_part(end) {
            encoded = encoded.and(part.encode(local, port.frame(rank)));
            quiescence.sent += 1;
        }
        // the own copy is there before the buddy can say that it has the other
        if sending.at() == sending.length()
            && let Some(sending) = checkpoints.sending.take()
        {
            checkpoints.store.put(sending.name, sending.into_image());
        }
        let flushed = port.flush_if_long(rank);
        if let Err(error) = encoded {
            self.fail_program(error);
        } else if let Err(error) = flushed {
            // if the buddy has died, the job goes on from the checkpoint before
            self.fail(error.into());
        }
    }

    /// Begins to take the image of a PE whose buddy this is.
    pub(crate) fn take_outline(&mut self, name: Name, outline: Outline) {
        let (number, pe) = name;
        let base = outline.base.and_then(|base| self.checkpoints.image(base, pe));
        match Assembly::new(number, outline, base) {
            Ok(assembly) => {
                self.checkpoints.receiving.insert(name, assembly);
            }
            Err(refusal) => self.refuse_image(name, refusal),
        }
    }

    /// Takes a part of such an image. A part of an image that has been refused is dropped.
    pub(crate) fn take_part(&mut self, part: Part<'_>) {
        let name = part.name;
        let Some(assembly) = self.checkpoints.receiving.get_mut(&name) else { return };
        let before = assembly.at();
        if let Err(refusal) = assembly.take(part) {
            return self.refuse_image(name, refusal);
        }
        let steps = [before, assembly.at()].map(|at| at / (STEP * PART));
        let (number, pe) = name;
        if let Some(image) = assembly.image() {
            self.checkpoints.receiving.remove(&name);
            self.checkpoints.store.put(name, image);
            self.post(0, Parcel::System(System::Saved { number, saved: Saved::Second }));
        } else if steps[0] < steps[1] {
            self.post(pe, Parcel::System(System::PartsTaken { name }));
        }
    }

    fn refuse_image(&mut self, name: Name, refusal: Refusal) {
        self.checkpoints.receiving.remove(&name);
        let (number, pe) = name;
        let why = format!("the second copy of PE {pe}: {refusal} (PE {})", self.pe());
        self.post(0, Parcel::System(System::Refuse { number, why }));
    }
}
