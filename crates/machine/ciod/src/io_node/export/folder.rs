// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder of the host: does what the kernel of an I/O node asks for, with the rights of this process.
//!
//! A request names a folder that was opened before and one entry of it, and links are never followed here: the I/O node follows
//! them, among its own files. So no request leads out of the folder.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, readlinkat, renameat2};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmodat, fstat, mkdirat, mknodat, utimensat,
};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::sys::time::TimeSpec;
use nix::unistd::{
    AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchownat, ftruncate, linkat, symlinkat, unlinkat,
};

use super::handles::Handles;
use super::message::{Fields, Reply, Request, change, op};
use super::nodes::Nodes;

/// Flags of an open file that a program may have.
const FLAGS: OFlag = OFlag::O_ACCMODE
    .union(OFlag::O_APPEND)
    .union(OFlag::O_TRUNC)
    .union(OFlag::O_DSYNC)
    .union(OFlag::O_SYNC)
    .union(OFlag::O_NOATIME);
/// Flags of every file that is opened: no open waits, whatever the file is.
const ALWAYS: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);
/// Flags of the descriptor by which a file is known.
const KNOWN: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

type Answer = Result<Reply, Errno>;

/// See the module.
#[derive(Debug)]
pub(super) struct Folder {
    nodes: Nodes,
    open: Handles,
    /// The descriptors of this process by name, by which a file that is known is opened.
    own: Rc<OwnedFd>,
    read_only: bool,
}

impl Folder {
    /// On a folder that was opened by `O_PATH`, and the descriptors of this process.
    pub(super) fn new(root: OwnedFd, own: Rc<OwnedFd>, read_only: bool) -> Result<Self, Errno> {
        refuse_processes(&root)?;
        Ok(Self { nodes: Nodes::new(root)?, open: Handles::default(), own, read_only })
    }

    pub(super) fn answer(&mut self, request: &Request<'_>) -> Answer {
        let (fields, node) = (request.fields, request.node);
        if self.read_only && request.changes() {
            return Err(Errno::EROFS);
        }
        match request.op {
            op::INIT => Reply::init(fields),
            op::LOOKUP => self.look_up(node, fields),
            op::FORGET => self.forget(node, fields),
            op::BATCH_FORGET => self.forget_all(fields),
            op::GETATTR => Ok(Reply::attr(&fstat(self.nodes.fd(node)?)?)),
            op::SETATTR => self.set_attributes(node, fields),
            op::READLINK => self.read_link(node),
            op::SYMLINK => self.make_link(node, fields),
            op::MKNOD => self.make_file(node, fields),
            op::MKDIR => self.make_folder(node, fields),
            op::UNLINK => self.remove(node, fields, UnlinkatFlags::NoRemoveDir),
            op::RMDIR => self.remove(node, fields, UnlinkatFlags::RemoveDir),
            op::RENAME => self.rename(node, fields, false),
            op::RENAME2 => self.rename(node, fields, true),
            op::LINK => self.link(node, fields),
            op::ACCESS => self.access(node, fields),
            op::STATFS => self.room(node),
            op::OPEN => self.open(node, fields),
            op::CREATE => self.create(node, fields),
            op::OPENDIR => self.open_folder(node),
            op::READ => self.open.read(fields),
            op::WRITE => self.open.write(fields),
            op::READDIR => self.open.list(fields),
            op::FLUSH => self.open.flush(fields),
            op::FSYNC | op::FSYNCDIR => self.open.sync(fields),
            op::FALLOCATE => self.open.allocate(fields),
            op::RELEASE | op::RELEASEDIR => self.open.release(fields),
            op::DESTROY | op::INTERRUPT => Ok(Reply::default()),
            // the kernel does without it, or tells the program
            _ => Err(Errno::ENOSYS),
        }
    }

    fn look_up(&mut self, parent: u64, mut fields: Fields<'_>) -> Answer {
        self.find(parent, fields.name()?)
    }

    /// The reply that names an entry of a folder.
    fn find(&mut self, parent: u64, name: &CStr) -> Answer {
        let fd = openat(self.nodes.fd(parent)?, name, KNOWN, Mode::empty())?;
        let stat = fstat(&fd)?;
        if stat.st_dev != self.nodes.device(parent)? {
            refuse_processes(&fd)?;
        }
        Ok(Reply::entry(self.nodes.know(fd, &stat), &stat))
    }

    fn forget(&mut self, node: u64, mut fields: Fields<'_>) -> Answer {
        self.nodes.forget(node, fields.u64()?);
        Ok(Reply::default())
    }

    fn forget_all(&mut self, mut fields: Fields<'_>) -> Answer {
        let (count, _) = (fields.u32()?, fields.u32()?);
        for _ in 0..count {
            self.nodes.forget(fields.u64()?, fields.u64()?);
        }
        Ok(Reply::default())
    }

    fn set_attributes(&mut self, node: u64, mut fields: Fields<'_>) -> Answer {
        let (valid, _) = (fields.u32()?, fields.u32()?);
        let (handle, size, _) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let seconds = [fields.u64()?, fields.u64()?, fields.u64()?];
        let parts = [fields.u32()?, fields.u32()?, fields.u32()?];
        let (mode, _, uid, gid) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let has = |bit: u32| valid & bit != 0;
        let name = self.nodes.name(node)?;
        if has(change::SIZE) {
            let size = i64::try_from(size).map_err(|_| Errno::EFBIG)?;
            if has(change::HANDLE) {
                ftruncate(self.open.get(handle)?, size)?;
            } else {
                ftruncate(self.open_file(node, OFlag::O_WRONLY)?, size)?;
            }
        }
        if has(change::UID | change::GID) {
            let fd = self.nodes.fd(node)?;
            let uid = has(change::UID).then(|| Uid::from_raw(uid));
            let gid = has(change::GID).then(|| Gid::from_raw(gid));
            fchownat(fd, c"", uid, gid, AtFlags::AT_EMPTY_PATH)?;
        }
        if has(change::MODE) {
            let mode = Mode::from_bits_truncate(mode);
            fchmodat(&*self.own, name.as_str(), mode, FchmodatFlags::FollowSymlink)?;
        }
        if has(change::ATIME | change::MTIME) {
            let time = |n: usize, set: u32, now: u32| match (has(set), has(now)) {
                (false, _) => TimeSpec::UTIME_OMIT,
                (_, true) => TimeSpec::UTIME_NOW,
                _ => TimeSpec::new(seconds[n].cast_signed(), parts[n].into()),
            };
            let read = time(0, change::ATIME, change::ATIME_NOW);
            let written = time(1, change::MTIME, change::MTIME_NOW);
            utimensat(&*self.own, name.as_str(), &read, &written, UtimensatFlags::FollowSymlink)?;
        }
        Ok(Reply::attr(&fstat(self.nodes.fd(node)?)?))
    }

    fn read_link(&self, node: u64) -> Answer {
        use std::os::unix::ffi::OsStrExt as _;
        Ok(Reply::default().bytes(readlinkat(self.nodes.fd(node)?, c"")?.as_bytes()))
    }

    fn make_link(&mut self, parent: u64, mut fields: Fields<'_>) -> Answer {
        let (name, target) = (fields.name()?, fields.text()?);
        symlinkat(target, self.nodes.fd(parent)?, name)?;
        self.find(parent, name)
    }

    fn make_file(&mut self, parent: u64, mut fields: Fields<'_>) -> Answer {
        let mode = fields.u32()?;
        fields.take(12)?;
        let name = fields.name()?;
        let kind = SFlag::from_bits_truncate(mode & libc::S_IFMT);
        // a device of the host is no file of a job
        if ![SFlag::S_IFREG, SFlag::S_IFIFO, SFlag::S_IFSOCK].contains(&kind) {
            return Err(Errno::EPERM);
        }
        mknodat(self.nodes.fd(parent)?, name, kind, Mode::from_bits_truncate(mode), 0)?;
        self.find(parent, name)
    }

    fn make_folder(&mut self, parent: u64, mut fields: Fields<'_>) -> Answer {
        let (mode, _) = (fields.u32()?, fields.u32()?);
        let name = fields.name()?;
        mkdirat(self.nodes.fd(parent)?, name, Mode::from_bits_truncate(mode))?;
        self.find(parent, name)
    }

    fn remove(&self, parent: u64, mut fields: Fields<'_>, kind: UnlinkatFlags) -> Answer {
        unlinkat(self.nodes.fd(parent)?, fields.name()?, kind)?;
        Ok(Reply::default())
    }

    fn rename(&self, parent: u64, mut fields: Fields<'_>, has_flags: bool) -> Answer {
        let to = fields.u64()?;
        let flags = if has_flags { (fields.u32()?, fields.u32()?).0 } else { 0 };
        let allowed = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        let flags = RenameFlags::from_bits(flags).filter(|flags| allowed.contains(*flags));
        let (old, new) = (fields.name()?, fields.name()?);
        renameat2(self.nodes.fd(parent)?, old, self.nodes.fd(to)?, new, flags.ok_or(Errno::EINVAL)?)?;
        Ok(Reply::default())
    }

    fn link(&mut self, parent: u64, mut fields: Fields<'_>) -> Answer {
        let (file, name) = (self.nodes.name(fields.u64()?)?, fields.name()?);
        let to = self.nodes.fd(parent)?;
        linkat(&*self.own, file.as_str(), to, name, AtFlags::AT_SYMLINK_FOLLOW)?;
        self.find(parent, name)
    }

    fn access(&self, node: u64, mut fields: Fields<'_>) -> Answer {
        let rights = AccessFlags::from_bits_truncate(fields.u32()?.cast_signed());
        if self.read_only && rights.contains(AccessFlags::W_OK) {
            return Err(Errno::EROFS);
        }
        faccessat(self.nodes.fd(node)?, c"", rights, AtFlags::AT_EMPTY_PATH | AtFlags::AT_EACCESS)?;
        Ok(Reply::default())
    }

    fn room(&self, node: u64) -> Answer {
        let about = fstatfs(self.nodes.fd(node)?)?;
        let block = about.block_size() as u32;
        Ok(Reply::default()
            .u64(about.blocks())
            .u64(about.blocks_free())
            .u64(about.blocks_available())
            .u64(about.files())
            .u64(about.files_free())
            .u32(block)
            .u32(about.maximum_name_length() as u32)
            .u32(block)
            .bytes(&[0; 28]))
    }

    fn allowed(&self, flags: u32) -> Result<OFlag, Errno> {
        let flags = OFlag::from_bits_truncate(flags.cast_signed()) & FLAGS;
        let writes = flags & OFlag::O_ACCMODE != OFlag::O_RDONLY || flags.contains(OFlag::O_TRUNC);
        if self.read_only && writes { Err(Errno::EROFS) } else { Ok(flags) }
    }

    /// Opens a regular file that is known. Others, the I/O node opens by itself, or nobody.
    fn open_file(&self, node: u64, flags: OFlag) -> Result<OwnedFd, Errno> {
        regular(&fstat(self.nodes.fd(node)?)?)?;
        openat(&*self.own, self.nodes.name(node)?.as_str(), flags | ALWAYS, Mode::empty())
    }

    fn open(&mut self, node: u64, mut fields: Fields<'_>) -> Answer {
        let fd = self.open_file(node, self.allowed(fields.u32()?)?)?;
        Ok(Reply::default().open(self.open.insert(fd), true))
    }

    fn create(&mut self, parent: u64, mut fields: Fields<'_>) -> Answer {
        let (flags, mode) = (fields.u32()?, fields.u32()?);
        fields.take(8)?;
        let name = fields.name()?;
        let new = OFlag::O_CREAT | OFlag::O_NOFOLLOW | ALWAYS;
        let only_new = OFlag::from_bits_truncate(flags.cast_signed()) & OFlag::O_EXCL;
        let (flags, mode) = (self.allowed(flags)? | new | only_new, Mode::from_bits_truncate(mode));
        let fd = openat(self.nodes.fd(parent)?, name, flags, mode)?;
        regular(&fstat(&fd)?)?;
        use std::os::fd::AsRawFd as _;
        let known = openat(&*self.own, fd.as_raw_fd().to_string().as_str(), KNOWN_OPEN, Mode::empty())?;
        let stat = fstat(&known)?;
        let entry = Reply::entry(self.nodes.know(known, &stat), &stat);
        Ok(entry.open(self.open.insert(fd), true))
    }

    fn open_folder(&mut self, node: u64) -> Answer {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | ALWAYS;
        let fd = openat(self.nodes.fd(node)?.as_fd(), c".", flags, Mode::empty())?;
        Ok(Reply::default().open(self.open.insert(fd), false))
    }
}

/// Flags for the descriptor by which an open file is known from then on.
const KNOWN_OPEN: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

fn regular(stat: &FileStat) -> Result<(), Errno> {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(Errno::EISDIR),
        _ => Err(Errno::EACCES),
    }
}

/// Refuses files of `/proc`: there, this process could reach itself.
fn refuse_processes(fd: &OwnedFd) -> Result<(), Errno> {
    if fstatfs(fd)?.filesystem_type() == PROC_SUPER_MAGIC { Err(Errno::EACCES) } else { Ok(()) }
}
