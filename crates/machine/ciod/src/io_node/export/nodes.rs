// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and folders that the kernel of an I/O node knows, by number. Each is held open, so that a number means one file as long
//! as it is known, whatever happens to its name.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat};

use super::message::ROOT;

/// See the module.
#[derive(Debug)]
pub(super) struct Nodes {
    root: OwnedFd,
    root_device: u64,
    all: HashMap<u64, Node>,
    by_file: HashMap<(u64, u64), u64>,
    last: u64,
}

#[derive(Debug)]
struct Node {
    fd: OwnedFd,
    /// Device and inode.
    file: (u64, u64),
    /// Replies that have named it and were not taken back.
    known: u64,
}

impl Nodes {
    pub(super) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let root_device = fstat(&root)?.st_dev;
        Ok(Self { root, root_device, all: HashMap::new(), by_file: HashMap::new(), last: ROOT })
    }

    /// The descriptor of a node, which was opened by `O_PATH`.
    pub(super) fn fd(&self, node: u64) -> Result<BorrowedFd<'_>, Errno> {
        match node {
            ROOT => Ok(self.root.as_fd()),
            node => self.all.get(&node).map(|node| node.fd.as_fd()).ok_or(Errno::ESTALE),
        }
    }

    /// The device that a node lies on.
    pub(super) fn device(&self, node: u64) -> Result<u64, Errno> {
        match node {
            ROOT => Ok(self.root_device),
            node => self.all.get(&node).map(|node| node.file.0).ok_or(Errno::ESTALE),
        }
    }

    /// The name of a node below `/proc/self/fd`, by which it is opened.
    pub(super) fn name(&self, node: u64) -> Result<String, Errno> {
        Ok(self.fd(node)?.as_raw_fd().to_string())
    }

    /// The number of a file, which is named in a reply once more.
    pub(super) fn know(&mut self, fd: OwnedFd, stat: &FileStat) -> u64 {
        let file = (stat.st_dev, stat.st_ino);
        if let Some(&number) = self.by_file.get(&file)
            && let Some(node) = self.all.get_mut(&number)
        {
            node.known += 1;
            return number;
        }
        self.last += 1;
        self.all.insert(self.last, Node { fd, file, known: 1 });
        self.by_file.insert(file, self.last);
        self.last
    }

    /// The kernel takes so many namings back.
    pub(super) fn forget(&mut self, number: u64, count: u64) {
        let Some(node) = self.all.get_mut(&number) else { return };
        node.known = node.known.saturating_sub(count);
        if node.known == 0 {
            let file = node.file;
            self.all.remove(&number);
            self.by_file.remove(&file);
        }
    }
}
