// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: what of an ELF file goes where in the memory of a process.

use std::fs::File;
use std::io;

use colony_fship::layout::{EXECUTE, LARGE_PAGE, PAGE, PIE_BASE, READ, SEGMENTS, STACK, WRITE};
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};

use crate::ProgramError;

type Header = elf::FileHeader64<LE>;

/// A part of the file that goes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Address in memory.
    pub(crate) address: u64,
    /// Bytes in memory; what the file does not have is zero.
    pub(crate) length: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Bytes in the file.
    pub(crate) in_file: u64,
    /// Bits of `READ`, `WRITE`, `EXECUTE`.
    pub(crate) flags: u64,
}

/// A program that can be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) loads: Vec<Load>,
    pub(crate) entry: u64,
    /// Address of the program headers, if they are in memory.
    pub(crate) headers: Option<u64>,
    pub(crate) headers_len: u64,
    /// First page after the last segment.
    pub(crate) end: u64,
}

/// Reads the headers of a program for a process with so many bytes of memory.
pub(crate) fn read(file: &File, memory: u64) -> Result<Program, ProgramError> {
    let length = file.metadata().map_err(|e: io::Error| ProgramError::Read(e.to_string()))?.len();
    parse(&ReadCache::new(file), length, memory)
}

/// As [`read`], from anywhere; `length` bytes are there.
pub(crate) fn parse<'a>(data: impl ReadRef<'a>, length: u64, memory: u64) -> Result<Program, ProgramError> {
    let not = |e: object::read::Error| ProgramError::NotElf(e.to_string());
    let magic = data.read_bytes_at(0, 20).map_err(|()| ProgramError::NotElf("it is too short".into()))?;
    if magic[..4] != elf::ELFMAG {
        return Err(ProgramError::NotElf("it does not begin as an ELF file does".into()));
    }
    // class, byte order, machine: said before the parser, which has one answer for all
    if magic[4] != elf::ELFCLASS64
        || magic[5] != elf::ELFDATA2LSB
        || magic[18..20] != elf::EM_X86_64.to_le_bytes()
    {
        return Err(ProgramError::Machine);
    }
    let header = Header::parse(data).map_err(not)?;
    let base = match header.e_type(LE) {
        elf::ET_EXEC => 0,
        elf::ET_DYN => PIE_BASE,
        _ => return Err(ProgramError::NotElf("it is an object file or a core, not a program".into())),
    };
    let headers = header.program_headers(LE, data).map_err(not)?;
    if let Some(interpreter) = headers.iter().find_map(|h| h.interpreter(LE, data).transpose()) {
        let name = String::from_utf8_lossy(interpreter.map_err(not)?).into_owned();
        return Err(ProgramError::Dynamic(name));
    }
    let mut loads = Vec::new();
    for h in headers.iter().filter(|h| h.p_type(LE) == elf::PT_LOAD && h.p_memsz(LE) > 0) {
        loads.push(load(h, base, length)?);
    }
    check(&loads, memory)?;
    let end = loads.last().map_or(0, |l| (l.address + l.length).next_multiple_of(PAGE));
    let entry = header.e_entry(LE).wrapping_add(base);
    let starts = |l: &Load| l.flags & EXECUTE != 0 && (l.address..l.address + l.length).contains(&entry);
    if !loads.iter().any(starts) {
        return Err(ProgramError::Layout("the first instruction is in none of them".into()));
    }
    let offset = header.e_phoff(LE);
    let holds = |l: &&Load| (l.offset..l.offset + l.in_file).contains(&offset);
    let place = loads.iter().find(holds).map(|l| l.address + (offset - l.offset));
    Ok(Program { entry, headers: place, headers_len: headers.len() as u64, end, loads })
}

fn load(h: &elf::ProgramHeader64<LE>, base: u64, length: u64) -> Result<Load, ProgramError> {
    let wrong = |what: &str| ProgramError::Layout(what.into());
    let (offset, in_file) = (h.p_offset(LE), h.p_filesz(LE));
    if offset.checked_add(in_file).is_none_or(|end| end > length) {
        return Err(wrong("one is longer than the file"));
    }
    if in_file > h.p_memsz(LE) {
        return Err(wrong("one has more bytes in the file than in memory"));
    }
    let address = h.p_vaddr(LE).checked_add(base).ok_or_else(|| wrong("one is beyond all addresses"))?;
    let flag = |bit: u32, ours| if h.p_flags(LE) & bit != 0 { ours } else { 0 };
    let flags = flag(elf::PF_R, READ) | flag(elf::PF_W, WRITE) | flag(elf::PF_X, EXECUTE);
    Ok(Load { address, length: h.p_memsz(LE), offset, in_file, flags })
}

/// They are in order, apart, and between the first 2 MiB and the stack.
fn check(loads: &[Load], memory: u64) -> Result<(), ProgramError> {
    let wrong = |what: String| Err(ProgramError::Layout(what));
    if loads.is_empty() || loads.len() > SEGMENTS {
        return wrong(format!("there are {}, and can be 1 to {SEGMENTS}", loads.len()));
    }
    let mut free = LARGE_PAGE;
    for l in loads {
        if l.address < free {
            let why = if free == LARGE_PAGE { "the first 2 MiB are not mapped" } else { "another is there" };
            return wrong(format!("one is at {:#x}: {why}", l.address));
        }
        let Some(end) = l.address.checked_add(l.length) else {
            return wrong(format!("one is at {:#x}, and ends beyond all addresses", l.address));
        };
        free = end;
    }
    let needed = free.saturating_add(PAGE).saturating_add(STACK);
    if needed > memory {
        return Err(ProgramError::TooBig { needed, room: memory });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMORY: u64 = 64 << 20;

    /// A program with these headers (type, flags, offset, address, bytes in the file, in memory).
    fn file(kind: u16, entry: u64, headers: &[(u32, u32, [u64; 4])]) -> Vec<u8> {
        let mut all = Vec::new();
        all.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        all.extend(kind.to_le_bytes());
        all.extend(62u16.to_le_bytes());
        all.extend(1u32.to_le_bytes());
        all.extend([entry, 64, 0].iter().flat_map(|n| n.to_le_bytes()));
        all.extend(0u32.to_le_bytes());
        all.extend([64, 56, headers.len() as u16, 64, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        for (kind, flags, [offset, address, in_file, memory]) in headers {
            all.extend([*kind, *flags].iter().flat_map(|n| n.to_le_bytes()));
            all.extend(
                [*offset, *address, *address, *in_file, *memory, PAGE].iter().flat_map(|n| n.to_le_bytes()),
            );
        }
        all.resize(0x3000, 0);
        all
    }

    fn parsed(bytes: &[u8]) -> Result<Program, ProgramError> {
        parse(bytes, bytes.len() as u64, MEMORY)
    }

    const TEXT: (u32, u32, [u64; 4]) = (1, 5, [0, 0x40_0000, 0x1000, 0x1000]);
    const DATA: (u32, u32, [u64; 4]) = (1, 6, [0x1000, 0x40_1000, 0x10, 0x2345]);

    #[test]
    fn segments_are_placed_as_linked_and_static_pie_at_its_base() {
        let fixed = parsed(&file(2, 0x40_0100, &[TEXT, DATA])).expect("a program");
        assert_eq!(fixed.loads[0].flags, READ | EXECUTE);
        assert_eq!((fixed.loads[1].address, fixed.loads[1].length), (0x40_1000, 0x2345));
        assert_eq!((fixed.headers, fixed.headers_len), (Some(0x40_0040), 2));
        assert_eq!((fixed.entry, fixed.end), (0x40_0100, 0x40_4000));
        let pie = parsed(&file(3, 0x100, &[(1, 5, [0, 0, 0x1000, 0x1000])])).expect("a program");
        assert_eq!((pie.entry, pie.headers), (PIE_BASE + 0x100, Some(PIE_BASE + 0x40)));
    }

    #[test]
    fn a_program_that_cannot_run_is_an_error_with_its_reason() {
        let refused = |bytes: &[u8]| parsed(bytes).expect_err("refused");
        assert!(matches!(refused(b"#!/bin/sh\necho and some more text here"), ProgramError::NotElf(_)));
        assert!(matches!(refused(b""), ProgramError::NotElf(_)));
        let mut arm = file(2, 0x40_0100, &[TEXT]);
        arm[18] = 183;
        assert_eq!(refused(&arm), ProgramError::Machine);
        let mut dynamic = file(3, 0x100, &[(3, 4, [0x200, 0, 9, 9]), (1, 5, [0, 0, 0x1000, 0x1000])]);
        dynamic[0x200..0x209].copy_from_slice(b"/lib/ld.\0");
        assert_eq!(refused(&dynamic), ProgramError::Dynamic("/lib/ld.".into()));
        let big = (1, 6, [0x1000, 0x100_0000, 0x10, 60 << 20]);
        assert!(matches!(
            refused(&file(2, 0x40_0100, &[TEXT, big])),
            ProgramError::TooBig { room: MEMORY, .. }
        ));
        for odd in [
            file(2, 0x40_0100, &[]),
            file(2, 0x40_0100, &[DATA, TEXT]),
            file(2, 0x40_0100, &[TEXT, TEXT]),
            file(2, 0x40_1000, &[TEXT, DATA]),
            file(2, 0x1000, &[(1, 5, [0, 0x1000, 0x1000, 0x1000])]),
            file(2, 0x40_0100, &[(1, 5, [0, 0x40_0000, 0x9000, 0x9000])]),
            file(2, 0x40_0100, &[(1, 5, [0, 0x40_0000, 0x1000, 0x800])]),
            file(2, 0x40_0100, &[TEXT, (1, 6, [0, u64::MAX, 0, 1])]),
        ] {
            assert!(matches!(refused(&odd), ProgramError::Layout(_)));
        }
    }

    #[test]
    fn this_test_itself_is_dynamic_or_fits_not() {
        let own = File::open("/proc/self/exe").expect("this program");
        let refused = read(&own, MEMORY).expect_err("refused");
        assert!(matches!(refused, ProgramError::Dynamic(_) | ProgramError::TooBig { .. }), "{refused}");
    }

    proptest! {
        /// Whatever a file says: what is loaded lies between the first 2 MiB and the stack, apart, and in the file.
        #[test]
        fn no_file_leads_astray(
            kind in 0..5u16,
            entry in prop_oneof![Just(0x40_0100), any::<u64>()],
            headers in prop::collection::vec((
                prop_oneof![4 => Just(1u32), 1 => 0..8u32],
                0..8u32,
                prop::array::uniform4(prop_oneof![
                    0..0x4000u64, Just(0x40_0000), 0x40_0000..0x500_0000u64, any::<u64>()
                ]),
            ), 0..6),
            damage in prop::collection::vec((0..400usize, any::<u8>()), 0..8),
        ) {
            let mut bytes = file(kind, entry, &headers);
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            if let Ok(program) = parsed(&bytes) {
                let mut free = LARGE_PAGE;
                for l in &program.loads {
                    prop_assert!(l.address >= free && l.in_file <= l.length);
                    prop_assert!(l.offset + l.in_file <= bytes.len() as u64);
                    free = l.address + l.length;
                }
                prop_assert!(program.end + STACK <= MEMORY && program.end >= free);
            }
        }

        #[test]
        fn any_bytes_are_a_program_or_not(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = parsed(&bytes);
            let mut elf = file(2, 0x40_0100, &[TEXT]);
            let keep = 20.min(bytes.len());
            elf.splice(20.., bytes[keep..].iter().copied());
            let _ = parsed(&elf);
        }
    }
}
