// SPDX-License-Identifier: MIT OR Apache-2.0
//! The images that a process keeps: of its own PEs, and of the PEs whose buddy it is.

use std::borrow::Cow;
use std::collections::{BTreeMap, TryReserveError};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::mman::{MmapAdvise, madvise};

/// Bytes of a page, and of a large one.
const PAGE: usize = 4 << 10;
const LARGE: usize = 2 << 20;

/// A PE's image in a checkpoint, by the checkpoint's number and the PE.
pub(crate) type Name = (u64, u32);

/// Some bytes of an image, with their checksum.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: u32,
}

impl Piece {
    /// Returns `true` if the bytes are those of which the checksum was made.
    pub(crate) fn is_intact(&self) -> bool {
        crc32fast::hash(&self.bytes) == self.checksum
    }
}

/// One image with its checksums. Images of successive checkpoints share the pieces that have not changed.
#[derive(Clone, Debug)]
pub(crate) struct Image(Arc<[Arc<Piece>]>);

impl Image {
    /// An image whose bytes are right.
    #[cfg(test)]
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let checksum = crc32fast::hash(&bytes);
        Self::with_checksum(bytes, checksum)
    }

    /// An image in one piece.
    pub(crate) fn with_checksum(bytes: Vec<u8>, checksum: u32) -> Self {
        Self::of(vec![Arc::new(Piece { bytes, checksum })])
    }

    /// An image of these pieces, one after another.
    pub(crate) fn of(pieces: Vec<Arc<Piece>>) -> Self {
        Self(pieces.into())
    }

    pub(crate) fn pieces(&self) -> &[Arc<Piece>] {
        &self.0
    }

    pub(crate) fn length(&self) -> u64 {
        self.0.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// The checksum of all bytes, from those of the pieces.
    pub(crate) fn checksum(&self) -> u32 {
        let mut all = crc32fast::Hasher::new();
        for piece in self.pieces() {
            all.combine(&crc32fast::Hasher::new_with_initial_len(piece.checksum, piece.bytes.len() as u64));
        }
        all.finalize()
    }

    /// Returns `true` if the bytes are those of which the checksums were made.
    pub(crate) fn is_intact(&self) -> bool {
        self.0.iter().all(|piece| piece.is_intact())
    }

    /// All bytes, at most so many at once.
    pub(crate) fn chunks(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(move |piece| piece.bytes.chunks(most))
    }

    /// All bytes. An image of several pieces is copied.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match self.pieces() {
            [piece] => Cow::Borrowed(&piece.bytes),
            pieces => {
                let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.bytes.len()).sum());
                pieces.iter().for_each(|piece| bytes.extend_from_slice(&piece.bytes));
                Cow::Owned(bytes)
            }
        }
    }
}

/// Empty memory for an image of about so many bytes, if the system has it.
pub(crate) fn memory(bytes: usize) -> Result<Vec<u8>, TryReserveError> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes)?;
    use_large_pages(memory.spare_capacity_mut());
    Ok(memory)
}

/// Asks for large pages: the faults of small ones take longer than the copy of an image into them.
fn use_large_pages(memory: &mut [MaybeUninit<u8>]) {
    let offset = memory.as_ptr().align_offset(PAGE);
    let Some(pages) = memory.get_mut(offset..) else { return };
    let length = pages.len() & !(PAGE - 1);
    if length >= LARGE {
        let begin = std::ptr::NonNull::from(pages).cast();
        // SAFETY: the pages belong to `memory`, and the advice changes nothing in them. A kernel without large pages refuses it.
        let _ = unsafe { madvise(begin, length, MmapAdvise::MADV_HUGEPAGE) };
    }
}

/// The images of one process, for all its PEs and through all generations of the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<BTreeMap<Name, Image>>>);

impl Store {
    fn images(&self) -> MutexGuard<'_, BTreeMap<Name, Image>> {
        // every change of the map is one call, so a panic elsewhere leaves it whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, name: Name, image: Image) {
        self.images().insert(name, image);
    }

    pub(crate) fn get(&self, name: Name) -> Option<Image> {
        self.images().get(&name).cloned()
    }

    /// Checkpoint `number` is complete, or is that of the recovery: drops all others.
    pub(crate) fn keep_only(&self, number: u64) {
        self.images().retain(|name, _| name.0 == number);
    }

    /// Drops a checkpoint that cannot be completed.
    pub(crate) fn drop_one(&self, number: u64) {
        self.images().retain(|name, _| name.0 != number);
    }

    /// Drops all images.
    pub(crate) fn clear(&self) {
        self.images().clear();
    }

    /// The images that are intact, and the names of those that are not, which are dropped.
    pub(crate) fn inventory(&self) -> (Vec<Name>, Vec<Name>) {
        let mut images = self.images();
        let (intact, broken): (Vec<_>, Vec<_>) = images.iter().partition(|(_, image)| image.is_intact());
        let names =
            |images: Vec<(&Name, &Image)>| images.into_iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let (intact, broken) = (names(intact), names(broken));
        images.retain(|name, _| !broken.contains(name));
        (intact, broken)
    }

    /// Bytes of all images.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.images().values().map(|image| image.length()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_found() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        let image = Image::new(bytes.clone());
        assert!(image.is_intact());
        for bit in (0..8000).step_by(13) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!Image::with_checksum(bytes, image.checksum()).is_intact(), "bit {bit}");
        }
    }

    #[test]
    fn the_checksum_of_all_bytes_does_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for size in [1, 7, 500, 1000] {
            let piece =
                |bytes: &[u8]| Arc::new(Piece { bytes: bytes.to_vec(), checksum: crc32fast::hash(bytes) });
            let image = Image::of(bytes.chunks(size).map(piece).collect());
            assert_eq!(image.checksum(), crc32fast::hash(&bytes), "pieces of {size} bytes");
            assert_eq!((image.bytes().into_owned(), image.length()), (bytes.clone(), 1000));
            assert!(image.chunks(300).all(|chunk| chunk.len() <= 300));
            assert_eq!(image.chunks(300).flatten().count(), 1000);
        }
    }

    #[test]
    fn a_committed_checkpoint_replaces_all_others() {
        let store = Store::default();
        for number in 0..3 {
            store.put((number, 4), Image::new(vec![number as u8]));
        }
        store.drop_one(2);
        store.keep_only(1);
        assert_eq!(store.inventory(), (vec![(1, 4)], Vec::new()));
        assert_eq!(store.bytes(), 1);
    }

    #[test]
    fn memory_that_the_system_lacks_is_an_error() {
        assert!(memory(usize::MAX).is_err());
        let mut bytes = memory(5 << 20).expect("some memory");
        assert!(bytes.is_empty() && bytes.capacity() >= 5 << 20);
        bytes.resize(5 << 20, 7);
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
