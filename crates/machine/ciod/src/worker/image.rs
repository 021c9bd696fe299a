// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of a program in the memory of a process: its segments, and the stack that it starts on.

use std::ffi::CString;
use std::fs::File;

use colony_fship::layout::{self, PAGE, STACK};
use zerocopy::IntoBytes as _;

use super::window::Bank;
use crate::ProgramError;
use crate::elf::Program;

/// Bytes of the strings and pointers of arguments and environment, at most: as on Linux, a quarter of the stack.
pub(super) const ARGUMENTS: u64 = STACK / 4;

/// Arguments, environment and identity with which a program is started.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    pub(super) arguments: Vec<CString>,
    pub(super) environment: Vec<CString>,
    /// `AT_EXECFN`: the path that it was started by.
    pub(super) path: CString,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) random: [u8; 16],
}

impl Start {
    /// Bytes that the stack needs, somewhat rounded up.
    pub(super) fn bytes(&self) -> u64 {
        let all = self.arguments.iter().chain(&self.environment);
        let strings: u64 = all.map(|s| s.as_bytes_with_nul().len() as u64 + 8).sum();
        strings + self.path.as_bytes_with_nul().len() as u64 + 1024
    }
}

/// Numbers of the auxiliary vector (Linux, include/uapi/linux/auxvec.h).
mod auxiliary {
    pub(super) const NULL: u64 = 0;
    pub(super) const PHDR: u64 = 3;
    pub(super) const PHENT: u64 = 4;
    pub(super) const PHNUM: u64 = 5;
    pub(super) const PAGESZ: u64 = 6;
    pub(super) const BASE: u64 = 7;
    pub(super) const FLAGS: u64 = 8;
    pub(super) const ENTRY: u64 = 9;
    pub(super) const UID: u64 = 11;
    pub(super) const EUID: u64 = 12;
    pub(super) const GID: u64 = 13;
    pub(super) const EGID: u64 = 14;
    pub(super) const PLATFORM: u64 = 15;
    pub(super) const HWCAP: u64 = 16;
    pub(super) const CLKTCK: u64 = 17;
    pub(super) const SECURE: u64 = 23;
    pub(super) const RANDOM: u64 = 25;
    pub(super) const HWCAP2: u64 = 26;
    pub(super) const EXECFN: u64 = 31;
}

/// Features of every 64-bit x86 processor (CPUID leaf 1, edx): the daemon does not know the node's processor.
const X86_64: u64 = 0x078b_fbff;

/// Reads the segments of `program` from `file` straight into clean memory, and writes the stack. Fills what depends
/// on the program in `process`.
pub(super) fn place(
    file: &File,
    program: &Program,
    start: &Start,
    bank: &Bank,
    process: &mut layout::Process,
) -> Result<(), ProgramError> {
    for l in &program.loads {
        read(file, l.offset, l.in_file, bank, l.address)?;
    }
    process.stack =
        stack(program, start, bank).ok_or(ProgramError::TooBig { needed: start.bytes(), room: ARGUMENTS })?;
    process.entry = program.entry;
    process.heap = program.end;
    process.memory = bank.memory();
    process.segments = Default::default();
    for (to, l) in process.segments.iter_mut().zip(&program.loads) {
        *to = layout::Segment { address: l.address, length: l.length, flags: l.flags };
    }
    process.segments_len = program.loads.len() as u64;
    process.name = [0; 16];
    let name = start.path.as_bytes().rsplit(|&b| b == b'/').next().unwrap_or_default();
    for (to, from) in process.name.iter_mut().take(15).zip(name) {
        *to = *from;
    }
    Ok(())
}

/// Reads from the file into the process's memory, without a copy between.
fn read(
    file: &File,
    mut offset: u64,
    mut length: u64,
    bank: &Bank,
    mut address: u64,
) -> Result<(), ProgramError> {
    let failed = |e: std::io::Error| ProgramError::Read(e.to_string());
    while length > 0 {
        let place = bank.pointer(address, length).map_err(|e| ProgramError::Layout(e.to_string()))?;
        // SAFETY: the operating system writes at most `length` bytes there, which are the process's
        let n = unsafe {
            use std::os::fd::AsRawFd as _;
            libc::pread(file.as_raw_fd(), place.cast(), length as usize, offset as i64)
        };
        match u64::try_from(n) {
            Ok(0) => return Err(ProgramError::Read("it became shorter".into())),
            Ok(n) => (offset, address, length) = (offset + n, address + n, length - n),
            Err(_) => {
                let e = std::io::Error::last_os_error();
                if e.kind() != std::io::ErrorKind::Interrupted {
                    return Err(failed(e));
                }
            }
        }
    }
    Ok(())
}

/// Writes the stack as the System V ABI has it (x86-64 supplement, 3.4.1); the stack pointer, or none if it is too
/// much.
fn stack(program: &Program, start: &Start, bank: &Bank) -> Option<u64> {
    if start.bytes() > ARGUMENTS {
        return None;
    }
    let mut top = bank.memory();
    let mut put = |bytes: &[u8]| {
        top -= bytes.len() as u64;
        bank.write(top, bytes).ok().map(|()| top)
    };
    // as Linux: a null word at the very end, then the path
    put(&[0; 8])?;
    let path = put(start.path.as_bytes_with_nul())?;
    let mut strings = |all: &[CString]| -> Option<Vec<u64>> {
        let mut places = all.iter().rev().map(|s| put(s.as_bytes_with_nul())).collect::<Option<Vec<_>>>()?;
        places.reverse();
        Some(places)
    };
    let environment = strings(&start.environment)?;
    let arguments = strings(&start.arguments)?;
    let platform = put(b"x86_64\0")?;
    let random = put(&start.random)?;
    use auxiliary as at;
    let (uid, gid) = (u64::from(start.uid), u64::from(start.gid));
    let vector = [
        (at::PHDR, program.headers.unwrap_or(0)),
        (at::PHENT, 56),
        (at::PHNUM, if program.headers.is_some() { program.headers_len } else { 0 }),
        (at::PAGESZ, PAGE),
        (at::BASE, 0),
        (at::FLAGS, 0),
        (at::ENTRY, program.entry),
        (at::UID, uid),
        (at::EUID, uid),
        (at::GID, gid),
        (at::EGID, gid),
        (at::SECURE, 0),
        (at::RANDOM, random),
        (at::HWCAP, X86_64),
        (at::HWCAP2, 0),
        (at::CLKTCK, 100),
        (at::EXECFN, path),
        (at::PLATFORM, platform),
        (at::NULL, 0),
    ];
    let mut words = vec![arguments.len() as u64];
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    words.extend(vector.iter().flat_map(|&(key, value)| [key, value]));
    let place = (random - words.len() as u64 * 8) & !15;
    bank.write(place, words.as_bytes()).ok()?;
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::window::Window;

    fn words(bank: &Bank, mut at: u64) -> impl FnMut() -> u64 + '_ {
        move || {
            at += 8;
            bank.get::<u64>(at - 8).expect("on the stack")
        }
    }

    #[test]
    fn the_stack_is_what_a_program_expects() {
        let bank = Window::anonymous(16 << 20).expect("memory").bank(0, 1);
        let program = Program {
            loads: vec![],
            entry: 0x40_0100,
            headers: Some(0x40_0040),
            headers_len: 2,
            end: 0x50_0000,
        };
        let start = Start {
            arguments: vec![c"prog".into(), c"-v".into()],
            environment: vec![c"A=1".into()],
            path: c"/bin/prog".into(),
            uid: 12,
            gid: 34,
            random: [7; 16],
        };
        let sp = stack(&program, &start, &bank).expect("it fits");
        assert_eq!(sp % 16, 0);
        let mut next = words(&bank, sp);
        assert_eq!(next(), 2);
        assert_eq!(bank.path(next()).as_deref(), Ok(c"prog"));
        assert_eq!(bank.path(next()).as_deref(), Ok(c"-v"));
        assert_eq!(next(), 0);
        assert_eq!(bank.path(next()).as_deref(), Ok(c"A=1"));
        assert_eq!(next(), 0);
        let mut vector = std::collections::BTreeMap::new();
        loop {
            match next() {
                0 => break,
                key => assert_eq!(vector.insert(key, next()), None),
            }
        }
        assert_eq!(
            (vector[&auxiliary::ENTRY], vector[&auxiliary::PHDR], vector[&auxiliary::PHNUM]),
            (0x40_0100, 0x40_0040, 2)
        );
        assert_eq!(
            (vector[&auxiliary::UID], vector[&auxiliary::GID], vector[&auxiliary::SECURE]),
            (12, 34, 0)
        );
        assert_eq!(bank.path(vector[&auxiliary::EXECFN]).as_deref(), Ok(c"/bin/prog"));
        assert_eq!(bank.path(vector[&auxiliary::PLATFORM]).as_deref(), Ok(c"x86_64"));
        assert_eq!(bank.bytes(vector[&auxiliary::RANDOM], 16).expect("there"), [7; 16]);
    }

    #[test]
    fn too_many_arguments_are_an_error() {
        let bank = Window::anonymous(16 << 20).expect("memory").bank(0, 1);
        let program = Program { loads: vec![], entry: 0, headers: None, headers_len: 0, end: 0 };
        let long = CString::new(vec![b'a'; 100_000]).expect("no zero");
        let start = Start { arguments: vec![long; 30], ..Start::default() };
        assert_eq!(stack(&program, &start, &bank), None);
    }
}
