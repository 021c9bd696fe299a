// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of the job as its worker keeps it: descriptors, directory, mask.

use std::cell::Cell;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::rc::Rc;

use colony_fship::Errno;

use super::charge::Charge;
use super::window::Bank;

/// Descriptors of a process at most (`RLIMIT_NOFILE`, the usual soft limit).
pub(crate) const DESCRIPTORS: usize = 1024;

/// The kind of file behind a descriptor, as far as it matters for waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file, a directory, a block device: never blocks for long.
    File,
    /// A file that may block: a pipe, a terminal, a device.
    Stream,
    /// A FIFO opened by name for reading.
    Fifo,
    /// A socket.
    Socket,
    /// The program's own `epoll`.
    Epoll,
    /// Standard output (0) or standard error (1) of the job.
    Output(usize),
}

/// An open file description: what duplicates of a descriptor share.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) kind: Kind,
    /// True if the program wants `EAGAIN`; to the operating system, all files that may block are non-blocking.
    pub(crate) nonblocking: Cell<bool>,
    /// True if other processes than this worker share it, so that it could not be made non-blocking.
    pub(crate) shared: bool,
    /// A socket whose connection is being made.
    pub(crate) connecting: Cell<bool>,
    /// Seconds that the program wants closing a socket to wait (`SO_LINGER`). To the operating system it never does,
    /// for all others would wait too.
    pub(crate) linger: Cell<i32>,
    /// A file that is standard output or standard error of one rank.
    pub(crate) is_output: bool,
    /// The charge of a file in memory to its job's account.
    pub(crate) memory: Option<Charge>,
}

impl Description {
    pub(crate) fn new(kind: Kind, nonblocking: bool, shared: bool) -> Self {
        let nonblocking = Cell::new(nonblocking);
        let (connecting, linger) = (Cell::new(false), Cell::new(0));
        Self { kind, nonblocking, shared, connecting, linger, is_output: false, memory: None }
    }
}

/// A descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) fd: OwnedFd,
    pub(crate) about: Rc<Description>,
    pub(crate) close_on_exec: bool,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd, kind: Kind, nonblocking: bool, close_on_exec: bool) -> Self {
        Self { fd, about: Rc::new(Description::new(kind, nonblocking, false)), close_on_exec }
    }

    /// Another one for the same description.
    pub(crate) fn duplicate(&self, close_on_exec: bool) -> Result<Self, Errno> {
        let fd = self.fd.try_clone().map_err(|e| errno(&e))?;
        Ok(Self { fd, about: self.about.clone(), close_on_exec })
    }
}

/// The number of an error of the system.
pub(crate) fn errno(e: &std::io::Error) -> Errno {
    e.raw_os_error().and_then(|n| u16::try_from(n).ok()).map_or(Errno::EIO, Errno)
}

/// The descriptors of a process, by number.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Option<Descriptor>>);

impl Table {
    /// The descriptor of this number; a program passes an `int`.
    pub(crate) fn get(&self, number: u64) -> Result<&Descriptor, Errno> {
        self.0.get(number as u32 as usize).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Result<&mut Descriptor, Errno> {
        self.0.get_mut(number as u32 as usize).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// The operating system's descriptor.
    pub(crate) fn host(&self, number: u64) -> Result<RawFd, Errno> {
        self.get(number).map(|d| d.fd.as_raw_fd())
    }

    /// The lowest free number from `least` on.
    pub(crate) fn free(&self, least: usize) -> Result<usize, Errno> {
        let free = (least..DESCRIPTORS).find(|&n| self.0.get(n).is_none_or(Option::is_none));
        free.ok_or(Errno::EMFILE)
    }

    /// Puts a descriptor at the lowest free number from `least` on.
    pub(crate) fn insert(&mut self, least: usize, descriptor: Descriptor) -> Result<u64, Errno> {
        let number = self.free(least)?;
        self.put(number, descriptor);
        Ok(number as u64)
    }

    /// Puts a descriptor at this number, which is one; what was there is closed.
    pub(crate) fn put(&mut self, number: usize, descriptor: Descriptor) {
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number] = Some(descriptor);
    }

    pub(crate) fn remove(&mut self, number: u64) -> Result<Descriptor, Errno> {
        self.0.get_mut(number as u32 as usize).and_then(Option::take).ok_or(Errno::EBADF)
    }

    /// The open numbers from `first` to `last`.
    pub(crate) fn open(&self, first: usize, last: usize) -> Vec<usize> {
        let open = |n: &usize| self.0.get(*n).is_some_and(Option::is_some);
        (first..self.0.len().min(last.saturating_add(1))).filter(open).collect()
    }

    /// Closes the descriptors that `execve` closes.
    pub(crate) fn close_on_exec(&mut self) {
        for place in &mut self.0 {
            if place.as_ref().is_some_and(|d| d.close_on_exec) {
                *place = None;
            }
        }
    }
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) rank: u32,
    pub(crate) bank: Bank,
    pub(crate) files: Table,
    /// The directory it is in; its own descriptor of it, shared while nobody changes it.
    pub(crate) directory: Rc<OwnedFd>,
    pub(crate) umask: u32,
    /// The target of `/proc/self/exe`.
    pub(crate) executable: PathBuf,
    /// The unfinished lines of standard output and standard error, where lines are labeled.
    pub(crate) lines: [Vec<u8>; 2],
    /// Signals that a call made: `SIGPIPE`.
    pub(crate) raised: u64,
}

impl Process {
    pub(crate) fn new(rank: u32, bank: Bank, directory: Rc<OwnedFd>) -> Self {
        Self {
            rank,
            bank,
            files: Table::default(),
            directory,
            umask: 0o022,
            executable: PathBuf::new(),
            lines: Default::default(),
            raised: 0,
        }
    }

    /// Lets the process have signal `number` with the reply.
    pub(crate) fn raise(&mut self, number: u32) {
        self.raised |= 1 << (number - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> Descriptor {
        let file = std::fs::File::open("/dev/null").expect("null");
        Descriptor::new(file.into(), Kind::Stream, false, false)
    }

    #[test]
    fn numbers_are_the_lowest_free_ones() {
        let mut table = Table::default();
        for n in 0..3 {
            assert_eq!(table.insert(0, null()), Ok(n));
        }
        table.remove(1).expect("open");
        assert_eq!(table.remove(1).err(), Some(Errno::EBADF));
        assert_eq!(table.insert(0, null()), Ok(1));
        assert_eq!(table.insert(10, null()), Ok(10));
        assert_eq!(table.open(1, usize::MAX), [1, 2, 10]);
        assert!(table.get(u64::MAX).is_err() && table.get(3).is_err());
        for _ in 4..DESCRIPTORS {
            table.insert(0, null()).expect("room");
        }
        assert_eq!(table.insert(0, null()), Err(Errno::EMFILE));
    }
}
