// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the programs, as the worker makes them.
//!
//! Most calls are *replayed*: the table of `colony_fship` says what each argument is; descriptors are translated,
//! paths copied, places in the program's memory handed on, and the operating system does the rest, so that results
//! and errors are its own. Calls that may wait, or that mean the worker's own state, have their own code: one file a
//! family.

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

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use colony_fship::calls::{self, Call, Class, number as nr};
use colony_fship::{Errno, Request};

use super::charge::Account;
use super::host::Host;
use super::image::Start;
use super::output::Output;
use super::process::Process;
use super::start::Opened;
use super::waits::{Progress, Wait};
use crate::Rule;

/// How a call went.
pub(crate) enum Step {
    /// It has this result.
    Done(i64),
    /// It goes on later.
    Wait(Wait),
    /// The process is to have another image.
    Exec(Box<Exec>),
}

/// What `execve` needs.
pub(crate) struct Exec {
    pub(super) opened: Opened,
    pub(super) start: Start,
}

/// Result of a call's own code.
type Made = Result<Step, Errno>;

fn done(result: u64) -> Made {
    Ok(Step::Done(result as i64))
}

/// A transfer stops: what it has moved so far is its result, and the error only where that is nothing.
fn stopped(progress: &Progress, error: Errno) -> Made {
    if progress.done > 0 { done(progress.done) } else { Err(error) }
}

/// The same for a write, which makes a signal of it where nobody reads.
fn write_stopped(process: &mut Process, progress: &Progress, error: Errno) -> Made {
    if progress.done == 0 && error == Errno::EPIPE {
        process.raise(libc::SIGPIPE as u32);
    }
    stopped(progress, error)
}

/// Others have their turn, then the call goes on.
fn next_turn() -> Made {
    Ok(Step::Wait(Wait { now: true, ..Wait::default() }))
}

/// Nothing tells when the call can go on: it is tried again now and then.
fn later() -> Made {
    const EVERY: Duration = Duration::from_millis(5);
    Ok(Step::Wait(Wait { every: Some(EVERY), ..Wait::default() }))
}

/// Bytes that one call moves before others have their turn.
const TURN: u64 = 4 << 20;

/// What all processes of the job share.
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) outputs: [Output; 2],
    pub(crate) labels: bool,
    /// This worker's descriptors by name; none in tests.
    own: Option<OwnedFd>,
    /// The directory that the worker is in, if it is a process's.
    directory: Option<Rc<OwnedFd>>,
    /// The worker's mask.
    umask: u32,
    /// Who the job is.
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
        Self { host, outputs, labels, own, directory: None, umask: 0, ids, memory }
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
        let step = self.make(call, process, request, progress);
        Ok(step.unwrap_or_else(|e| Step::Done(e.result())))
    }

    fn make(
        &mut self,
        call: &Call,
        process: &mut Process,
        request: &Request,
        progress: &mut Progress,
    ) -> Made {
        let args = &request.args;
        match u32::from(call.number) {
            nr::read
            | nr::write
            | nr::readv
            | nr::writev
            | nr::pread64
            | nr::pwrite64
            | nr::preadv
            | nr::pwritev
            | nr::preadv2
            | nr::pwritev2 => self.read_or_write(call, process, request, progress),
            nr::open | nr::openat | nr::openat2 | nr::creat => self.open(call, process, request),
            nr::memfd_create => self.memory_file(process, args),
            nr::ftruncate | nr::fallocate => self.resize(call, process, request),
            nr::close => process.files.remove(args[0]).and_then(|_| done(0)),
            nr::close_range => self.close_range(process, args),
            nr::dup | nr::dup2 | nr::dup3 => self.duplicate(call, process, args),
            nr::fcntl => self.fcntl(process, args),
            nr::flock => self.flock(process, args),
            nr::ioctl => self.ioctl(process, args),
            nr::pipe | nr::pipe2 => self.pipe(call, process, request),
            nr::chdir => self.chdir(call, process, request),
            nr::fchdir => self.fchdir(process, args),
            nr::umask => {
                let old = std::mem::replace(&mut process.umask, args[0] as u32 & 0o777);
                done(old.into())
            }
            nr::readlink | nr::readlinkat => self.readlink(call, process, request),
            nr::execve => self.execve(process, args),
            nr::poll | nr::ppoll => self.poll(call, process, request, progress),
            nr::select | nr::pselect6 => self.select(call, process, request, progress),
            nr::epoll_create | nr::epoll_create1 => self.epoll_create(call, process, args),
            nr::epoll_ctl => self.epoll_ctl(process, args),
            nr::epoll_wait | nr::epoll_pwait => self.epoll_wait(call, process, request, progress),
            nr::socket => self.socket(process, args),
            nr::socketpair => self.socketpair(call, process, request),
            nr::connect => self.connect(process, args, progress),
            nr::bind => self.bind(process, args),
            nr::sendto | nr::sendmsg => self.send(call, process, request, progress),
            nr::recvfrom | nr::recvmsg => self.receive(call, process, request, progress),
            nr::getsockname | nr::getpeername => self.name(call, process, args),
            nr::setsockopt => self.set_option(process, args),
            nr::getsockopt => self.get_option(process, args),
            nr::sendfile | nr::copy_file_range => self.copy(call, process, request, progress),
            _ => self.replay(call, process, request),
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
