// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a process in pieces of 64 KiB that the kernel holds in one large folio.
//!
//! `smaps` does not tell of these. `/proc/PID/pagemap` gives the frame of each page, and `/proc/kpageflags` says which frames
//! belong to one folio. Both need root.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::image::page_bytes;
use crate::policy::PagePolicy;

/// Pages of 4 KiB in 64 KiB.
const PAGES: usize = 16;
const WORD: usize = size_of::<u64>();
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;

/// The files that tell of frames.
pub(crate) struct Folios {
    flags: File,
}

impl Folios {
    /// `None` without the privilege, or where base pages are not of 4 KiB.
    pub(crate) fn open() -> Option<Self> {
        let flags = File::open("/proc/kpageflags").ok()?;
        (page_bytes() == PagePolicy::MEDIUM_BYTES / PAGES as u64).then_some(Self { flags })
    }

    /// Bytes of a mapping in aligned pieces of 64 KiB, each in one folio; `None` if the kernel does not tell.
    pub(crate) fn bytes_in(&self, pid: i32, range: &Range<u64>) -> Option<u64> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
        let mut bytes = 0;
        let mut piece = range.start.checked_next_multiple_of(PagePolicy::MEDIUM_BYTES)?;
        let mut entries = vec![0; PAGES * WORD * 1024];
        while piece < range.end / PagePolicy::MEDIUM_BYTES * PagePolicy::MEDIUM_BYTES {
            let left = (range.end - piece) / PagePolicy::MEDIUM_BYTES;
            let length = usize::try_from(left).unwrap_or(1024).min(1024) * PAGES * WORD;
            let entries = entries.get_mut(..length)?;
            let place = piece / page_bytes() * WORD as u64;
            pagemap.read_exact_at(entries, place).ok()?;
            for entries in entries.chunks_exact(PAGES * WORD) {
                if let Some(frame) = first_frame(entries)? {
                    bytes += if self.is_one_folio(frame)? { PagePolicy::MEDIUM_BYTES } else { 0 };
                }
            }
            piece += (length / WORD) as u64 * page_bytes();
        }
        Some(bytes)
    }

    fn is_one_folio(&self, frame: u64) -> Option<bool> {
        let mut flags = [0; PAGES * WORD];
        self.flags.read_exact_at(&mut flags, frame * WORD as u64).ok()?;
        Some(is_one_folio(&flags))
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(WORD).map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

/// The first frame of a piece whose frames lie side by side in memory, from its entries in `pagemap`. The outer `None`: the kernel
/// hides frames from this process.
fn first_frame(entries: &[u8]) -> Option<Option<u64>> {
    let mut entries = words(entries);
    let Some(first) = entries.next().filter(|e| e & PRESENT != 0) else { return Some(None) };
    let frame = first & FRAME;
    if frame == 0 {
        return None;
    }
    let side_by_side =
        entries.zip(frame + 1..).all(|(entry, frame)| entry & PRESENT != 0 && entry & FRAME == frame);
    Some((side_by_side && frame.is_multiple_of(PAGES as u64)).then_some(frame))
}

/// All pages of a piece belong to one folio: the first begins or continues it, the others continue it.
fn is_one_folio(flags: &[u8]) -> bool {
    let mut flags = words(flags);
    flags.next().is_some_and(|f| f & (HEAD | TAIL) != 0) && flags.all(|f| f & TAIL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn frames_must_lie_side_by_side_and_begin_at_a_multiple() {
        let present = |frames: Vec<u64>| bytes(frames.into_iter().map(|f| f | PRESENT));
        assert_eq!(first_frame(&present((32..48).collect())), Some(Some(32)));
        assert_eq!(first_frame(&present((33..49).collect())), Some(None));
        let mut gap: Vec<u64> = (32..48).collect();
        gap[7] = 99;
        assert_eq!(first_frame(&present(gap)), Some(None));
        assert_eq!(first_frame(&bytes([0; PAGES])), Some(None));
        // without privilege every frame reads as zero
        assert_eq!(first_frame(&bytes([PRESENT; PAGES])), None);
    }

    #[test]
    fn a_second_folio_in_the_piece_is_seen() {
        let mut flags = [TAIL; PAGES];
        assert!(is_one_folio(&bytes(flags)));
        flags[0] = HEAD;
        assert!(is_one_folio(&bytes(flags)));
        flags[8] = HEAD;
        assert!(!is_one_folio(&bytes(flags)));
        assert!(!is_one_folio(&bytes([0; PAGES])));
    }

    proptest! {
        #[test]
        fn no_entries_panic(entries in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (first_frame(&entries), is_one_folio(&entries));
        }
    }
}
