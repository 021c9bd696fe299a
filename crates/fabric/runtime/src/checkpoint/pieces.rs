// SPDX-License-Identifier: MIT OR Apache-2.0
//! An image on its way to the buddy: an outline, and then the bytes of the pieces that the buddy does not have.

use std::collections::VecDeque;
use std::sync::Arc;

use super::fields::{Packed, is_checked};
use super::outline::{Outline, Source};
use super::part::Part;
use super::store::{Image, Name, Piece, memory};

/// An image that is sent, piece by piece. The checksum of a piece is made as it is sent: then its bytes are in the cache.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) name: Name,
    left: VecDeque<Packed>,
    done: Vec<Arc<Piece>>,
    /// Bytes of the first piece left that have been sent, and their checksum.
    taken: usize,
    checksum: crc32fast::Hasher,
    /// Bytes that have been sent, and those to be sent.
    at: u64,
    length: u64,
}

impl Sending {
    pub(crate) fn new(name: Name, pieces: Vec<Packed>) -> Self {
        let new = |piece: &Packed| matches!(piece, Packed::New(_)).then_some(piece.bytes().len() as u64);
        let length = pieces.iter().filter_map(new).sum();
        let checksum = crc32fast::Hasher::new();
        Self { name, left: pieces.into(), done: Vec::new(), taken: 0, checksum, at: 0, length }
    }

    /// The outline, before the first part is sent.
    pub(crate) fn outline(&self, base: Option<u64>) -> Outline {
        let source = |piece: &Packed| match piece {
            Packed::New(bytes) => Source::Sent(bytes.len() as u64),
            Packed::Kept(place, _) => Source::Kept(*place),
        };
        Outline { base, sources: self.left.iter().map(source).collect() }
    }

    /// Bytes of the image, before the first part is sent.
    pub(crate) fn image_length(&self) -> u64 {
        self.left.iter().map(|piece| piece.bytes().len() as u64).sum()
    }

    /// Bytes to be sent in all.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that have been sent.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next part, which ends before byte `end` of those that are sent.
    pub(crate) fn next_part(&mut self, end: u64) -> Option<Part<'_>> {
        self.pass_done();
        let most = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let Some(Packed::New(bytes)) = self.left.front() else { return None };
        let (at, from) = (self.at, self.taken);
        let bytes = &bytes[from..bytes.len().min(from.saturating_add(most))];
        if bytes.is_empty() {
            return None;
        }
        self.taken += bytes.len();
        self.at += bytes.len() as u64;
        self.checksum.update(bytes);
        Some(Part { name: self.name, at, checksum: self.checksum.clone().finalize(), bytes })
    }

    /// Passes over the pieces that are not sent, or have been.
    fn pass_done(&mut self) {
        while let Some(piece) = self.left.pop_front() {
            let piece = match piece {
                Packed::Kept(_, piece) => piece,
                Packed::New(bytes) if bytes.len() == self.taken => {
                    self.taken = 0;
                    Arc::new(Piece { bytes, checksum: std::mem::take(&mut self.checksum).finalize() })
                }
                unsent @ Packed::New(_) => return self.left.push_front(unsent),
            };
            self.done.push(piece);
        }
    }

    /// The image, without what has not been sent.
    pub(crate) fn into_image(mut self) -> Image {
        while self.next_part(u64::MAX).is_some() {}
        Image::of(self.done)
    }
}

/// An image that the buddy does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no memory for it")]
    NoMemory,
    #[error("it has changed on its way")]
    Damaged,
    #[error("it refers to an image that is not there")]
    NoBase,
    #[error("it refers to an image that is corrupt")]
    BrokenBase,
}

/// A piece that arrives.
#[derive(Debug)]
struct Filling {
    bytes: Vec<u8>,
    length: usize,
    checksum: crc32fast::Hasher,
}

/// An image that arrives: what its PE sends, and pieces of the image before.
#[derive(Debug)]
pub(crate) struct Assembly {
    base: Option<Image>,
    left: VecDeque<Source>,
    done: Vec<Arc<Piece>>,
    filling: Option<Filling>,
    at: u64,
}

impl Assembly {
    /// Of an image in checkpoint `number`. `base` is the image that the outline refers to.
    pub(crate) fn new(number: u64, outline: Outline, base: Option<Image>) -> Result<Self, Refusal> {
        for source in &outline.sources {
            let Source::Kept(place) = *source else { continue };
            let piece = base.as_ref().and_then(|base| base.pieces().get(place as usize));
            let piece = piece.ok_or(Refusal::NoBase)?;
            if is_checked(number, place) && !piece.is_intact() {
                return Err(Refusal::BrokenBase);
            }
        }
        let left = outline.sources.into();
        let mut assembly = Self { base, left, done: Vec::new(), filling: None, at: 0 };
        assembly.advance()?;
        Ok(assembly)
    }

    /// Bytes that have arrived.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Passes over the pieces that are here, to the one that arrives next.
    fn advance(&mut self) -> Result<(), Refusal> {
        while self.filling.is_none()
            && let Some(source) = self.left.pop_front()
        {
            match source {
                Source::Kept(place) => {
                    let piece = self.base.as_ref().and_then(|base| base.pieces().get(place as usize));
                    self.done.push(piece.ok_or(Refusal::NoBase)?.clone());
                }
                Source::Sent(length) => {
                    let length = usize::try_from(length).map_err(|_| Refusal::NoMemory)?;
                    let bytes = memory(length).map_err(|_| Refusal::NoMemory)?;
                    let checksum = crc32fast::Hasher::new();
                    self.filling = Some(Filling { bytes, length, checksum });
                    self.finish_piece();
                }
            }
        }
        Ok(())
    }

    /// Puts the piece that arrives to the others, if it is whole.
    fn finish_piece(&mut self) {
        if let Some(Filling { bytes, checksum, .. }) = self.filling.take_if(|f| f.bytes.len() == f.length) {
            self.done.push(Arc::new(Piece { bytes, checksum: checksum.finalize() }));
        }
    }

    /// Takes a part.
    pub(crate) fn take(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        let filling = self.filling.as_mut().ok_or(Refusal::Damaged)?;
        if part.at != self.at || filling.length - filling.bytes.len() < part.bytes.len() {
            return Err(Refusal::Damaged);
        }
        filling.checksum.update(part.bytes);
        if filling.checksum.clone().finalize() != part.checksum {
            return Err(Refusal::Damaged);
        }
        filling.bytes.extend_from_slice(part.bytes);
        self.at += part.bytes.len() as u64;
        self.finish_piece();
        self.advance()
    }

    /// The image, if all of it is here.
    pub(crate) fn image(&mut self) -> Option<Image> {
        let is_whole = self.filling.is_none() && self.left.is_empty();
        is_whole.then(|| Image::of(std::mem::take(&mut self.done)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::draft::History;
    use super::super::fields::LEAST;
    use super::super::store::Store;
    use super::*;
    use crate::message::{pack, unpack};
    use crate::{Bulk, Tracked};

    const PE: u32 = 3;

    #[derive(Clone, Copy, Debug)]
    enum Act {
        /// A field of an object, or with an odd number one of another object, gets a new value of so many bytes.
        Set(u64, usize),
        /// Two objects exchange a field.
        Swap(u64, u64),
        /// The first of two objects gets copies of the fields of the second.
        Copy(u64, u64),
        /// An object comes from another process.
        Migrate(u64),
        Remove(u64),
        /// A checkpoint, sent in parts of so many bytes.
        Checkpoint(u64, End),
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        Commit,
        /// The buddy refuses the image.
        Refuse,
        /// Another PE has failed.
        Abandon,
        /// The program goes on from the last complete checkpoint; the buddy is a new process.
        Recover,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let object = || 0u64..5;
        let length = prop::sample::select(vec![0, 100, LEAST - 2, LEAST - 1, LEAST, 20_000]);
        let ends = [&[End::Commit; 6][..], &[End::Refuse, End::Abandon, End::Recover]].concat();
        let act = prop_oneof![
            4 => (object(), length).prop_map(|(object, length)| Act::Set(object, length)),
            1 => (object(), object()).prop_map(|(one, other)| Act::Swap(one, other)),
            1 => (object(), object()).prop_map(|(one, other)| Act::Copy(one, other)),
            1 => object().prop_map(Act::Migrate),
            1 => object().prop_map(Act::Remove),
            6 => (1u64..10_000, prop::sample::select(ends)).prop_map(|(part, end)| Act::Checkpoint(part, end)),
        ];
        prop::collection::vec(act, 1..80)
    }

    #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Object {
        changes: u64,
        /// With the number of its last change, which no other change has.
        fields: [(u64, Tracked<Bulk<u8>>); 2],
    }

    /// A PE, its buddy, and what the next image has to be.
    #[derive(Default)]
    struct Pair {
        objects: BTreeMap<u64, Object>,
        changes: u64,
        number: u64,
        history: History,
        own: Store,
        buddy: Store,
        /// The changes whose values are in the image that the next one can refer to.
        base: BTreeSet<u64>,
        complete: Option<(u64, Vec<u8>)>,
    }

    impl Pair {
        fn change(&mut self) -> u64 {
            self.changes += 1;
            self.changes
        }

        fn act(&mut self, act: Act) {
            match act {
                Act::Set(object, length) => {
                    let change = self.change();
                    let object = self.objects.entry(object).or_default();
                    object.changes += 1;
                    let (number, field) = &mut object.fields[change as usize % 2];
                    *number = change;
                    field.0 = (0..length as u64).map(|at| (at * 7 + change * 31) as u8).collect();
                }
                Act::Swap(one, other) => {
                    let (Some(mut a), Some(mut b)) = (self.objects.remove(&one), self.objects.remove(&other))
                    else {
                        return;
                    };
                    std::mem::swap(&mut a.fields[0], &mut b.fields[1]);
                    self.objects.extend([(one, a), (other, b)]);
                }
                Act::Copy(one, other) => {
                    if let Some(copy) = self.objects.get(&other).cloned() {
                        self.objects.insert(one, copy);
                    }
                }
                Act::Migrate(object) => {
                    let changes = [self.change(), self.change()];
                    if let Some(moved) = self.objects.get_mut(&object) {
                        let packed = postcard::to_allocvec(moved).expect("packs");
                        *moved = unpack(&packed).expect("unpacks");
                        (0..2).for_each(|at| moved.fields[at].0 = changes[at]);
                    }
                }
                Act::Remove(object) => {
                    self.objects.remove(&object);
                }
                Act::Checkpoint(part, end) => self.checkpoint(part, end),
            }
        }

        /// Packs the image of all objects. Returns its pieces and the checkpoint that they refer to.
        fn pack(&self, history: &mut History) -> (Vec<Packed>, Option<u64>) {
            let mut draft = history.draft((self.number, PE), &self.own, 100).expect("memory");
            let mut heads = Vec::new();
            for object in self.objects.values() {
                heads.push(draft.add(|into| pack(object, into)).expect("memory"));
            }
            pack(&heads.iter().map(|head| (head.bytes, &head.fields)).collect::<Vec<_>>(), draft.rest())
                .expect("packs");
            draft.finish(history)
        }

        /// Bytes of the fields that the next image takes from the one before.
        fn kept(&self) -> u64 {
            let fields = self.objects.values().flat_map(|object| &object.fields);
            // with its length, 2 bytes
            let kept =
                fields.filter(|(change, field)| self.base.contains(change) && field.len() + 2 >= LEAST);
            kept.map(|(_, field)| postcard::to_allocvec(field).expect("packs").len() as u64).sum()
        }

        fn checkpoint(&mut self, part: u64, end: End) {
            let name = (self.number, PE);
            let whole =
                Sending::new(name, self.pack(&mut History::default()).0).into_image().bytes().into_owned();
            let mut history = std::mem::take(&mut self.history);
            let (pieces, base) = self.pack(&mut history);
            self.history = history;
            let mut sending = Sending::new(name, pieces);
            assert_eq!(sending.image_length(), whole.len() as u64);
            assert_eq!(sending.length(), whole.len() as u64 - self.kept());
            let outline = sending.outline(base);
            let base = outline.base.and_then(|base| self.buddy.get((base, PE)));
            let mut assembly = Assembly::new(self.number, outline, base).expect("the base is there");
            while let Some(part) = sending.next_part(sending.at() + part) {
                assert!(assembly.image().is_none());
                assembly.take(part).expect("intact");
                if end == End::Refuse {
                    break;
                }
            }
            if end != End::Refuse {
                for (store, image) in
                    [(&self.own, sending.into_image()), (&self.buddy, assembly.image().expect("whole"))]
                {
                    assert!(image.is_intact() && *image.bytes() == whole);
                    assert_eq!(image.checksum(), crc32fast::hash(&whole));
                    store.put(name, image);
                }
            }
            self.end(end, whole);
            self.number += 1;
            // the complete checkpoint stays as it was
            if let Some((number, whole)) = &self.complete {
                for store in [&self.own, &self.buddy] {
                    let image = store.get((*number, PE)).expect("kept");
                    assert!(image.is_intact() && *image.bytes() == *whole);
                }
            }
        }

        fn end(&mut self, end: End, whole: Vec<u8>) {
            self.base.clear();
            match end {
                End::Commit => {
                    self.own.keep_only(self.number);
                    self.buddy.keep_only(self.number);
                    self.history.commit(self.number);
                    let fields = self.objects.values().flat_map(|object| &object.fields);
                    self.base.extend(fields.map(|(change, _)| change));
                    self.complete = Some((self.number, whole));
                }
                End::Recover => {
                    let number = self.complete.as_ref().map_or(0, |complete| complete.0);
                    self.own.keep_only(number);
                    self.buddy.clear();
                    if let Some(image) = self.own.get((number, PE)) {
                        let (bytes, checksum) = (image.bytes().into_owned(), image.checksum());
                        self.buddy.put((number, PE), Image::with_checksum(bytes, checksum));
                    }
                    self.history = History::default();
                }
                End::Abandon | End::Refuse => {
                    self.own.drop_one(self.number);
                    self.buddy.drop_one(self.number);
                    self.history.abandon();
                }
            }
        }
    }

    proptest! {
        #[test]
        fn both_copies_are_the_whole_image_and_only_what_has_changed_is_sent(acts in acts()) {
            let mut pair = Pair::default();
            acts.into_iter().for_each(|act| pair.act(act));
        }
    }

    fn new(bytes: &[u8]) -> Packed {
        Packed::New(bytes.to_vec())
    }

    fn image(pieces: Vec<Packed>) -> Image {
        Sending::new((0, PE), pieces).into_image()
    }

    #[test]
    fn parts_that_are_damaged_missing_or_too_long_are_refused() {
        let outline = || Outline { base: None, sources: vec![Source::Sent(4), Source::Sent(2)] };
        let assembly = || Assembly::new(0, outline(), None).expect("memory");
        let checksum = crc32fast::hash(b"abc");
        let part = |at, checksum, bytes| Part { name: (0, PE), at, checksum, bytes };
        assert_eq!(assembly().take(part(0, checksum, b"abc")), Ok(()));
        for wrong in [
            part(0, checksum, b"abd"),
            part(0, checksum ^ 1, b"abc"),
            part(1, checksum, b"abc"),
            part(0, crc32fast::hash(b"abcde"), b"abcde"),
        ] {
            assert_eq!(assembly().take(wrong), Err(Refusal::Damaged));
        }
        let mut whole = assembly();
        for (at, sum, bytes) in [(0, b"abcd".as_slice(), b"abcd".as_slice()), (4, b"ef", b"ef")] {
            whole.take(part(at, crc32fast::hash(sum), bytes)).expect("right");
        }
        assert_eq!(whole.take(part(6, 0, b"")), Err(Refusal::Damaged));
        assert_eq!(*whole.image().expect("whole").bytes(), *b"abcdef");
    }

    #[test]
    fn an_image_that_refers_to_what_is_not_there_or_has_decayed_is_refused() {
        let outline = |place| Outline { base: Some(7), sources: vec![Source::Kept(place), Source::Sent(1)] };
        let base = image(vec![new(b"old"), new(b"rest")]);
        assert!(Assembly::new(8, outline(0), Some(base.clone())).is_ok());
        assert_eq!(Assembly::new(8, outline(2), Some(base)).map(drop), Err(Refusal::NoBase));
        assert_eq!(Assembly::new(8, outline(0), None).map(drop), Err(Refusal::NoBase));
        let broken = Arc::new(Piece { bytes: b"olt".to_vec(), checksum: crc32fast::hash(b"old") });
        let broken = Image::of(vec![broken]);
        let refused: Vec<bool> =
            (0..32).map(|number| Assembly::new(number, outline(0), Some(broken.clone())).is_err()).collect();
        assert_eq!(refused.iter().filter(|refused| **refused).count(), 2, "one of 16");
        // where it is not checked, the flipped bit stays visible
        let mut assembly = Assembly::new(1, outline(0), Some(broken)).expect("not checked");
        let part = Part { name: (1, PE), at: 0, checksum: crc32fast::hash(b"x"), bytes: b"x" };
        assembly.take(part).expect("right");
        assert!(!assembly.image().expect("whole").is_intact());
    }
}
