// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder of files that were opened before: the files for the output of each rank, which may lie anywhere on the host. Without
//! any, it stands for a folder that the user may not enter.

use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat};
use nix::unistd::ftruncate;

use super::handles::Handles;
use super::message::{Fields, ROOT, Reply, Request, change, op};

/// See the module.
#[derive(Debug)]
pub(super) struct Given {
    files: Vec<(String, OwnedFd)>,
    open: Handles,
    /// A folder that looks like this one.
    like: Rc<OwnedFd>,
}

impl Given {
    pub(super) fn new(files: Vec<(String, OwnedFd)>, like: Rc<OwnedFd>) -> Self {
        Self { files, open: Handles::default(), like }
    }

    pub(super) fn answer(&mut self, request: &Request<'_>) -> Result<Reply, Errno> {
        let (mut fields, node) = (request.fields, request.node);
        match request.op {
            op::INIT => Reply::init(fields),
            op::LOOKUP => {
                let name = fields.name()?.to_bytes();
                let at = self.files.iter().position(|(own, _)| own.as_bytes() == name);
                let node = at.ok_or(Errno::EACCES)? as u64 + ROOT + 1;
                Ok(Reply::entry(node, &self.attributes(node)?))
            }
            op::GETATTR => Ok(Reply::attr(&self.attributes(node)?)),
            op::SETATTR => self.empty(node, fields),
            op::OPEN => {
                let fd = self.file(node)?.as_fd().try_clone_to_owned();
                let fd = fd.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
                Ok(Reply::default().open(self.open.insert(fd), true))
            }
            op::READ => self.open.read(fields),
            op::WRITE => self.open.write(fields),
            op::FLUSH => self.open.flush(fields),
            op::FSYNC => self.open.sync(fields),
            op::RELEASE => self.open.release(fields),
            op::FORGET | op::BATCH_FORGET | op::DESTROY | op::INTERRUPT => Ok(Reply::default()),
            op::READLINK | op::OPENDIR | op::ACCESS | op::STATFS => Err(Errno::EACCES),
            _ if request.changes() && request.op != op::FALLOCATE => Err(Errno::EACCES),
            // the kernel does without it
            _ => Err(Errno::ENOSYS),
        }
    }

    fn file(&self, node: u64) -> Result<&OwnedFd, Errno> {
        let at = node.checked_sub(ROOT + 1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.files.get(at)).map(|(_, fd)| fd).ok_or(Errno::ESTALE)
    }

    /// Whatever is behind it, it is a regular file to the I/O node, which opens devices by itself.
    fn attributes(&self, node: u64) -> Result<FileStat, Errno> {
        if node == ROOT {
            return fstat(&*self.like);
        }
        let mut stat = fstat(self.file(node)?)?;
        stat.st_mode = stat.st_mode & !libc::S_IFMT | libc::S_IFREG;
        Ok(stat)
    }

    /// A program may empty its file, and change nothing else of it.
    fn empty(&self, node: u64, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let (valid, _) = (fields.u32()?, fields.u32()?);
        let (_, size) = (fields.u64()?, fields.u64()?);
        let fd = self.file(node)?;
        if valid & change::SIZE != 0 && fstat(fd)?.st_mode & libc::S_IFMT == libc::S_IFREG {
            ftruncate(fd, i64::try_from(size).map_err(|_| Errno::EFBIG)?)?;
        }
        Ok(Reply::attr(&self.attributes(node)?))
    }
}
