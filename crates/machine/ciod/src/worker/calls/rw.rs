// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing.

use std::os::fd::{AsRawFd as _, RawFd};

use colony_fship::calls::{Call, number as nr};
use colony_fship::spans;
use colony_fship::{Errno, Request};

use super::parts::Parts;
use super::{Made, Step, TURN, World, done, next_turn, stopped, write_stopped};
use crate::worker::output::label;
use crate::worker::process::{Description, Kind, Process};
use crate::worker::waits::{Progress, Wait};

/// What kind of transfer a call is.
struct Manner {
    writes: bool,
    vector: bool,
    /// Where in the file, for those that say it.
    offset: Option<u64>,
    flags: u64,
}

impl Manner {
    fn of(number: u32, args: &[u64; 6]) -> Self {
        let writes = matches!(number, nr::write | nr::writev | nr::pwrite64 | nr::pwritev | nr::pwritev2);
        let vector = !matches!(number, nr::read | nr::write | nr::pread64 | nr::pwrite64);
        let offset = match number {
            nr::pread64 | nr::pwrite64 | nr::preadv | nr::pwritev => Some(args[3]),
            // -1: where the file is
            nr::preadv2 | nr::pwritev2 => Some(args[3]).filter(|&o| o != u64::MAX),
            _ => None,
        };
        let flags = if matches!(number, nr::preadv2 | nr::pwritev2) { args[5] } else { 0 };
        Self { writes, vector, offset, flags }
    }
}

impl World {
    pub(super) fn read_or_write(
        &mut self,
        call: &Call,
        process: &mut Process,
        request: &Request,
        progress: &mut Progress,
    ) -> Made {
        let manner = Manner::of(u32::from(call.number), &request.args);
        let file = process.files.get(request.args[0])?;
        let (fd, about) = (file.fd.as_raw_fd(), file.about.clone());
        let mut spans = Vec::new();
        spans::each(call, request, &process.bank, &mut |s| {
            spans.push(s);
            Ok(())
        })?;
        // the first is the vector itself
        let data = if manner.vector && !spans.is_empty() { &spans[1..] } else { &spans[..] };
        let mut parts = Parts::new(process, data)?;
        let total = parts.len();
        parts.cut(progress.done, TURN);
        if let Kind::Output(n) = about.kind
            && manner.writes
            && manner.offset.is_none()
        {
            return self.print(process, n, &parts, total, progress, about.nonblocking.get());
        }
        let events = if manner.writes { libc::EPOLLOUT } else { libc::EPOLLIN };
        let wait = || Wait::on(fd, events);
        if about.shared && total > 0 && !ready(fd, events) {
            return self.not_ready(&about, fd, progress, wait());
        }
        if about.shared && manner.writes && about.kind != Kind::Socket {
            // it may wait for room, which there is for so many
            parts.cut(0, libc::PIPE_BUF as u64);
        }
        let moved = match self.transfer(fd, &about, &manner, &parts, progress.done) {
            Ok(moved) => moved,
            Err(Errno::EAGAIN) if manner.flags == 0 => {
                return self.not_ready(&about, fd, progress, wait());
            }
            Err(e) if manner.writes => return write_stopped(process, progress, e),
            Err(e) => return stopped(progress, e),
        };
        if moved == 0 && !manner.writes && about.kind == Kind::Fifo && total > 0 && !hung_up(fd) {
            // nobody has opened it for writing yet
            return if about.nonblocking.get() { done(0) } else { Ok(Step::Wait(wait())) };
        }
        progress.done += moved;
        // of a stream, reading takes what there is
        let all = manner.writes || about.kind == Kind::File;
        if !all || moved == 0 || progress.done >= total {
            return done(progress.done);
        }
        if moved == parts.len() {
            return next_turn();
        }
        // a file gave or took what it could; a stream has no more room now
        if about.kind == Kind::File || manner.flags != 0 {
            return done(progress.done);
        }
        self.not_ready(&about, fd, progress, wait())
    }

    fn transfer(
        &mut self,
        fd: RawFd,
        about: &Description,
        manner: &Manner,
        parts: &Parts,
        done: u64,
    ) -> Result<u64, Errno> {
        let (place, count) = parts.args();
        let fd = fd as u64;
        if about.shared && about.kind == Kind::Socket && manner.offset.is_none() && count > 0 {
            // others share it, who may want it to wait
            let message = parts.message(&[], &[]);
            let call = if manner.writes { libc::SYS_sendmsg } else { libc::SYS_recvmsg };
            let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
            return self.host.call(call, [fd, &raw const message as u64, flags, 0, 0, 0]);
        }
        let number = match (manner.writes, manner.offset.is_some() || manner.flags != 0) {
            (false, false) => libc::SYS_readv,
            (true, false) => libc::SYS_writev,
            (false, true) => libc::SYS_preadv2,
            (true, true) => libc::SYS_pwritev2,
        };
        // without an offset, -1 stands for where the file is
        let offset = manner.offset.map_or(u64::MAX, |o| o.wrapping_add(done));
        if manner.offset.is_some_and(|o| o as i64 <= -1) {
            return Err(Errno::EINVAL);
        }
        let act = |world: &mut Self| world.host.call(number, [fd, place, count, offset, 0, manner.flags]);
        if manner.writes { self.growing(fd as RawFd, about.memory.as_ref(), act) } else { act(self) }
    }

    /// Nothing can be moved now.
    pub(super) fn not_ready(
        &mut self,
        about: &Description,
        fd: RawFd,
        progress: &mut Progress,
        mut wait: Wait,
    ) -> Made {
        if about.nonblocking.get() {
            return stopped(progress, Errno::EAGAIN);
        }
        if about.kind == Kind::Socket {
            let option = if wait.on.iter().any(|(_, e)| e & libc::EPOLLOUT != 0) {
                libc::SO_SNDTIMEO
            } else {
                libc::SO_RCVTIMEO
            };
            if !progress.again {
                progress.deadline = patience(fd, option);
            }
            if progress.deadline.is_some_and(|at| at <= std::time::Instant::now()) {
                return stopped(progress, Errno::EAGAIN);
            }
            wait.until = progress.deadline;
        }
        Ok(Step::Wait(wait))
    }

    /// Writes to an output of the job.
    fn print(
        &mut self,
        process: &mut Process,
        n: usize,
        parts: &Parts,
        total: u64,
        progress: &mut Progress,
        nonblocking: bool,
    ) -> Made {
        let bytes = parts.copy();
        let output = &mut self.outputs[n];
        let written = if self.labels {
            // lines are not cut where the reader stops: all of it, when there is room for anything
            if output.room() == 0 {
                return if nonblocking { stopped(progress, Errno::EAGAIN) } else { wait_or_turn(0, n) };
            }
            let lines = label(process.rank, &mut process.lines[n], &bytes, false);
            output.put(&lines).map(|()| bytes.len())
        } else {
            output.write(&bytes)
        };
        match written {
            Ok(written) => {
                progress.done += written as u64;
                if progress.done == total || (nonblocking && written > 0) {
                    return done(progress.done);
                }
                if nonblocking { Err(Errno::EAGAIN) } else { wait_or_turn(output.room(), n) }
            }
            Err(e) => write_stopped(process, progress, e),
        }
    }
}

fn wait_or_turn(room: usize, output: usize) -> Made {
    Ok(Step::Wait(Wait { now: room > 0, ..Wait::for_room(output) }))
}

/// Whether a descriptor has one of these events.
pub(super) fn ready(fd: RawFd, events: i32) -> bool {
    let mut one = libc::pollfd { fd, events: events as i16, revents: 0 };
    // SAFETY: one is there
    unsafe { libc::poll(&mut one, 1, 0) > 0 }
}

fn hung_up(fd: RawFd) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one is there
    unsafe { libc::poll(&mut one, 1, 0) >= 0 && one.revents & libc::POLLHUP != 0 }
}

/// When a socket's own time for an operation is over.
fn patience(fd: RawFd, option: i32) -> Option<std::time::Instant> {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of_val(&time) as libc::socklen_t;
    // SAFETY: so many bytes are there
    let found =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut time).cast(), &mut length) };
    let micros = time.tv_sec.checked_mul(1_000_000)?.checked_add(time.tv_usec)?;
    let micros = u64::try_from(micros).ok().filter(|&m| found == 0 && m > 0)?;
    std::time::Instant::now().checked_add(std::time::Duration::from_micros(micros))
}
