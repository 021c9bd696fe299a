// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: duplicates, flags, locks, pipes.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use colony_fship::Errno;
use colony_fship::calls::number as nr;
use colony_fship::spans;

use super::context::CallContext;
use super::{Made, World, done, later};
use crate::worker::process::{DESCRIPTORS, Descriptor, Kind, Process};

impl World {
    pub(super) fn duplicate(&mut self, cx: &mut CallContext<'_>) -> Made {
        let (number, args, process) = (cx.number(), cx.args(), &mut *cx.process);
        let flags = if number == nr::dup3 { args[2] } else { 0 };
        if flags & !(libc::O_CLOEXEC as u64) != 0 {
            return Err(Errno::EINVAL);
        }
        if number == nr::dup {
            let again = process.files.get(args[0])?.duplicate(false)?;
            return done(process.files.insert(0, again)?);
        }
        let (from, to) = (args[0] as u32, args[1] as u32);
        if from == to && number == nr::dup3 {
            return Err(Errno::EINVAL);
        }
        let source = process.files.get(args[0])?;
        if to as usize >= DESCRIPTORS {
            return Err(Errno::EBADF);
        }
        if from != to {
            let again = source.duplicate(flags != 0)?;
            process.files.put(to as usize, again);
        }
        done(to.into())
    }

    pub(super) fn close_range(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        const CLOSE_ON_EXEC: u64 = 4;
        const UNSHARE: u64 = 2;
        let (first, last) = (args[0] as u32, args[1] as u32);
        if first > last || args[2] as u32 as u64 & !(CLOSE_ON_EXEC | UNSHARE) != 0 {
            return Err(Errno::EINVAL);
        }
        for n in process.files.open(first as usize, last as usize) {
            if args[2] & CLOSE_ON_EXEC != 0 {
                process.files.get_mut(n as u64)?.close_on_exec = true;
            } else {
                process.files.remove(n as u64)?;
            }
        }
        done(0)
    }

    pub(super) fn fcntl(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        let (number, value) = (args[0], args[2]);
        let file = process.files.get_mut(number)?;
        let fd = file.fd.as_raw_fd();
        let about = file.about.clone();
        match args[1] as i32 {
            command @ (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                let least = value as u32 as usize;
                if least >= DESCRIPTORS {
                    return Err(Errno::EINVAL);
                }
                let again = file.duplicate(command == libc::F_DUPFD_CLOEXEC)?;
                done(process.files.insert(least, again)?)
            }
            libc::F_GETFD => done(file.close_on_exec.into()),
            libc::F_SETFD => {
                file.close_on_exec = value & libc::FD_CLOEXEC as u64 != 0;
                done(0)
            }
            libc::F_GETFL => {
                let nonblocking = file.about.nonblocking.get();
                let flags = self.host.call(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0])?;
                let own = libc::O_NONBLOCK as u64;
                done(flags & !own | if nonblocking { own } else { 0 })
            }
            libc::F_SETFL => {
                file.about.nonblocking.set(value & libc::O_NONBLOCK as u64 != 0);
                if file.about.shared || matches!(file.about.kind, Kind::Output(_)) {
                    return done(0);
                }
                // to the operating system, it stays as it is
                let own = libc::O_NONBLOCK as u64;
                let flags = self.host.call(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0])?;
                let flags = value & !own | flags & own;
                done(self.host.call(libc::SYS_fcntl, [fd as u64, libc::F_SETFL as u64, flags, 0, 0, 0])?)
            }
            libc::F_GETLK | libc::F_OFD_GETLK => self.lock(process, fd, libc::F_OFD_GETLK, value, true),
            libc::F_SETLK | libc::F_OFD_SETLK => self.lock(process, fd, libc::F_OFD_SETLK, value, false),
            libc::F_SETLKW | libc::F_OFD_SETLKW => {
                match self.lock(process, fd, libc::F_OFD_SETLK, value, false) {
                    // another has it
                    Err(Errno::EAGAIN | Errno::EACCES) => later(),
                    other => other,
                }
            }
            command @ (libc::F_ADD_SEALS | libc::F_GET_SEALS) => {
                self.seals(fd, about.memory.as_ref(), command, value)
            }
            command @ (libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ) => {
                done(self.host.call(libc::SYS_fcntl, [fd as u64, command as u64, value, 0, 0, 0])?)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// A lock of a range. Locks of a process would be those of the worker, and of all others with it: they are made
    /// as locks of the open file, which the processes of a job have each for themselves.
    fn lock(&mut self, process: &Process, fd: RawFd, command: i32, address: u64, back: bool) -> Made {
        const OWNER: usize = 24;
        let mut lock: [u8; 32] = process.bank.get(address)?;
        lock[OWNER..OWNER + 4].fill(0);
        self.host.call(libc::SYS_fcntl, [fd as u64, command as u64, lock.as_mut_ptr() as u64, 0, 0, 0])?;
        if back {
            process.bank.write(address, &lock)?;
        }
        done(0)
    }

    pub(super) fn flock(&mut self, process: &Process, args: &[u64; 6]) -> Made {
        let fd = process.files.host(args[0])? as u64;
        let wish = args[1] | libc::LOCK_NB as u64;
        match self.host.call(libc::SYS_flock, [fd, wish, 0, 0, 0, 0]) {
            // another has it
            Err(Errno::EAGAIN) if args[1] & libc::LOCK_NB as u64 == 0 => later(),
            other => done(other?),
        }
    }

    pub(super) fn ioctl(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        let file = process.files.get_mut(args[0])?;
        let fd = file.fd.as_raw_fd() as u64;
        // FIONBIO, FIOCLEX and FIONCLEX are the program's own; the others' numbers are in the contract
        match args[1] as u32 {
            0x5421 => {
                let wish: u32 = process.bank.get(args[2])?;
                file.about.nonblocking.set(wish != 0);
                return done(0);
            }
            0x5450 | 0x5451 => {
                file.close_on_exec = args[1] as u32 == 0x5451;
                return done(0);
            }
            _ => {}
        }
        let (length, _) = spans::ioctl(args[1]).ok_or(Errno::ENOTTY)?;
        let place = process.bank.pointer(args[2], length)? as u64;
        done(self.host.call(libc::SYS_ioctl, [fd, args[1] as u32 as u64, place, 0, 0, 0])?)
    }

    pub(super) fn pipe(&mut self, cx: &mut CallContext<'_>) -> Made {
        cx.check_memory()?;
        let args = cx.args();
        let flags = if cx.number() == nr::pipe2 { args[1] } else { 0 };
        let own = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
        let mut fds = [0i32; 2];
        self.host.call(libc::SYS_pipe2, [fds.as_mut_ptr() as u64, flags | own, 0, 0, 0, 0])?;
        self.two(cx.process, fds, Kind::Stream, flags, args[0])
    }

    pub(super) fn event_counter(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let flags = if cx.number() == nr::eventfd2 { args[1] } else { 0 };
        cx.process.files.free(0)?;
        let own = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as u64;
        // counters are unsigned ints
        let fd = self.host.open(libc::SYS_eventfd2, [u64::from(args[0] as u32), flags | own, 0, 0, 0, 0])?;
        let has = |flag: i32| flags & flag as u64 != 0;
        let counter = Descriptor::new(fd, Kind::Stream, has(libc::EFD_NONBLOCK), has(libc::EFD_CLOEXEC));
        done(cx.process.files.insert(0, counter)?)
    }

    /// Gives a process two new descriptors, and writes their numbers.
    pub(super) fn two(
        &mut self,
        process: &mut Process,
        fds: [i32; 2],
        kind: Kind,
        flags: u64,
        at: u64,
    ) -> Made {
        // SAFETY: made just now, and nobody else has them
        let fds = fds.map(|fd| unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
        let has = |flag: i32| flags & flag as u64 != 0;
        let [first, second] =
            fds.map(|fd| Descriptor::new(fd, kind, has(libc::O_NONBLOCK), has(libc::O_CLOEXEC)));
        let first = process.files.insert(0, first)?;
        let second = match process.files.insert(0, second) {
            Ok(second) => second,
            Err(e) => {
                process.files.remove(first)?;
                return Err(e);
            }
        };
        let numbers = [first as u32, second as u32].map(u32::to_le_bytes).concat();
        process.bank.write(at, &numbers)?;
        done(0)
    }
}
