// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file tree, as the kernel's FUSE asks for it.
//!
//! Made for the shell: every `write` is one whole setting, wherever in the file it lands, so that
//! `echo 100ms > period`, `>>` and a descriptor kept open all do what they say. A reader gets one
//! consistent document: it is made when the read at offset 0 arrives and kept for the following ones.
//! Sizes need not be known, since nothing goes through the page cache.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use colony_client::File;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::access::Peer;
use crate::files;
use crate::quota::OpenQuota;
use crate::service::Service;

/// Nothing is cached: a size or a right may change between two looks.
const TTL: Duration = Duration::ZERO;

/// The largest single write: longer ones are no setting.
const LONGEST_WRITE: usize = 4096;

/// One open of a file.
struct Open {
    file: File,
    /// The user who opened it; no other user may write through it.
    uid: u32,
    document: Option<Arc<str>>,
}

impl Open {
    fn kept(&self) -> usize {
        self.document.as_ref().map_or(0, |d| d.len())
    }
}

/// The open files, and how much of them is whose.
#[derive(Default)]
struct Table {
    open: HashMap<u64, Open>,
    quota: OpenQuota,
}

/// The tree over a [`Service`].
pub(crate) struct Tree {
    service: Arc<Service>,
    mounted: SystemTime,
    open: Mutex<Table>,
    next: AtomicU64,
}

impl Tree {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service, mounted: SystemTime::now(), open: Mutex::default(), next: AtomicU64::new(1) }
    }

    fn opened(&self) -> MutexGuard<'_, Table> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, nlink) = match files::of_inode(inode.0) {
            Some(file) => (FileType::RegularFile, files::mode(file), 1),
            None if inode == INodeNo::ROOT => (FileType::Directory, 0o755, 2),
            None => return Err(Errno::ENOENT),
        };
        Ok(FileAttr {
            ino: inode,
            size: 0,
            blocks: 0,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Checks that the asking process may open `file` to write.
    fn may_open(&self, req: &Request, file: File) -> Result<(), Errno> {
        self.service.may_open(file, &peer(req)).map_err(|e| Errno::from_i32(e.errno()))
    }

    fn open_file(&self, req: &Request, inode: INodeNo, flags: OpenFlags) -> Result<FileHandle, Errno> {
        let file = files::of_inode(inode.0).ok_or(Errno::EISDIR)?;
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            self.may_open(req, file)?;
        }
        self.add(file, req.uid())
    }

    fn add(&self, file: File, uid: u32) -> Result<FileHandle, Errno> {
        let mut table = self.opened();
        if !table.quota.open(uid) {
            return Err(Errno::EMFILE);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        table.open.insert(handle, Open { file, uid, document: None });
        Ok(FileHandle(handle))
    }

    fn remove(&self, handle: FileHandle) {
        let mut table = self.opened();
        if let Some(open) = table.open.remove(&handle.0) {
            table.quota.close(open.uid, open.kept());
        }
    }

    /// The document of an open file; a read at the beginning makes a new one.
    fn document(&self, handle: FileHandle, offset: u64) -> Result<Arc<str>, Errno> {
        let mut table = self.opened();
        let Table { open, quota } = &mut *table;
        let open = open.get_mut(&handle.0).ok_or(Errno::EBADF)?;
        match &open.document {
            Some(kept) if offset > 0 => Ok(Arc::clone(kept)),
            _ => {
                let new: Arc<str> = self.service.document(open.file, open.uid).into();
                if !quota.keep(open.uid, open.kept(), new.len()) {
                    return Err(Errno::EAGAIN);
                }
                open.document = Some(Arc::clone(&new));
                Ok(new)
            }
        }
    }

    fn write_file(&self, req: &Request, handle: FileHandle, data: &[u8]) -> Result<(), Errno> {
        let (file, opener) = {
            let table = self.opened();
            let open = table.open.get(&handle.0).ok_or(Errno::EBADF)?;
            (open.file, open.uid)
        };
        // a descriptor handed to a program with more rights must not borrow them
        if opener != req.uid() {
            return Err(Errno::EACCES);
        }
        let written = if data.len() > LONGEST_WRITE { None } else { std::str::from_utf8(data).ok() };
        self.service.write(file, &peer(req), written).map_err(|e| Errno::from_i32(e.errno()))
    }
}

fn peer(req: &Request) -> Peer {
    Peer::new(i32::try_from(req.pid()).unwrap_or(0), req.uid(), req.gid())
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // far above the longest write, so that one too long arrives in one piece and is refused whole
        let _ = config.set_max_write(128 << 10);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let file = name.to_str().filter(|_| parent == INodeNo::ROOT).and_then(File::named);
        match file.ok_or(Errno::ENOENT).and_then(|f| self.attributes(INodeNo(files::inode(f)))) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let owner_change = mode.is_some() || uid.is_some() || gid.is_some();
        let allowed = match (files::of_inode(inode.0), size) {
            _ if owner_change => Err(Errno::EPERM),
            // `>` empties a file before it writes: there is nothing to empty
            (Some(file), Some(_)) => self.may_open(req, file),
            _ => Ok(()),
        };
        match allowed.and_then(|()| self.attributes(inode)) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(e) => reply.error(e),
        }
    }

    fn access(&self, req: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let (write, execute) = (mask.contains(AccessFlags::W_OK), mask.contains(AccessFlags::X_OK));
        let allowed = match files::of_inode(inode.0) {
            Some(_) if execute => Err(Errno::EACCES),
            Some(file) if write => {
                self.service.may_write(file, &peer(req)).map_err(|e| Errno::from_i32(e.errno()))
            }
            None if write => Err(Errno::EACCES),
            _ => Ok(()),
        };
        match allowed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, req: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(req, inode, flags) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.document(handle, offset) {
            Ok(document) => {
                let rest = document.as_bytes().get(offset as usize..).unwrap_or_default();
                reply.data(&rest[..rest.len().min(size as usize)]);
            }
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        req: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_file(req, handle, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.remove(handle);
        reply.ok();
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let here = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name));
        let files = File::ALL.map(|f| (INodeNo(files::inode(f)), FileType::RegularFile, f.name()));
        for (n, (inode, kind, name)) in (1u64..).zip(here.into_iter().chain(files)).skip(offset as usize) {
            if reply.add(inode, n, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    // Nothing can be made, renamed or removed here. Saying so gives a shell `Operation not permitted` for a
    // misspelt name, instead of the `Function not implemented` that no answer gives.

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
