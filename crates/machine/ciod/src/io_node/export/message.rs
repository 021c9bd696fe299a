// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the kernel's FUSE protocol (`linux/fuse.h`), as the kernel of an I/O node sends them.
//!
//! A request comes from another machine: nothing is read beyond its end, and a name is one entry of a folder.

use std::ffi::CStr;

use nix::errno::Errno;
use nix::sys::stat::FileStat;

/// The node of the root folder.
pub(super) const ROOT: u64 = 1;
/// Bytes that one request reads or writes at most.
pub(crate) const TRANSFER: usize = 256 << 10;
/// Bytes of a request at most: the kernel refuses a reader with less room.
pub(crate) const REQUEST: usize = TRANSFER + 4096;
/// Version of the protocol, whose minor number says which fields the replies have.
const VERSION: [u32; 2] = [7, 31];
/// Size of a page, which the kernel counts transfers in.
const PAGE: usize = 4096;

/// Numbers of requests.
pub(super) mod op {
    pub(in super::super) const LOOKUP: u32 = 1;
    pub(in super::super) const FORGET: u32 = 2;
    pub(in super::super) const GETATTR: u32 = 3;
    pub(in super::super) const SETATTR: u32 = 4;
    pub(in super::super) const READLINK: u32 = 5;
    pub(in super::super) const SYMLINK: u32 = 6;
    pub(in super::super) const MKNOD: u32 = 8;
    pub(in super::super) const MKDIR: u32 = 9;
    pub(in super::super) const UNLINK: u32 = 10;
    pub(in super::super) const RMDIR: u32 = 11;
    pub(in super::super) const RENAME: u32 = 12;
    pub(in super::super) const LINK: u32 = 13;
    pub(in super::super) const OPEN: u32 = 14;
    pub(in super::super) const READ: u32 = 15;
    pub(in super::super) const WRITE: u32 = 16;
    pub(in super::super) const STATFS: u32 = 17;
    pub(in super::super) const RELEASE: u32 = 18;
    pub(in super::super) const FSYNC: u32 = 20;
    pub(in super::super) const FLUSH: u32 = 25;
    pub(in super::super) const INIT: u32 = 26;
    pub(in super::super) const OPENDIR: u32 = 27;
    pub(in super::super) const READDIR: u32 = 28;
    pub(in super::super) const RELEASEDIR: u32 = 29;
    pub(in super::super) const FSYNCDIR: u32 = 30;
    pub(in super::super) const ACCESS: u32 = 34;
    pub(in super::super) const CREATE: u32 = 35;
    pub(in super::super) const INTERRUPT: u32 = 36;
    pub(in super::super) const DESTROY: u32 = 38;
    pub(in super::super) const BATCH_FORGET: u32 = 42;
    pub(in super::super) const FALLOCATE: u32 = 43;
    pub(in super::super) const RENAME2: u32 = 45;
}

/// Bits of a request to change attributes.
pub(super) mod change {
    pub(in super::super) const MODE: u32 = 1;
    pub(in super::super) const UID: u32 = 1 << 1;
    pub(in super::super) const GID: u32 = 1 << 2;
    pub(in super::super) const SIZE: u32 = 1 << 3;
    pub(in super::super) const ATIME: u32 = 1 << 4;
    pub(in super::super) const MTIME: u32 = 1 << 5;
    pub(in super::super) const HANDLE: u32 = 1 << 6;
    pub(in super::super) const ATIME_NOW: u32 = 1 << 7;
    pub(in super::super) const MTIME_NOW: u32 = 1 << 8;
}

/// Returns `true` if bytes have the length of the request that they begin with.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|length| u32::from_le_bytes(*length) as usize == bytes.len())
}

/// A request, whose fields have not been read.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) op: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    pub(super) fields: Fields<'a>,
}

impl<'a> Request<'a> {
    /// Reads the head; `None` if the bytes are no request.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        fields.u32().ok()?;
        let op = fields.u32().ok()?;
        let (unique, node) = (fields.u64().ok()?, fields.u64().ok()?);
        // the user and the process there: here, the user of the job does everything
        fields.take(16).ok()?;
        is_whole(bytes).then_some(Self { op, unique, node, fields })
    }

    /// Returns `true` if the kernel waits for a reply.
    pub(super) const fn wants_reply(&self) -> bool {
        !matches!(self.op, op::FORGET | op::BATCH_FORGET | op::INTERRUPT)
    }

    /// Returns `true` if it changes something.
    pub(super) const fn changes(&self) -> bool {
        matches!(
            self.op,
            op::SETATTR
                | op::SYMLINK
                | op::MKNOD
                | op::MKDIR
                | op::UNLINK
                | op::RMDIR
                | op::RENAME
                | op::RENAME2
                | op::LINK
                | op::CREATE
                | op::WRITE
                | op::FALLOCATE
        )
    }
}

/// The rest of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        self.take(N)?.try_into().map_err(|_| Errno::EINVAL)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_le_bytes)
    }

    /// A text that ends with a zero.
    pub(super) fn text(&mut self) -> Result<&'a CStr, Errno> {
        let text = CStr::from_bytes_until_nul(self.0).map_err(|_| Errno::EINVAL)?;
        self.take(text.to_bytes_with_nul().len())?;
        Ok(text)
    }

    /// The name of an entry of a folder: no way to another one.
    pub(super) fn name(&mut self) -> Result<&'a CStr, Errno> {
        let name = self.text()?;
        match name.to_bytes() {
            b"" | b"." | b".." => Err(Errno::EINVAL),
            bytes if bytes.contains(&b'/') => Err(Errno::EINVAL),
            _ => Ok(name),
        }
    }

    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// A request number 77 with these fields, as the kernel writes it.
#[cfg(any(test, feature = "testing"))]
pub(super) fn request(op: u32, node: u64, fields: &[u8]) -> Vec<u8> {
    let length = 40 + fields.len() as u32;
    Reply::default().u32(length).u32(op).u64(77).u64(node).u64(0).u64(0).bytes(fields).0
}

/// The fields of a reply.
#[derive(Debug, Default)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The kernel may keep nothing: other I/O nodes, and the host, change files too.
    pub(super) fn entry(node: u64, stat: &FileStat) -> Self {
        Self::default().u64(node).u64(0).u64(0).u64(0).u64(0).attributes(stat)
    }

    /// As [`Reply::entry`].
    pub(super) fn attr(stat: &FileStat) -> Self {
        Self::default().u64(0).u64(0).attributes(stat)
    }

    fn attributes(self, stat: &FileStat) -> Self {
        let whole = |number: i64| number.cast_unsigned();
        self.u64(stat.st_ino)
            .u64(whole(stat.st_size))
            .u64(whole(stat.st_blocks))
            .u64(whole(stat.st_atime))
            .u64(whole(stat.st_mtime))
            .u64(whole(stat.st_ctime))
            .u32(stat.st_atime_nsec as u32)
            .u32(stat.st_mtime_nsec as u32)
            .u32(stat.st_ctime_nsec as u32)
            .u32(stat.st_mode)
            .u32(stat.st_nlink as u32)
            .u32(stat.st_uid)
            .u32(stat.st_gid)
            // the I/O node has no device of the host
            .u32(0)
            .u32(stat.st_blksize as u32)
            .u32(0)
    }

    /// A handle for an open file. Its data goes past the caches of the I/O node.
    pub(super) fn open(self, handle: u64, is_file: bool) -> Self {
        const DIRECT_IO: u32 = 1;
        self.u64(handle).u32(if is_file { DIRECT_IO } else { 0 }).u32(0)
    }

    /// The answer to the kernel's first request.
    pub(super) fn init(mut fields: Fields<'_>) -> Result<Self, Errno> {
        const ATOMIC_O_TRUNC: u32 = 1 << 3;
        const BIG_WRITES: u32 = 1 << 5;
        const MAX_PAGES: u32 = 1 << 22;
        const BACKGROUND: u32 = 12;
        let [major, minor] = VERSION;
        let (theirs, theirs_minor) = (fields.u32()?, fields.u32()?);
        if theirs != major || theirs_minor < minor {
            return Err(Errno::EPROTO);
        }
        let (ahead, offered) = (fields.u32()?, fields.u32()?);
        let wanted = ATOMIC_O_TRUNC | BIG_WRITES | MAX_PAGES;
        Ok(Self::default()
            .u32(major)
            .u32(minor)
            .u32(ahead)
            .u32(offered & wanted)
            .u32(BACKGROUND | BACKGROUND << 16)
            .u32(TRANSFER as u32)
            .u32(1)
            .u32((TRANSFER / PAGE) as u32)
            .bytes(&[0; 32]))
    }

    #[cfg(test)]
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The whole message.
    pub(super) fn finish(result: Result<Self, Errno>, unique: u64) -> Vec<u8> {
        let (fields, error) = match result {
            Ok(reply) => (reply.0, 0),
            Err(error) => (Vec::new(), -(error as i32)),
        };
        const HEAD: usize = 16;
        let head = Self::default().u32((HEAD + fields.len()) as u32).u32(error.cast_unsigned()).u64(unique);
        head.bytes(&fields).0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The fields of a reply, or its error.
    pub(in super::super) fn fields(reply: &[u8]) -> Result<&[u8], Errno> {
        let mut fields = Fields(reply);
        let (length, error) = (fields.u32().expect("a head"), fields.u32().expect("a head"));
        assert_eq!((length as usize, fields.u64()), (reply.len(), Ok(77)));
        if error == 0 { Ok(fields.rest()) } else { Err(Errno::from_raw(-error.cast_signed())) }
    }

    #[test]
    fn names_lead_nowhere_else() {
        for bad in ["", ".", "..", "a/b", "/", "../a"] {
            let text = format!("{bad}\0");
            assert_eq!(Fields(text.as_bytes()).name(), Err(Errno::EINVAL), "{bad:?}");
        }
        assert_eq!(Fields(b"no end").name(), Err(Errno::EINVAL));
        let mut fields = Fields(b"...\0x");
        assert_eq!((fields.name(), fields.rest()), (Ok(c"..."), &b"x"[..]));
    }

    #[test]
    fn a_kernel_of_another_protocol_is_refused() {
        let of = |major, minor| Reply::default().u32(major).u32(minor).u64(u64::MAX).0;
        assert_eq!(Reply::init(Fields(&of(7, 45))).expect("known").0.len(), 64);
        assert_eq!(Reply::init(Fields(&of(8, 1))).err(), Some(Errno::EPROTO));
        assert_eq!(Reply::init(Fields(&of(7, 8))).err(), Some(Errno::EPROTO));
        assert_eq!(Reply::init(Fields(&[0; 3])).err(), Some(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn no_bytes_are_read_beyond_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(mut request) = Request::read(&bytes) {
                let _ = (request.fields.u32(), request.fields.name(), request.fields.u64());
            }
        }
    }
}
