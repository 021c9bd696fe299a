// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing.

use std::io;
use std::os::fd::RawFd;

use colony_fship::Errno;
use colony_fship::calls::number as nr;
use colony_fship::spans;

use super::context::{CallContext, OpenFile};
use super::parts::Parts;
use super::{Made, Step, TURN, World, done, next_turn};
use crate::worker::output::{label, loses_nothing};
use crate::worker::process::Kind;
use crate::worker::waits::Wait;

/// The kind of transfer that a call makes.
struct Manner {
    writes: bool,
    vector: bool,
    /// Offset in the file, for calls that give one.
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
    pub(super) fn read_or_write(&mut self, cx: &mut CallContext<'_>) -> Made {
        let manner = Manner::of(cx.number(), cx.args());
        let file = cx.file(cx.args()[0])?;
        let about = &file.about;
        let mut spans = Vec::new();
        spans::each(cx.call, cx.request, &cx.process.bank, &mut |s| {
            spans.push(s);
            Ok(())
        })?;
        // the first is the vector itself
        let data = if manner.vector && !spans.is_empty() { &spans[1..] } else { &spans[..] };
        let mut parts = Parts::new(cx.process, data)?;
        let total = parts.len();
        parts.cut(cx.progress.done, TURN);
        if let Kind::Output(n) = about.kind
            && manner.writes
            && manner.offset.is_none()
        {
            return self.print(cx, n, &parts, total, about.nonblocking.get());
        }
        let events = if manner.writes { libc::EPOLLOUT } else { libc::EPOLLIN };
        if about.shared && total > 0 && !ready(file.fd, events) {
            return cx.not_ready(&file, events);
        }
        if about.shared && manner.writes && about.kind != Kind::Socket {
            // it may wait for room, which there is for so many
            parts.cut(0, libc::PIPE_BUF as u64);
        }
        let moved = match self.transfer(&file, &manner, &parts, cx.progress.done) {
            Ok(moved) => moved,
            Err(Errno::EAGAIN) if manner.flags == 0 => {
                return cx.not_ready(&file, events);
            }
            Err(e) if manner.writes => {
                if about.is_output {
                    let why = io::Error::from_raw_os_error(i32::from(e.0)).to_string();
                    self.output_lost(cx.process.rank, e, why);
                }
                return cx.write_stopped(e);
            }
            Err(e) => return cx.stopped(e),
        };
        if moved == 0 && !manner.writes && about.kind == Kind::Fifo && total > 0 && !hung_up(file.fd) {
            // nobody has opened it for writing yet
            return if about.nonblocking.get() { done(0) } else { Ok(Step::Wait(Wait::on(file.fd, events))) };
        }
        cx.progress.done += moved;
        // of a stream, reading takes what there is
        let all = manner.writes || about.kind == Kind::File;
        if !all || moved == 0 || cx.progress.done >= total {
            return done(cx.progress.done);
        }
        if moved == parts.len() {
            return next_turn();
        }
        // a file gave or took what it could; a stream has no more room now
        if about.kind == Kind::File || manner.flags != 0 {
            return done(cx.progress.done);
        }
        cx.not_ready(&file, events)
    }

    fn transfer(&mut self, file: &OpenFile, manner: &Manner, parts: &Parts, done: u64) -> Result<u64, Errno> {
        let (place, count) = parts.args();
        let (fd, about) = (file.fd as u64, &file.about);
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
        if manner.writes { self.growing(file.fd, about.memory.as_ref(), act) } else { act(self) }
    }

    /// Writes to an output of the job.
    fn print(
        &mut self,
        cx: &mut CallContext<'_>,
        n: usize,
        parts: &Parts,
        total: u64,
        nonblocking: bool,
    ) -> Made {
        let bytes = parts.copy();
        let output = &mut self.outputs[n];
        let written = if self.labels {
            // lines are not cut where the reader stops: all of it, when there is room for anything
            if output.room() == 0 {
                return if nonblocking { cx.stopped(Errno::EAGAIN) } else { wait_or_turn(0, n) };
            }
            let lines = label(cx.process.rank, &mut cx.process.lines[n], &bytes, false);
            output.put(&lines).map(|()| bytes.len())
        } else {
            output.write(&bytes)
        };
        match written {
            Ok(written) => {
                cx.progress.done += written as u64;
                if cx.progress.done == total || (nonblocking && written > 0) {
                    return done(cx.progress.done);
                }
                if nonblocking { Err(Errno::EAGAIN) } else { wait_or_turn(output.room(), n) }
            }
            Err(e) => {
                let why = output.describe_error(e);
                self.output_lost(cx.process.rank, e, why);
                cx.write_stopped(e)
            }
        }
    }

    /// Keeps the reason why output was not stored: the job ends with it. A reader that hangs up is no such reason.
    fn output_lost(&mut self, rank: u32, error: Errno, why: String) {
        if !loses_nothing(error) {
            self.lost_output.get_or_insert((rank, why));
        }
    }
}

fn wait_or_turn(room: usize, output: usize) -> Made {
    Ok(Step::Wait(Wait { now: room > 0, ..Wait::for_room(output) }))
}

/// Returns `true` if a descriptor has one of these events.
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
