// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files in memory (`memfd_create`), which no limit of the operating system counts: together, those of a job hold no more
//! than the memory of its nodes.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::rc::Rc;

use colony_fship::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::fstat;

use super::context::CallContext;
use super::{Made, World, done};
use crate::worker::charge::Charge;
use crate::worker::process::{Descriptor, Kind, Process};

/// Bytes that a file takes, or would if it had no holes.
fn size(fd: impl AsFd) -> Option<u64> {
    let about = fstat(fd).ok()?;
    let blocks = u64::try_from(about.st_blocks).ok()?.checked_mul(512)?;
    Some(u64::try_from(about.st_size).ok()?.max(blocks))
}

impl World {
    pub(super) fn memory_file(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        // names have 249 bytes at most, and longer ones are refused
        let name = process.bank.string(args[0], 250, Errno::EINVAL)?;
        process.files.free(0)?;
        // huge pages are no program's to take from all others
        if args[1] & u64::from(libc::MFD_HUGETLB) != 0 {
            return Err(Errno::EINVAL);
        }
        let has = |flag: u32| args[1] & u64::from(flag) != 0;
        let charge = Charge::new(&self.memory, has(libc::MFD_ALLOW_SEALING))?;
        let flags = args[1] | u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let fd = self.host.open(libc::SYS_memfd_create, [name.as_ptr() as u64, flags, 0, 0, 0, 0])?;
        let mut file = Descriptor::new(fd, Kind::File, false, has(libc::MFD_CLOEXEC));
        if let Some(about) = Rc::get_mut(&mut file.about) {
            about.memory = Some(charge);
        }
        done(process.files.insert(0, file)?)
    }

    /// `ftruncate` and `fallocate`.
    pub(super) fn resize(&mut self, cx: &CallContext<'_>) -> Made {
        let file = cx.file(cx.args()[0])?;
        self.growing(file.fd, file.about.memory.as_ref(), |world| world.replay(cx))
    }

    /// Does what may make a file larger; a file in memory becomes no larger than its job's account allows (`EFBIG`).
    pub(super) fn growing<T>(
        &mut self,
        fd: RawFd,
        charge: Option<&Charge>,
        act: impl FnOnce(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(charge) = charge else { return act(self) };
        // SAFETY: a descriptor of the process, which has it until the end of the call
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let most = charge.most();
        let limit = |soft, hard| setrlimit(Resource::RLIMIT_FSIZE, soft, hard).map_err(|_| Errno::EIO);
        let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).map_err(|_| Errno::EIO)?;
        limit(soft.min(most), hard)?;
        let result = act(self);
        limit(soft, hard)?;
        // what cannot be told has not grown
        charge.set(size(file).unwrap_or_else(|| charge.bytes()));
        result
    }

    /// `F_ADD_SEALS` and `F_GET_SEALS` of a file in memory.
    pub(super) fn seals(&mut self, fd: RawFd, charge: Option<&Charge>, command: i32, value: u64) -> Made {
        if charge.is_none_or(Charge::is_sealable) {
            return done(self.host.call(libc::SYS_fcntl, [fd as u64, command as u64, value, 0, 0, 0])?);
        }
        // its seals are the worker's own
        match command {
            libc::F_ADD_SEALS => Err(Errno::EPERM),
            _ => done(SealFlag::F_SEAL_SEAL.bits() as u64),
        }
    }
}

/// A descriptor is sent over a socket. Who gets it could make the file larger uncounted: it stays as it is.
pub(super) fn sent(file: &Descriptor) -> Result<(), Errno> {
    let Some(charge) = &file.about.memory else { return Ok(()) };
    charge.set_sent();
    fcntl(&file.fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).map(drop).or_else(|_| {
        // the program has sealed the seals: then its own must be enough
        let seals = fcntl(&file.fd, FcntlArg::F_GET_SEALS).map_err(|_| Errno::EIO)?;
        let fixed = seals & (SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE).bits() != 0;
        if fixed { Ok(()) } else { Err(Errno::EPERM) }
    })
}
