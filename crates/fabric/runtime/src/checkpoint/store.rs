// SPDX-License-Identifier: MIT OR Apache-2.0
//! The images that a process keeps: of its own PEs, and of the PEs whose buddy it is.

use std::collections::{BTreeMap, TryReserveError};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::mman::{MmapAdvise, madvise};

/// Bytes of a page, and of a large one.
const PAGE: usize = 4 << 10;
const LARGE: usize = 2 << 20;

/// A PE's image in a checkpoint, by the checkpoint's number and the PE.
pub(crate) type Name = (u64, u32);

/// One image with its checksum.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) checksum: u32,
}

impl Image {
    /// An image whose bytes are right.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let checksum = crc32fast::hash(&bytes);
        Self { bytes: Arc::new(bytes), checksum }
    }

    /// Returns `true` if the bytes are those of which the checksum was made.
    pub(crate) fn is_intact(&self) -> bool {
        crc32fast::hash(&self.bytes) == self.checksum
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
        self.images().values().map(|image| image.bytes.len() as u64).sum()
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
            assert!(!Image { bytes: Arc::new(bytes), ..image }.is_intact(), "bit {bit}");
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
