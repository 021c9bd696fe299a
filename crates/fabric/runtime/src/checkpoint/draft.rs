// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of a PE while it is packed, and what it can refer to in the image of the last complete checkpoint.

use std::sync::Arc;

use super::fields::{Fields, NoMemory, NotPacked, Packed, Versions, reserve, trim};
use super::store::{Name, Store};
use crate::message::Malformed;

/// The fields in the last complete checkpoint, and in the one under way.
#[derive(Debug, Default)]
pub(crate) struct History {
    complete: Option<Arc<Versions>>,
    underway: Option<Versions>,
}

impl History {
    /// Begins the image of PE `name.1` in a checkpoint. `expected`: bytes of all but the fields, about.
    pub(crate) fn draft(
        &mut self,
        (number, pe): Name,
        store: &Store,
        expected: usize,
    ) -> Result<Draft, NoMemory> {
        self.underway = None;
        let complete = self.complete.clone();
        let base = complete.and_then(|versions| Some((store.get((versions.checkpoint, pe))?, versions)));
        let versions = Versions { checkpoint: number, ..Versions::default() };
        let rest = reserve(expected.saturating_add(expected >> 6))?;
        Ok(Draft { fields: Fields { base, versions, ..Fields::default() }, rest })
    }

    /// A checkpoint is complete: the next image refers to this one.
    pub(crate) fn commit(&mut self, checkpoint: u64) {
        self.complete =
            self.underway.take().filter(|versions| versions.checkpoint == checkpoint).map(Arc::new);
    }

    /// The checkpoint under way is abandoned. If an image of it was made, the next one is whole: the buddy may lack what it
    /// would refer to.
    pub(crate) fn abandon(&mut self) {
        if self.underway.take().is_some() {
            self.complete = None;
        }
    }
}

/// The image of a PE while it is packed: the fields of all objects, and then all that remains in one piece.
#[derive(Debug)]
pub(crate) struct Draft {
    fields: Fields,
    rest: Vec<u8>,
}

/// An object in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    /// Bytes of it without the fields.
    pub(crate) bytes: u64,
    /// Bytes of each field that is a piece of its own.
    pub(crate) fields: Vec<u64>,
}

impl Draft {
    /// Adds an object, which `pack` appends to other bytes.
    ///
    /// # Errors
    /// [`NotPacked`]; then the draft is of no use.
    pub(crate) fn add(
        &mut self,
        pack: impl FnOnce(&mut Vec<u8>) -> Result<(), Malformed>,
    ) -> Result<Added, NotPacked> {
        let Self { fields, rest } = self;
        let (bytes, pieces) = (rest.len(), fields.pieces.len());
        let packed = fields.record(|| pack(rest));
        if let Some(failure) = fields.failure.take() {
            return Err(failure);
        }
        packed?;
        let length = |piece: &Packed| piece.bytes().len() as u64;
        let of_object = fields.pieces.get(pieces..).unwrap_or_default();
        Ok(Added { bytes: (rest.len() - bytes) as u64, fields: of_object.iter().map(length).collect() })
    }

    /// All that remains, to append to it.
    pub(crate) fn rest(&mut self) -> &mut Vec<u8> {
        &mut self.rest
    }

    /// Ends the image: its pieces, and the checkpoint that they refer to.
    pub(crate) fn finish(self, history: &mut History) -> (Vec<Packed>, Option<u64>) {
        let Self { fields: Fields { base, versions, mut pieces, .. }, mut rest } = self;
        trim(&mut rest);
        pieces.push(Packed::New(rest));
        history.underway = Some(versions);
        (pieces, base.map(|(_, versions)| versions.checkpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::LEAST;
    use super::super::store::Image;
    use super::*;
    use crate::Tracked;
    use crate::message::pack;

    /// A history in which checkpoint 0 has one field; `flip` changes bits of its piece.
    fn history(field: &Tracked<Vec<u8>>, flip: u8) -> (History, Store) {
        let (mut history, store) = (History::default(), Store::default());
        let mut draft = history.draft((0, 0), &store, 0).expect("memory");
        draft.add(|into| pack(field, into)).expect("memory");
        let (pieces, _) = draft.finish(&mut history);
        history.commit(0);
        let (mut bytes, checksum) = (pieces[0].bytes().to_vec(), crc32fast::hash(pieces[0].bytes()));
        bytes[77] ^= flip;
        store.put((0, 0), Image::with_checksum(bytes, checksum));
        (history, store)
    }

    /// Adds the field to the image of a checkpoint. Returns `true` if its piece stays.
    fn stays((mut history, store): (History, Store), number: u64, field: &Tracked<Vec<u8>>) -> bool {
        let mut draft = history.draft((number, 0), &store, 0).expect("memory");
        let added = draft.add(|into| pack(field, into)).expect("packed");
        let (pieces, base) = draft.finish(&mut history);
        assert_eq!((added.fields.len(), pieces.len(), base), (1, 2, Some(0)));
        assert_eq!(added.fields, [pieces[0].bytes().len() as u64]);
        matches!(pieces[0], Packed::Kept(0, _))
    }

    #[test]
    fn a_piece_that_has_decayed_is_packed_again_when_it_is_checked() {
        let field = Tracked::new(vec![1; LEAST]);
        let kept: Vec<bool> = (1..=16).map(|number| stays(history(&field, 4), number, &field)).collect();
        assert_eq!(kept, [[true; 15].as_slice(), &[false]].concat());
        assert!(stays(history(&field, 0), 16, &field), "an intact piece stays");
    }

    #[test]
    fn an_abandoned_image_makes_the_next_one_whole_and_one_that_was_not_made_does_not() {
        let field = Tracked::new(vec![1; LEAST]);
        let (mut kept, store) = history(&field, 0);
        kept.abandon();
        assert!(stays((kept, store), 1, &field));
        let (mut lost, store) = history(&field, 0);
        lost.draft((1, 0), &store, 0).expect("memory").finish(&mut lost);
        lost.abandon();
        assert_eq!(lost.draft((1, 0), &store, 0).expect("memory").finish(&mut lost).1, None);
    }

    #[test]
    fn memory_that_the_system_lacks_is_an_error() {
        let lacks = History::default().draft((0, 0), &Store::default(), usize::MAX >> 1);
        assert!(matches!(lacks, Err(NoMemory(_))));
    }
}
