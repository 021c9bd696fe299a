// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call under way, for the code of a single call or of a family of calls.

use std::os::fd::{AsRawFd as _, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use colony_fship::calls::Call;
use colony_fship::spans;
use colony_fship::{Errno, Request};

use super::step::{Made, Step, done};
use crate::worker::process::{Description, Kind, Process};
use crate::worker::waits::{Progress, Wait};

/// A call under way: the process that made it, its request, and its progress if it is made again.
pub(super) struct CallContext<'a> {
    pub(super) call: &'static Call,
    pub(super) process: &'a mut Process,
    pub(super) request: &'a Request,
    pub(super) progress: &'a mut Progress,
}

/// An open file of a process: its descriptor in the worker, and its description.
pub(super) struct OpenFile {
    pub(super) fd: RawFd,
    pub(super) about: Rc<Description>,
}

/// The time that a call may wait; `None` for ever.
pub(super) type Timeout = Option<Duration>;

impl<'a> CallContext<'a> {
    /// The number of the call.
    pub(super) fn number(&self) -> u32 {
        self.call.number.into()
    }

    /// The arguments as the program gave them.
    pub(super) fn args(&self) -> &'a [u64; 6] {
        &self.request.args
    }

    /// Checks that all memory that the arguments name is the process's.
    pub(super) fn check_memory(&self) -> Result<(), Errno> {
        spans::each(self.call, self.request, &self.process.bank, &mut |_| Ok(()))
    }

    /// The file behind a descriptor of the process.
    pub(super) fn file(&self, number: u64) -> Result<OpenFile, Errno> {
        let file = self.process.files.get(number)?;
        Ok(OpenFile { fd: file.fd.as_raw_fd(), about: file.about.clone() })
    }

    /// Ends a transfer: its result is the bytes moved so far, or the error if there are none.
    pub(super) fn stopped(&self, error: Errno) -> Made {
        if self.progress.done > 0 { done(self.progress.done) } else { Err(error) }
    }

    /// The same for a write, which raises `SIGPIPE` if nobody reads.
    pub(super) fn write_stopped(&mut self, error: Errno) -> Made {
        if self.progress.done == 0 && error == Errno::EPIPE {
            self.process.raise(libc::SIGPIPE as u32);
        }
        self.stopped(error)
    }

    /// Waits for these events of a file from which, or to which, nothing can be moved now. If the file is non-blocking or a
    /// socket's own timeout is over, the transfer ends.
    pub(super) fn not_ready(&mut self, file: &OpenFile, events: i32) -> Made {
        if file.about.nonblocking.get() {
            return self.stopped(Errno::EAGAIN);
        }
        let mut wait = Wait::on(file.fd, events);
        if file.about.kind == Kind::Socket {
            if !self.progress.again {
                self.progress.deadline = socket_deadline(file.fd, events);
            }
            if self.progress.deadline.is_some_and(|at| at <= Instant::now()) {
                return self.stopped(Errno::EAGAIN);
            }
            wait.until = self.progress.deadline;
        }
        Ok(Step::Wait(wait))
    }

    /// The end of a wait with this timeout; a call that is made again keeps its deadline.
    pub(super) fn deadline(&mut self, timeout: Timeout) -> Option<Instant> {
        if !self.progress.again {
            self.progress.deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        }
        self.progress.deadline
    }

    /// Returns `true` if a wait with this timeout is over.
    pub(super) fn is_over(&mut self, timeout: Timeout) -> bool {
        timeout.is_some_and(|t| t.is_zero()) || self.deadline(timeout).is_some_and(|at| at <= Instant::now())
    }
}

/// The end of an operation by the socket's own timeout (`SO_SNDTIMEO`, `SO_RCVTIMEO`), if it has one.
fn socket_deadline(fd: RawFd, events: i32) -> Option<Instant> {
    let option = if events & libc::EPOLLOUT != 0 { libc::SO_SNDTIMEO } else { libc::SO_RCVTIMEO };
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of_val(&time) as libc::socklen_t;
    // SAFETY: so many bytes are there
    let found =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut time).cast(), &mut length) };
    let micros = time.tv_sec.checked_mul(1_000_000)?.checked_add(time.tv_usec)?;
    let micros = u64::try_from(micros).ok().filter(|&m| found == 0 && m > 0)?;
    Instant::now().checked_add(Duration::from_micros(micros))
}
