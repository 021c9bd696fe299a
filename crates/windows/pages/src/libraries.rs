// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries of a process, from its mappings.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::image::{Image, Segment};
use crate::smaps::Mapping;

/// A piece of a library as it is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its addresses.
    pub(crate) pages: Range<u64>,
    /// Place of its first byte in the file.
    pub(crate) offset: u64,
    /// The kind of memory.
    pub(crate) kind: Kind,
    /// The library's file.
    pub(crate) file: String,
}

/// Memory of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Code.
    Code,
    /// Initialized variables.
    Data,
    /// Variables that begin as zero.
    Bss,
}

/// The files that a process has code of.
pub(crate) fn files(mappings: &[Mapping]) -> BTreeSet<&str> {
    let code = |m: &&Mapping| is_private_file(m) && m.protection & libc::PROT_EXEC != 0;
    mappings.iter().filter(code).map(|m| m.name.as_str()).collect()
}

fn is_private_file(m: &Mapping) -> bool {
    m.name.starts_with('/') && !m.shared
}

/// Code, variables and zero variables of all libraries. Constants are left out: they are large, and rarely read. Memory that
/// cannot be read is left out too.
pub(crate) fn pieces(mappings: &[Mapping], program: &Image) -> Vec<Piece> {
    let files = files(mappings);
    let of_program = |m: &Mapping| program.segment_at(m.range.start).is_some();
    let is_library = |m: &Mapping| is_private_file(m) && files.contains(m.name.as_str()) && !of_program(m);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut before: Option<&Mapping> = None;
    for m in mappings {
        let (writable, code) = (m.protection & libc::PROT_WRITE != 0, m.protection & libc::PROT_EXEC != 0);
        let follows = before.filter(|b| is_library(b) && b.range.end == m.range.start);
        let piece =
            |kind, file: &str| Piece { pages: m.range.clone(), offset: m.offset, kind, file: file.into() };
        if m.protection & libc::PROT_READ == 0 {
            // what a linker reserves between segments
        } else if is_library(m) && (code || writable) {
            pieces.push(piece(if code { Kind::Code } else { Kind::Data }, &m.name));
        } else if let Some(library) = follows.filter(|_| m.name.is_empty() && !m.shared && writable && !code)
        {
            pieces.push(piece(Kind::Bss, &library.name));
        }
        before = Some(m);
    }
    pieces
}

/// The segment of a mapping that belongs to no part of the program.
pub(crate) fn segment_of(m: &Mapping, files: &BTreeSet<&str>, moved: &[Range<u64>]) -> Option<Segment> {
    let is_library = is_private_file(m) && files.contains(m.name.as_str());
    let is_moved = || moved.iter().any(|r| r.start <= m.range.start && m.range.end <= r.end);
    (is_library || is_moved()).then_some(Segment::Libraries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smaps;

    const MAPS: &str = "\
555555554000-555555556000 r-xp 00000000 08:01 1 /usr/bin/app
7f0000000000-7f0000400000 r--p 00000000 08:01 2 /usr/lib/libbig.so (deleted)
7f0000400000-7f0000a00000 r-xp 00400000 08:01 2 /usr/lib/libbig.so (deleted)
7f0000a00000-7f0000b00000 ---p 00a00000 08:01 2 /usr/lib/libbig.so (deleted)
7f0000b00000-7f0000b10000 r--p 00b00000 08:01 2 /usr/lib/libbig.so (deleted)
7f0000b10000-7f0001000000 rw-p 00b10000 08:01 2 /usr/lib/libbig.so (deleted)
7f0001000000-7f0001800000 rw-p 00000000 00:00 0
7f0002000000-7f0003000000 rw-p 00000000 08:01 3 /data/matrix
7f0004000000-7f0005000000 rw-s 00000000 08:01 4 /dev/shm/x
7ffff7fc0000-7ffff7fc2000 r-xp 00000000 00:00 0 [vdso]
";

    #[test]
    fn code_and_variables_of_libraries_are_found_and_nothing_else() {
        let mappings = smaps::parse(MAPS);
        let program = Image {
            parts: vec![crate::image::Part {
                segment: Segment::Text,
                pages: 0x5555_5555_4000..0x5555_5555_6000,
                offset: 0,
            }],
            ..Image::default()
        };
        let pieces = pieces(&mappings, &program);
        let found: Vec<_> = pieces.iter().map(|p| (p.pages.start, p.offset, p.kind)).collect();
        assert_eq!(
            found,
            [
                (0x7f00_0040_0000, 0x40_0000, Kind::Code),
                (0x7f00_00b1_0000, 0xb1_0000, Kind::Data),
                (0x7f00_0100_0000, 0, Kind::Bss)
            ]
        );
        assert!(pieces.iter().all(|p| p.file.starts_with("/usr/lib/libbig.so")), "{pieces:?}");
    }

    #[test]
    fn a_data_file_that_is_mapped_is_no_library() {
        let mappings = smaps::parse(MAPS);
        let files = files(&mappings);
        let segment = |place: usize, moved: &[Range<u64>]| segment_of(&mappings[place], &files, moved);
        assert_eq!(segment(4, &[]), Some(Segment::Libraries));
        assert_eq!(segment(7, &[]), None);
        assert_eq!(segment(6, &[]), None);
        assert_eq!(
            segment(6, std::slice::from_ref(&(0x7f00_0100_0000..0x7f00_0180_0000))),
            Some(Segment::Libraries)
        );
    }
}
