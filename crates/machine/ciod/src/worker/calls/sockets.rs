// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client sockets (SC06 paper, 4.1): to the operating system they never block; a program that wants to wait does so
//! in the queue.

use colony_fship::Errno;
use colony_fship::calls::number as nr;
use colony_fship::spans::{self, Span, Use};

use super::context::{CallContext, OpenFile};
use super::messages::{Header, NAME, incoming, outgoing};
use super::parts::Parts;
use super::rw::ready;
use super::{Made, World, done, later};
use crate::worker::process::{Descriptor, Kind, Process};

const EINPROGRESS: Errno = Errno(115);

/// The flags of `socket` that are the program's own.
const OWN: u64 = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u64;

impl World {
    pub(super) fn socket(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        process.files.free(0)?;
        let fd = self.host.open(libc::SYS_socket, [args[0], args[1] | OWN, args[2], 0, 0, 0])?;
        let has = |flag: i32| args[1] & flag as u64 != 0;
        let socket = Descriptor::new(fd, Kind::Socket, has(libc::SOCK_NONBLOCK), has(libc::SOCK_CLOEXEC));
        done(process.files.insert(0, socket)?)
    }

    pub(super) fn socketpair(&mut self, cx: &mut CallContext<'_>) -> Made {
        cx.check_memory()?;
        let args = cx.args();
        let mut fds = [0i32; 2];
        let host = [args[0], args[1] | OWN, args[2], fds.as_mut_ptr() as u64, 0, 0];
        self.host.call(libc::SYS_socketpair, host)?;
        // the flags have the values of those of `open`
        self.two(cx.process, fds, Kind::Socket, args[1] & OWN, args[3])
    }

    pub(super) fn connect(&mut self, cx: &mut CallContext<'_>) -> Made {
        let file = cx.file(cx.args()[0])?;
        let (fd, about) = (file.fd as u64, &file.about);
        if cx.progress.again && about.connecting.get() {
            if !ready(file.fd, libc::POLLOUT.into()) {
                return cx.not_ready(&file, libc::EPOLLOUT);
            }
            about.connecting.set(false);
            let (mut error, mut length) = (0u32, 4u32);
            let (place, at) = (&raw mut error as u64, &raw mut length as u64);
            let asked = [fd, libc::SOL_SOCKET as u64, libc::SO_ERROR as u64, place, at, 0];
            self.host.call(libc::SYS_getsockopt, asked)?;
            return if error == 0 { done(0) } else { Err(Errno(error as u16)) };
        }
        let name = address(cx.process, cx.args())?;
        self.become_process(cx.process)?;
        match self.host.call(libc::SYS_connect, [fd, name.as_ptr() as u64, name.len() as u64, 0, 0, 0]) {
            Err(EINPROGRESS) if !about.nonblocking.get() => {
                about.connecting.set(true);
                cx.not_ready(&file, libc::EPOLLOUT)
            }
            // a local server whose queue is full
            Err(Errno::EAGAIN) if !about.nonblocking.get() => later(),
            other => done(other?),
        }
    }

    pub(super) fn bind(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        let fd = process.files.host(args[0])? as u64;
        let name = address(process, args)?;
        self.become_process(process)?;
        done(self.host.call(libc::SYS_bind, [fd, name.as_ptr() as u64, name.len() as u64, 0, 0, 0])?)
    }

    pub(super) fn name(&mut self, cx: &mut CallContext<'_>) -> Made {
        let (process, args) = (&*cx.process, cx.args());
        let fd = process.files.host(args[0])? as u64;
        let room: u32 = process.bank.get(args[2])?;
        if (room as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let mut name = [0u8; NAME as usize];
        let mut length = NAME as u32;
        let host = [fd, name.as_mut_ptr() as u64, &raw mut length as u64, 0, 0, 0];
        self.host.call(i64::from(cx.call.number), host)?;
        put_name(process, &name, length, (args[1], room))?;
        process.bank.write(args[2], &length.to_le_bytes())?;
        done(0)
    }

    pub(super) fn send(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let file = cx.file(args[0])?;
        let to = cx.number() == nr::sendto;
        let (header, flags) = if to {
            let data = data(args, Use::Read);
            let name_len = if args[4] == 0 { 0 } else { args[5] as u32 };
            if u64::from(name_len) > NAME {
                return Err(Errno::EINVAL);
            }
            (Header { name: args[4], name_len, parts: data, control: 0, control_len: 0 }, args[3])
        } else {
            (Header::read(cx.process, args[1], Use::Read)?, args[2])
        };
        let name = cx
            .process
            .bank
            .bytes_or_none(header.name, if header.name == 0 { 0 } else { header.name_len.into() })?;
        let mut control = outgoing(cx.process, &header)?;
        let mut parts = Parts::new(cx.process, &header.parts)?;
        let total = parts.len();
        parts.cut(cx.progress.done, u64::MAX);
        // what goes beside the data goes with its first byte
        if cx.progress.done > 0 {
            control.clear();
        }
        // a name may be a path; where there is none, it does not matter where the worker is
        if !name.is_empty() {
            self.become_process(cx.process)?;
        }
        let message = parts.message(&name, &control);
        let own = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
        let sent = self
            .host
            .call(libc::SYS_sendmsg, [file.fd as u64, &raw const message as u64, flags | own, 0, 0, 0]);
        match sent {
            Ok(n) => {
                cx.progress.done += n;
                if cx.progress.done < total && n > 0 {
                    return not_now(cx, &file, flags, libc::EPOLLOUT);
                }
                done(cx.progress.done)
            }
            Err(Errno::EAGAIN) => not_now(cx, &file, flags, libc::EPOLLOUT),
            Err(e) if flags & libc::MSG_NOSIGNAL as u64 != 0 => cx.stopped(e),
            Err(e) => cx.write_stopped(e),
        }
    }

    pub(super) fn receive(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let file = cx.file(args[0])?;
        let from = cx.number() == nr::recvfrom;
        let (header, flags) = if from {
            let data = data(args, Use::Write);
            let name_len: u32 = if args[4] == 0 { 0 } else { cx.process.bank.get(args[5])? };
            (Header { name: args[4], name_len, parts: data, control: 0, control_len: 0 }, args[3])
        } else {
            (Header::read(cx.process, args[1], Use::Write)?, args[2])
        };
        if header.name != 0 && (header.name_len as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let mut parts = Parts::new(cx.process, &header.parts)?;
        let total = parts.len();
        parts.cut(cx.progress.done, u64::MAX);
        let mut name = [0u8; NAME as usize];
        let mut control = vec![0u8; header.control_len as usize];
        let mut message = parts.message(&name, &control);
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_control = control.as_mut_ptr().cast();
        // waiting for all of it is done here
        let own = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as u64;
        let host = flags & !(libc::MSG_WAITALL as u64) | own;
        let got = self.host.call(libc::SYS_recvmsg, [file.fd as u64, &raw mut message as u64, host, 0, 0, 0]);
        let n = match got {
            Ok(n) => n,
            Err(Errno::EAGAIN) => return not_now(cx, &file, flags, libc::EPOLLIN),
            Err(e) => return cx.stopped(e),
        };
        cx.progress.done += n;
        control.truncate(message.msg_controllen);
        incoming(cx.process, &mut control, flags & libc::MSG_CMSG_CLOEXEC as u64 != 0)?;
        let all = flags & libc::MSG_WAITALL as u64 != 0 && flags & libc::MSG_PEEK as u64 == 0;
        if all
            && n > 0
            && cx.progress.done < total
            && control.is_empty()
            && message.msg_flags & libc::MSG_TRUNC == 0
            && message.msg_namelen == 0
        {
            return not_now(cx, &file, flags, libc::EPOLLIN);
        }
        put_name(cx.process, &name, message.msg_namelen, (header.name, header.name_len))?;
        if from {
            if header.name != 0 {
                cx.process.bank.write(args[5], &message.msg_namelen.to_le_bytes())?;
            }
        } else {
            cx.process.bank.write(args[1] + 8, &message.msg_namelen.to_le_bytes())?;
            if !control.is_empty() {
                cx.process.bank.write(header.control, &control)?;
            }
            cx.process.bank.write(args[1] + 40, &(control.len() as u64).to_le_bytes())?;
            let flags = message.msg_flags & !libc::MSG_CMSG_CLOEXEC | (flags as i32 & libc::MSG_CMSG_CLOEXEC);
            cx.process.bank.write(args[1] + 48, &flags.to_le_bytes())?;
        }
        done(cx.progress.done)
    }
}

/// Waits as [`CallContext::not_ready`] does, unless the flags of the call say not to wait.
fn not_now(cx: &mut CallContext<'_>, file: &OpenFile, flags: u64, events: i32) -> Made {
    if flags & libc::MSG_DONTWAIT as u64 != 0 {
        return cx.stopped(Errno::EAGAIN);
    }
    cx.not_ready(file, events)
}

/// The data of `sendto` and `recvfrom`; none at all need no place.
fn data(args: &[u64; 6], used: Use) -> Vec<Span> {
    let length = args[2].min(spans::MOVED);
    if length == 0 { Vec::new() } else { vec![Span { address: args[1], length, used, string: false }] }
}

/// An address that a program passes: arguments 1 and 2.
fn address(process: &Process, args: &[u64; 6]) -> Result<Vec<u8>, Errno> {
    let length = u64::try_from(args[2] as i32).ok().filter(|&n| n <= NAME).ok_or(Errno::EINVAL)?;
    process.bank.bytes_or_none(args[1], length)
}

/// Copies a name to where the program wants it, as far as there is room.
fn put_name(
    process: &Process,
    name: &[u8; NAME as usize],
    length: u32,
    (at, room): (u64, u32),
) -> Result<(), Errno> {
    let used = length.min(room).min(NAME as u32);
    if at == 0 || used == 0 { Ok(()) } else { process.bank.write(at, &name[..used as usize]) }
}
