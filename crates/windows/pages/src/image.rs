// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segments of a program, from its ELF headers, at the addresses where a process has them.

use std::fs::File;
use std::io::Read;
use std::ops::Range;

use object::Endianness;
use object::elf::{FileHeader64, PF_W, PT_INTERP, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use serde::{Deserialize, Serialize};

/// The largest beginning of a file that is read for its headers.
const HEADERS: u64 = 64 << 10;
/// The byte order of this machine.
const NATIVE: Endianness = if cfg!(target_endian = "little") { Endianness::Little } else { Endianness::Big };
/// The entry point in the auxiliary vector.
const AT_ENTRY: u64 = 9;

/// A part of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Segment {
    /// The program's code and constants.
    Text,
    /// The program's initialized variables.
    Data,
    /// The program's variables that begin as zero.
    Bss,
    /// The heap that grows at its end (`brk`).
    Heap,
    /// The stack of the first thread.
    Stack,
    /// Private memory without a name: large blocks of the allocator, stacks of threads.
    Mmap,
    /// Code, constants and variables of libraries.
    Libraries,
    /// Files, shared memory.
    Other,
}

impl Segment {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Text,
        Self::Data,
        Self::Bss,
        Self::Heap,
        Self::Stack,
        Self::Mmap,
        Self::Libraries,
        Self::Other,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Data => "data",
            Self::Bss => "bss",
            Self::Heap => "heap",
            Self::Stack => "stack",
            Self::Mmap => "mmap",
            Self::Libraries => "libraries",
            Self::Other => "other",
        }
    }
}

/// A segment of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Text, data or bss.
    pub(crate) segment: Segment,
    /// Its pages.
    pub(crate) pages: Range<u64>,
    /// Place of its first page in the file; of no meaning for bss.
    pub(crate) offset: u64,
}

/// The segments of a program in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) parts: Vec<Part>,
    /// Address in the process minus address in the file.
    pub(crate) bias: u64,
    /// Address of the entry point in the process.
    pub(crate) entry: u64,
    /// True if a dynamic linker runs before the entry point.
    pub(crate) is_dynamic: bool,
}

impl Image {
    /// The program that a process runs; `None` if it is no 64-bit program of this machine's byte order, or if the kernel does
    /// not tell.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let mut file = Vec::new();
        let exe = File::open(format!("/proc/{pid}/exe")).ok()?;
        exe.take(HEADERS).read_to_end(&mut file).ok()?;
        let auxv = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
        Self::parse(&file, entry(&auxv)?, page_bytes())
    }

    fn parse(file: &[u8], entry: u64, page: u64) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok().filter(|&e| e == NATIVE)?;
        let bias = entry.wrapping_sub(header.e_entry(endian));
        let mut image = Self { parts: Vec::new(), bias, entry, is_dynamic: false };
        for header in header.program_headers(endian, file).ok()? {
            match header.p_type(endian) {
                PT_LOAD => image.add(header, endian, page)?,
                PT_INTERP => image.is_dynamic = true,
                _ => {}
            }
        }
        Some(image)
    }

    /// Adds what a program header loads.
    fn add(&mut self, header: &ProgramHeader64<Endianness>, endian: Endianness, page: u64) -> Option<()> {
        let writable = header.p_flags(endian) & PF_W != 0;
        let down = |n: u64| n & !(page - 1);
        let up = |n: u64| n.checked_add(page - 1).map(down);
        let start = header.p_vaddr(endian).wrapping_add(self.bias);
        let file_end = up(start.checked_add(header.p_filesz(endian))?)?;
        let end = up(start.checked_add(header.p_memsz(endian))?)?;
        let offset = down(header.p_offset(endian));
        let segment = if writable { Segment::Data } else { Segment::Text };
        let parts = [(segment, down(start)..file_end, offset), (Segment::Bss, file_end..end, 0)];
        let parts = parts.into_iter().filter(|(_, pages, _)| !pages.is_empty());
        self.parts.extend(parts.map(|(segment, pages, offset)| Part { segment, pages, offset }));
        Some(())
    }

    /// The segment that this address is in.
    pub(crate) fn segment_at(&self, address: u64) -> Option<Segment> {
        self.parts.iter().find(|p| p.pages.contains(&address)).map(|p| p.segment)
    }
}

/// The kernel's base page.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: the call takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|b| b.is_power_of_two()).unwrap_or(4096)
}

/// The entry point in an auxiliary vector: pairs of words.
fn entry(auxv: &[u8]) -> Option<u64> {
    let mut words = auxv.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_ne_bytes));
    while let (Some(kind), Some(value)) = (words.next(), words.next()) {
        if kind == AT_ENTRY {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ELF_HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;

    #[test]
    fn this_program_has_its_function_in_text_and_its_variable_in_bss() {
        static mut ZERO: [u8; 1 << 16] = [0; 1 << 16];
        let image = Image::of(std::process::id().cast_signed()).expect("an ELF program");
        let text = this_program_has_its_function_in_text_and_its_variable_in_bss as fn() as usize as u64;
        assert_eq!(image.segment_at(text), Some(Segment::Text));
        let zero = (&raw const ZERO) as u64 + (1 << 15);
        assert_eq!(image.segment_at(zero), Some(Segment::Bss));
        let local = 0u8;
        assert_eq!(image.segment_at((&raw const local) as u64), None);
    }

    #[test]
    fn the_file_ends_where_bss_begins() {
        let mut file = vec![0u8; ELF_HEADER + PROGRAM_HEADER];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let put = |file: &mut Vec<u8>, at: usize, n: u64| file[at..at + 8].copy_from_slice(&n.to_le_bytes());
        put(&mut file, 24, 0x40);
        put(&mut file, 32, ELF_HEADER as u64);
        file[54] = PROGRAM_HEADER as u8;
        file[56] = 1;
        file[ELF_HEADER] = 1;
        file[ELF_HEADER + 4] = 6;
        for (at, n) in [(8, 0x2010), (16, 0x3010), (32, 0x1000), (40, 0x5000)] {
            put(&mut file, ELF_HEADER + at, n);
        }
        let image = Image::parse(&file, 0x10_0040, 4096).expect("well formed");
        assert_eq!(image.bias, 0x10_0000);
        let part = |segment, pages, offset| Part { segment, pages, offset };
        assert_eq!(
            image.parts,
            [part(Segment::Data, 0x10_3000..0x10_5000, 0x2000), part(Segment::Bss, 0x10_5000..0x10_9000, 0)]
        );
    }

    proptest! {
        #[test]
        fn no_file_panics(
            mut file in prop::collection::vec(any::<u8>(), 0..400),
            entry_point in any::<u64>(),
            auxv in prop::collection::vec(any::<u8>(), 0..80),
            table in 0u8..80,
        ) {
            // half of the time as far as the program headers
            if file.len() > ELF_HEADER && file[7] < 128 {
                file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
                file[32..40].copy_from_slice(&u64::from(table).to_le_bytes());
                file[54..58].copy_from_slice(&[56, 0, 3, 0]);
            }
            let _ = Image::parse(&file, entry_point, 4096);
            let _ = entry(&auxv);
        }
    }
}
