// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the programs, as the worker makes them.
//!
//! Most calls are *replayed*: the table of `colony_fship` says what each argument is; descriptors are translated,
//! paths copied, places in the program's memory handed on, and the operating system does the rest, so that results
//! and errors are its own. Calls that may wait, or that mean the worker's own state, have their own code: one file a
//! family.

mod context;
mod copies;
mod descriptors;
mod exec;
mod memory;
mod messages;
mod names;
mod options;
mod parts;
mod paths;
mod poll;
mod replay;
mod rw;
mod sockets;
mod step;

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;

use colony_fship::calls::{self, Class, number as nr};
use colony_fship::{Errno, Request};

use super::charge::Account;
use super::host::Host;
use super::output::Output;
use super::process::Process;
use super::waits::Progress;
use crate::Rule;
use context::CallContext;
pub(crate) use step::{Exec, Step};
use step::{Made, done, later, next_turn};

/// Bytes that one call moves before others have their turn.
const TURN: u64 = 4 << 20;

/// State that all processes of the job share.
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) outputs: [Output; 2],
    pub(crate) labels: bool,
    /// The first rank whose output was not stored, and why.
    pub(crate) lost_output: Option<(u32, String)>,
    /// This worker's descriptors by name; none in tests.
    own: Option<OwnedFd>,
    /// The directory that the worker is in, if it is a process's.
    directory: Option<Rc<OwnedFd>>,
    /// The worker's mask.
    umask: u32,
    /// User and group of the job.
    ids: (u32, u32),
    /// Bytes that the job's files in memory may hold.
    memory: Account,
}

impl World {
    pub(crate) fn new(
        host: Host,
        outputs: [Output; 2],
        own: Option<OwnedFd>,
        labels: bool,
        ids: (u32, u32),
        memory: u64,
    ) -> Self {
        let memory = Account::new(memory);
        Self { host, outputs, labels, lost_output: None, own, directory: None, umask: 0, ids, memory }
    }

    /// Makes a call of `process`, or makes it again.
    ///
    /// # Errors
    /// If no kernel that keeps the contract asks for it.
    pub(crate) fn call(
        &mut self,
        process: &mut Process,
        request: &Request,
        progress: &mut Progress,
    ) -> Result<Step, Rule> {
        let call = calls::find(u64::from(request.call)).filter(|c| c.class == Class::Shipped);
        let call = call.ok_or(Rule::Call(request.call))?;
        let step = self.make(&mut CallContext { call, process, request, progress });
        Ok(step.unwrap_or_else(|e| Step::Done(e.result())))
    }

    fn make(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        match cx.number() {
            nr::read
            | nr::write
            | nr::readv
            | nr::writev
            | nr::pread64
            | nr::pwrite64
            | nr::preadv
            | nr::pwritev
            | nr::preadv2
            | nr::pwritev2 => self.read_or_write(cx),
            nr::open | nr::openat | nr::openat2 | nr::creat => self.open(cx),
            nr::memfd_create => self.memory_file(cx.process, args),
            nr::ftruncate | nr::fallocate => self.resize(cx),
            nr::close => cx.process.files.remove(args[0]).and_then(|_| done(0)),
            nr::close_range => self.close_range(cx.process, args),
            nr::dup | nr::dup2 | nr::dup3 => self.duplicate(cx),
            nr::fcntl => self.fcntl(cx.process, args),
            nr::flock => self.flock(cx.process, args),
            nr::ioctl => self.ioctl(cx.process, args),
            nr::pipe | nr::pipe2 => self.pipe(cx),
            nr::eventfd | nr::eventfd2 => self.event_counter(cx),
            nr::chdir => self.chdir(cx),
            nr::fchdir => self.fchdir(cx.process, args),
            nr::umask => {
                let old = std::mem::replace(&mut cx.process.umask, args[0] as u32 & 0o777);
                done(old.into())
            }
            nr::readlink | nr::readlinkat => self.readlink(cx),
            nr::execve => self.execve(cx.process, args),
            nr::poll | nr::ppoll => self.poll(cx),
            nr::select | nr::pselect6 => self.select(cx),
            nr::epoll_create | nr::epoll_create1 => self.epoll_create(cx),
            nr::epoll_ctl => self.epoll_ctl(cx.process, args),
            nr::epoll_wait | nr::epoll_pwait => self.epoll_wait(cx),
            nr::socket => self.socket(cx.process, args),
            nr::socketpair => self.socketpair(cx),
            nr::connect => self.connect(cx),
            nr::bind => self.bind(cx.process, args),
            nr::sendto | nr::sendmsg => self.send(cx),
            nr::recvfrom | nr::recvmsg => self.receive(cx),
            nr::getsockname | nr::getpeername => self.name(cx),
            nr::setsockopt => self.set_option(cx.process, args),
            nr::getsockopt => self.get_option(cx.process, args),
            nr::sendfile | nr::copy_file_range => self.copy(cx),
            _ => self.replay(cx),
        }
    }

    /// Takes the process's place: its directory and its mask.
    fn become_process(&mut self, process: &Process) -> Result<(), Errno> {
        let there = self.directory.as_ref().is_some_and(|d| Rc::ptr_eq(d, &process.directory));
        if !there {
            self.host.call(libc::SYS_fchdir, [process.directory.as_raw_fd() as u64, 0, 0, 0, 0, 0])?;
            self.directory = Some(process.directory.clone());
        }
        if self.umask != process.umask {
            self.host.call(libc::SYS_umask, [u64::from(process.umask), 0, 0, 0, 0, 0])?;
            self.umask = process.umask;
        }
        Ok(())
    }
}
