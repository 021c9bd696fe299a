// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of running processes by page size.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::folios::Folios;
use crate::image::{Image, Segment};
use crate::libraries;
use crate::smaps::{self, Mapping};

/// The most memory whose frames are looked at: 16 MiB of entries.
const LARGEST: u64 = 8 << 30;

/// Bytes of a segment by page size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentBytes {
    /// The segment.
    pub segment: Segment,
    /// Bytes in memory.
    pub resident: u64,
    /// Of these, on huge pages.
    pub huge: u64,
    /// Of these, in folios of 64 KiB and more that are not mapped as huge pages; `None`: not seen (it needs root, and a job of at most
    /// 8 GiB).
    pub medium: Option<u64>,
}

impl SegmentBytes {
    const fn none(segment: Segment) -> Self {
        Self { segment, resident: 0, huge: 0, medium: Some(0) }
    }

    /// Bytes on base pages; the bytes in folios of 64 KiB are among them if they are not seen.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.resident.saturating_sub(self.huge).saturating_sub(self.medium.unwrap_or(0))
    }

    fn add(&mut self, resident: u64, huge: u64, medium: Option<u64>) {
        self.resident = self.resident.saturating_add(resident);
        self.huge = self.huge.saturating_add(huge);
        self.medium = self.medium.zip(medium).map(|(sum, more)| sum.saturating_add(more));
    }
}

/// Memory of a job's processes at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the program's start, in nanoseconds.
    pub at_ns: u64,
    /// Processes seen; memory that they share is counted in each.
    pub processes: usize,
    /// Every segment, in the order of [`Segment::ALL`].
    pub segments: Vec<SegmentBytes>,
}

/// A look at the memory of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) sample: Sample,
    /// Bytes that large pages could still take.
    pub(crate) untouched: u64,
}

/// Moves within a program, which hide the names of its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    /// The program.
    pub(crate) image: Image,
    /// Addresses of libraries' memory that has no file any more.
    pub(crate) libraries: Vec<Range<u64>>,
}

impl Sample {
    /// Looks at these processes; `None` if none of them has memory.
    pub(crate) fn take(pids: &[i32], at_ns: u64, program: &Moves) -> Option<Look> {
        let mut untouched: u64 = 0;
        let folios = Folios::open();
        let mut left = LARGEST;
        let mut segments = Segment::ALL.map(SegmentBytes::none);
        let mut processes = 0;
        for &pid in pids {
            // first: of a program that has ended meanwhile there are no mappings, and so none without a name
            let image = Image::of(pid).unwrap_or_default();
            let Ok(text) = std::fs::read(format!("/proc/{pid}/smaps")) else { continue };
            let mappings = smaps::parse(&String::from_utf8_lossy(&text));
            let files = libraries::files(&mappings);
            // of the program, and of what it forks
            let moved: &[Range<u64>] = if image == program.image { &program.libraries } else { &[] };
            processes += usize::from(!mappings.is_empty());
            untouched = mappings.iter().map(Mapping::untouched).fold(untouched, u64::saturating_add);
            for mapping in mappings.iter().filter(|m| m.resident > 0) {
                left = left.saturating_sub(mapping.resident);
                let medium =
                    folios.as_ref().filter(|_| left > 0).and_then(|f| f.bytes_in(pid, &mapping.range));
                // huge pages are folios too
                let medium = medium.map(|bytes| bytes.min(mapping.resident).saturating_sub(mapping.huge));
                let segment = image
                    .segment_at(mapping.range.start)
                    .or_else(|| libraries::segment_of(mapping, &files, moved))
                    .unwrap_or_else(|| segment_by_name(mapping));
                if let Some(sum) = segments.iter_mut().find(|s| s.segment == segment) {
                    sum.add(mapping.resident, mapping.huge, medium);
                }
            }
        }
        let sample = Self { at_ns, processes, segments: segments.to_vec() };
        (processes > 0).then_some(Look { sample, untouched })
    }

    /// Bytes in memory.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.segments.iter().map(|s| s.resident).sum()
    }

    /// The bytes of a segment.
    #[must_use]
    pub fn of(&self, segment: Segment) -> Option<&SegmentBytes> {
        self.segments.iter().find(|s| s.segment == segment)
    }
}

fn segment_by_name(mapping: &Mapping) -> Segment {
    match mapping.name.as_str() {
        "[heap]" => Segment::Heap,
        "[stack]" => Segment::Stack,
        name if !mapping.shared && (name.is_empty() || name.starts_with("[anon:")) => Segment::Mmap,
        _ => Segment::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{Mode, Support};

    #[test]
    fn this_process_has_text_stack_and_libraries() {
        let pid = std::process::id().cast_signed();
        let Look { sample, .. } = Sample::take(&[pid], 0, &Moves::default()).expect("it runs");
        assert_eq!(sample.processes, 1);
        for segment in [Segment::Text, Segment::Data, Segment::Stack, Segment::Libraries] {
            assert!(sample.of(segment).is_some_and(|s| s.resident > 0), "{segment:?}: {sample:?}");
        }
        for s in &sample.segments {
            assert_eq!(s.base() + s.huge + s.medium.unwrap_or(0), s.resident, "{s:?}");
        }
        assert_eq!(Sample::take(&[0], 0, &Moves::default()), None);
    }

    #[test]
    fn memory_that_is_mapped_for_large_pages_and_not_touched_is_seen() {
        const BYTES: usize = 64 << 20;
        let untouched = || {
            let pid = std::process::id().cast_signed();
            Sample::take(&[pid], 0, &Moves::default()).expect("it runs").untouched
        };
        let before = untouched();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping of its own, which nothing else uses.
        let asked = unsafe {
            let map =
                libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            libc::madvise(map, BYTES, libc::MADV_HUGEPAGE)
        };
        let has = matches!(Support::here().huge_mode(), Mode::Always | Mode::Madvise);
        if asked != 0 || !has {
            return colony_testing::skip("huge pages are off on this node");
        }
        // other tests of this process map and touch memory too, but less
        assert!(untouched() >= before + (BYTES as u64) / 2, "{before}");
    }

    #[test]
    fn bytes_that_are_not_seen_once_are_not_seen_in_the_sum() {
        let mut s = SegmentBytes::none(Segment::Heap);
        s.add(10 << 20, 4 << 20, Some(1 << 20));
        assert_eq!((s.base(), s.medium), (5 << 20, Some(1 << 20)));
        s.add(1 << 20, 0, None);
        assert_eq!((s.base(), s.medium), (7 << 20, None));
    }
}
