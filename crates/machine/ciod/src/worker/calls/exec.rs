// SPDX-License-Identifier: MIT OR Apache-2.0
//! `execve`: another program in the same process. MPMD jobs use it, by rank.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use colony_fship::spans::STRINGS;
use colony_fship::{Errno, layout::STACK};

use super::paths::{Itself, itself, program};
use super::{Exec, Made, Step, World};
use crate::ProgramError;
use crate::worker::image::{ARGUMENTS, Start};
use crate::worker::process::Process;
use crate::worker::start;

impl World {
    pub(super) fn execve(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        let path = process.bank.path(args[0])?;
        let path = match itself(&path) {
            None => path,
            Some(Itself::Program) => program(process)?,
            Some(_) => return Err(Errno::ENOENT),
        };
        let mut room = ARGUMENTS;
        let mut arguments = strings(process, args[1], &mut room)?;
        let environment = strings(process, args[2], &mut room)?;
        if arguments.is_empty() {
            arguments.push(CString::default());
        }
        self.become_process(process)?;
        let file = self.open_quietly(libc::AT_FDCWD as u64, &path, [start::OPEN as u64, 0, 0])?;
        let name = Path::new(OsStr::from_bytes(path.as_bytes()));
        let name = std::path::absolute(name).unwrap_or_else(|_| name.to_owned());
        let opened = start::inspect(file.into(), name, process.bank.memory()).map_err(|e| errno(&e))?;
        let mut random = [0u8; 16];
        self.host.call(libc::SYS_getrandom, [random.as_mut_ptr() as u64, 16, 0, 0, 0, 0])?;
        let (uid, gid) = self.ids;
        let start = Start { arguments, environment, path, uid, gid, random };
        if start.bytes() > ARGUMENTS {
            return Err(Errno::E2BIG);
        }
        Ok(Step::Exec(Box::new(Exec { opened, start })))
    }
}

/// Copies an array of strings; all arrays together have so much room.
fn strings(process: &Process, address: u64, room: &mut u64) -> Result<Vec<CString>, Errno> {
    let mut all = Vec::new();
    if address == 0 {
        return Ok(all);
    }
    for n in 0..STRINGS {
        let one: u64 = process.bank.get(address.checked_add(n * 8).ok_or(Errno::EFAULT)?)?;
        if one == 0 {
            return Ok(all);
        }
        let string = process.bank.string(one, (*room).min(STACK), Errno::E2BIG)?;
        *room = room.checked_sub(string.as_bytes_with_nul().len() as u64 + 8).ok_or(Errno::E2BIG)?;
        all.push(string);
    }
    Err(Errno::E2BIG)
}

/// The error of Linux.
fn errno(e: &ProgramError) -> Errno {
    match e {
        ProgramError::Missing => Errno::ENOENT,
        ProgramError::NotExecutable | ProgramError::NotAFile => Errno::EACCES,
        ProgramError::NotElf(_)
        | ProgramError::Machine
        | ProgramError::Dynamic(_)
        | ProgramError::Layout(_) => Errno::ENOEXEC,
        ProgramError::TooBig { .. } => Errno::ENOMEM,
        ProgramError::Read(_) => Errno::EIO,
    }
}
