// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files and folders, and what is done with their contents.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{Whence, close, dup, fdatasync, fsync, lseek};

use super::message::{Fields, Reply, TRANSFER};

/// Bytes of entries of a folder that are read at once.
const ENTRIES: usize = 32 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handles {
    all: HashMap<u64, OwnedFd>,
    last: u64,
}

impl Handles {
    pub(super) fn insert(&mut self, fd: OwnedFd) -> u64 {
        self.last += 1;
        self.all.insert(self.last, fd);
        self.last
    }

    pub(super) fn get(&self, handle: u64) -> Result<BorrowedFd<'_>, Errno> {
        self.all.get(&handle).map(|fd| fd.as_fd()).ok_or(Errno::EBADF)
    }

    pub(super) fn release(&mut self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        self.all.remove(&fields.u64()?).map(|_| Reply::default()).ok_or(Errno::EBADF)
    }

    pub(super) fn read(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()? as usize);
        let mut bytes = vec![0; size.min(TRANSFER)];
        let count = pread(self.get(handle)?, &mut bytes, place(offset)?)?;
        Ok(Reply::default().bytes(&bytes[..count]))
    }

    pub(super) fn write(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()? as usize);
        // flags of the request, its owner, flags of the file
        fields.take(20)?;
        let bytes = Some(fields.rest()).filter(|bytes| bytes.len() == size).ok_or(Errno::EINVAL)?;
        // at the end of the file, whatever the place, if it was opened for that
        let count = pwrite(self.get(handle)?, bytes, place(offset)?)?;
        Ok(Reply::default().u32(count as u32).u32(0))
    }

    /// A program closes a descriptor: tells it of a write that fails late, as NFS and quotas do.
    pub(super) fn flush(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        close(dup(self.get(fields.u64()?)?)?)?;
        Ok(Reply::default())
    }

    pub(super) fn sync(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let (fd, flags) = (self.get(fields.u64()?)?, fields.u32()?);
        if flags & 1 == 0 {
            fsync(fd)?
        } else {
            fdatasync(fd)?
        }
        Ok(Reply::default())
    }

    pub(super) fn allocate(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let (fd, offset, length) = (self.get(fields.u64()?)?, fields.u64()?, fields.u64()?);
        let mode = FallocateFlags::from_bits(fields.u32()?.cast_signed()).ok_or(Errno::EOPNOTSUPP)?;
        fallocate(fd, mode, place(offset)?, place(length)?)?;
        Ok(Reply::default())
    }

    /// Entries of a folder from a place on, as many as the kernel has room for.
    pub(super) fn list(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let (handle, offset, room) = (fields.u64()?, fields.u64()?, fields.u32()? as usize);
        let fd = self.get(handle)?;
        lseek(fd, place(offset)?, Whence::SeekSet)?;
        let mut entries = vec![0; room.min(ENTRIES)];
        // SAFETY: so many bytes are there
        let count = unsafe {
            libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), entries.as_mut_ptr(), entries.len())
        };
        let count = usize::try_from(Errno::result(count)?).map_err(|_| Errno::EIO)?;
        let (mut rest, mut reply, mut left) = (&entries[..count], Reply::default(), room);
        while let Some((entry, after)) = Entry::read(rest) {
            let padding = entry.name.len().next_multiple_of(8) - entry.name.len();
            let length = 24 + entry.name.len() + padding;
            if length > left {
                break;
            }
            (rest, left) = (after, left - length);
            reply = reply
                .u64(entry.inode)
                .u64(entry.next)
                .u32(entry.name.len() as u32)
                .u32(entry.kind.into())
                .bytes(entry.name)
                .bytes(&[0; 8][..padding]);
        }
        // nothing would be the end of the folder
        if count > 0 && left == room { Err(Errno::EINVAL) } else { Ok(reply) }
    }
}

/// An offset or length, which the system takes with a sign.
fn place(number: u64) -> Result<i64, Errno> {
    i64::try_from(number).map_err(|_| Errno::EINVAL)
}

/// An entry of a folder, as `getdents64` gives it.
struct Entry<'a> {
    inode: u64,
    next: u64,
    kind: u8,
    name: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The first entry, and what follows it.
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        const HEAD: usize = 19;
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let length = u16::from_le_bytes(bytes.get(16..18)?.try_into().ok()?).into();
        let (inode, next, kind) = (word(0)?, word(8)?, *bytes.get(18)?);
        let name = bytes.get(HEAD..length)?.split(|&byte| byte == 0).next()?;
        Some((Self { inode, next, kind, name }, bytes.get(length..)?))
    }
}
