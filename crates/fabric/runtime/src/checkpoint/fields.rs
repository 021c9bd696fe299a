// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Tracked`](crate::Tracked) fields of objects in images: each is a piece of its own, for it may not have changed.
//!
//! A field is packed by `serde`, which knows nothing of images. So the thread that packs or unpacks an object for a
//! checkpoint keeps the fields aside meanwhile. The object's own bytes say only where a field belongs.

use std::cell::Cell;
use std::collections::{TryReserveError, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::store::{Image, Piece, memory};
use crate::message::Malformed;

/// The shortest field that is a piece of its own. A shorter one is packed into the object: that takes as long as to refer
/// to it.
pub(crate) const LEAST: usize = 4 << 10;
/// A piece that stays is checked at one of so many checkpoints, lest both copies decay unseen.
const CHECKED: u64 = 16;

thread_local! {
    /// The fields of the image that this thread packs, while it packs an object.
    static PACKING: Cell<Option<Fields>> = const { Cell::new(None) };
    /// The fields of the object that this thread unpacks, in order.
    static UNPACKING: Cell<Option<VecDeque<Vec<u8>>>> = const { Cell::new(None) };
}

/// Returns `true` if a piece of an earlier image is checked before checkpoint `number` uses it again: on the PE and on its
/// buddy.
pub(crate) fn is_checked(number: u64, piece: u32) -> bool {
    (number + u64::from(piece)).is_multiple_of(CHECKED)
}

/// The system has no memory for so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory(pub(crate) usize);

/// An object that is not packed.
#[derive(Debug)]
pub(crate) enum NotPacked {
    NoMemory(NoMemory),
    Malformed(Malformed),
}

impl From<NoMemory> for NotPacked {
    fn from(error: NoMemory) -> Self {
        Self::NoMemory(error)
    }
}

impl From<Malformed> for NotPacked {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

/// Memory for about so many bytes.
pub(super) fn reserve(expected: usize) -> Result<Vec<u8>, NoMemory> {
    memory(expected).map_err(|_: TryReserveError| NoMemory(expected))
}

/// Returns memory that is not used, if it is much.
pub(super) fn trim(bytes: &mut Vec<u8>) {
    if bytes.capacity() - bytes.len() > bytes.len() >> 4 {
        bytes.shrink_to_fit();
    }
}

/// A piece of an image.
#[derive(Debug)]
pub(crate) enum Packed {
    New(Vec<u8>),
    /// A piece of the image before, by its place.
    Kept(u32, Arc<Piece>),
}

impl Packed {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::New(bytes) => bytes,
            Self::Kept(_, piece) => &piece.bytes,
        }
    }
}

/// The places of the fields in an image, by their versions: a version is that of one value in this process.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub(super) checkpoint: u64,
    pub(super) places: FxHashMap<u64, u32>,
}

/// The fields of an image while it is packed.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// The image of the last complete checkpoint.
    pub(super) base: Option<(Image, Arc<Versions>)>,
    pub(super) versions: Versions,
    pub(super) pieces: Vec<Packed>,
    /// The first failure: `serde` loses it.
    pub(super) failure: Option<NotPacked>,
}

/// Where a field is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Into a piece of its own.
    Apart,
    /// Into the object: these bytes.
    Short(Vec<u8>),
    /// Not at all.
    Failed,
}

impl Fields {
    /// Adds a field of about so many bytes. `pack` appends it to other bytes; it is not called if the version is known. In
    /// debug builds it is, to find a value that changes without a new version.
    fn add(
        &mut self,
        version: u64,
        expected: usize,
        pack: impl Fn(&mut Vec<u8>) -> Result<(), Malformed>,
    ) -> Result<Field, NotPacked> {
        let packed = match self.known(version) {
            Some((place, piece)) => {
                if cfg!(debug_assertions) && differs(&piece, pack)? {
                    return Err(NotPacked::Malformed(Malformed::new(
                        "a `Tracked` field",
                        "has changed behind a shared reference, so a recovery would bring the old value back; change it \
                         through `&mut`, or take it out of `Tracked`",
                    )));
                }
                Packed::Kept(place, piece)
            }
            None => {
                let mut bytes = reserve(expected)?;
                pack(&mut bytes)?;
                if bytes.len() < LEAST {
                    return Ok(Field::Short(bytes));
                }
                trim(&mut bytes);
                Packed::New(bytes)
            }
        };
        self.versions.places.insert(version, self.pieces.len() as u32);
        self.pieces.push(packed);
        Ok(Field::Apart)
    }

    /// The piece of a version in the image before, if it can be used again.
    fn known(&self, version: u64) -> Option<(u32, Arc<Piece>)> {
        let (image, versions) = self.base.as_ref()?;
        let &place = versions.places.get(&version)?;
        let piece = image.pieces().get(place as usize)?;
        let is_usable = !is_checked(self.versions.checkpoint, place) || piece.is_intact();
        is_usable.then(|| (place, piece.clone()))
    }

    /// Calls `pack`, which packs an object, and takes the object's fields meanwhile.
    pub(super) fn record<R>(&mut self, pack: impl FnOnce() -> R) -> R {
        /// Fields of an object that panics are of no use.
        struct Clear;
        impl Drop for Clear {
            fn drop(&mut self) {
                PACKING.take();
            }
        }
        PACKING.set(Some(std::mem::take(self)));
        let _clear = Clear;
        let result = pack();
        *self = PACKING.take().unwrap_or_default();
        result
    }
}

/// Returns `true` if a value is not that of its piece in the image before.
fn differs(piece: &Piece, pack: impl Fn(&mut Vec<u8>) -> Result<(), Malformed>) -> Result<bool, Malformed> {
    let mut bytes = Vec::with_capacity(piece.bytes.len());
    pack(&mut bytes)?;
    // a piece whose bits have flipped proves nothing
    Ok(bytes != piece.bytes && piece.is_intact())
}

/// Packs a field for the image that this thread packs. `None`: it packs none, or the field is part of another one.
/// `expected` is called for the number of bytes, about.
pub(crate) fn pack_field(
    version: u64,
    expected: impl FnOnce() -> usize,
    pack: impl Fn(&mut Vec<u8>) -> Result<(), Malformed>,
) -> Option<Field> {
    let mut fields = PACKING.take()?;
    let field = if fields.failure.is_some() {
        Field::Failed
    } else {
        fields.add(version, expected(), pack).unwrap_or_else(|failure| {
            fields.failure = Some(failure);
            Field::Failed
        })
    };
    PACKING.set(Some(fields));
    Some(field)
}

/// Calls `unpack`, which unpacks an object, and gives the object its fields meanwhile: these bytes, cut into so many.
pub(crate) fn with_fields<R>(
    mut bytes: &[u8],
    lengths: &[u64],
    unpack: impl FnOnce() -> Result<R, Malformed>,
) -> Result<R, Malformed> {
    let wrong = |reason: &str| Malformed::new("an object of the image", reason);
    let mut fields = VecDeque::with_capacity(lengths.len());
    for &length in lengths {
        let (field, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| bytes.split_at_checked(length))
            .ok_or_else(|| wrong("ends inside a field"))?;
        fields.push_back(field.to_vec());
        bytes = rest;
    }
    UNPACKING.set(Some(fields));
    let unpacked = unpack();
    match UNPACKING.take() {
        Some(left) if !left.is_empty() && unpacked.is_ok() => Err(wrong("does not take all its fields")),
        _ => unpacked,
    }
}

/// Calls `unpack`, which unpacks a field of an object of an image, with the fields that are left. `None`: this thread
/// unpacks no image, or the field is part of another one.
pub(crate) fn unpack_field<R>(unpack: impl FnOnce(&mut VecDeque<Vec<u8>>) -> R) -> Option<R> {
    let mut fields = UNPACKING.take()?;
    let unpacked = unpack(&mut fields);
    UNPACKING.set(Some(fields));
    Some(unpacked)
}
