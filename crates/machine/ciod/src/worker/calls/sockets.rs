// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client sockets (SC06 paper, 4.1): to the operating system they never block; a program that wants to wait does so
//! in the queue.

use std::os::fd::AsRawFd as _;

use colony_fship::calls::{Call, number as nr};
use colony_fship::spans::{self, Span, Use};
use colony_fship::{Errno, Request};

use super::messages::{Header, NAME, incoming, outgoing};
use super::parts::Parts;
use super::rw::ready;
use super::{Made, World, done, later, stopped, write_stopped};
use crate::worker::process::{Description, Descriptor, Kind, Process};
use crate::worker::waits::{Progress, Wait};

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

    pub(super) fn socketpair(&mut self, call: &Call, process: &mut Process, request: &Request) -> Made {
        spans::each(call, request, &process.bank, &mut |_| Ok(()))?;
        let args = &request.args;
        let mut fds = [0i32; 2];
        let host = [args[0], args[1] | OWN, args[2], fds.as_mut_ptr() as u64, 0, 0];
        self.host.call(libc::SYS_socketpair, host)?;
        // the flags have the values of those of `open`
        self.two(process, fds, Kind::Socket, args[1] & OWN, args[3])
    }

    pub(super) fn connect(
        &mut self,
        process: &mut Process,
        args: &[u64; 6],
        progress: &mut Progress,
    ) -> Made {
        let file = process.files.get(args[0])?;
        let (fd, about) = (file.fd.as_raw_fd(), file.about.clone());
        let wait = || Wait::on(fd, libc::EPOLLOUT);
        if progress.again && about.connecting.get() {
            if !ready(fd, libc::POLLOUT.into()) {
                return self.not_ready(&about, fd, progress, wait());
            }
            about.connecting.set(false);
            let (mut error, mut length) = (0u32, 4u32);
            let (place, at) = (&raw mut error as u64, &raw mut length as u64);
            let asked = [fd as u64, libc::SOL_SOCKET as u64, libc::SO_ERROR as u64, place, at, 0];
            self.host.call(libc::SYS_getsockopt, asked)?;
            return if error == 0 { done(0) } else { Err(Errno(error as u16)) };
        }
        let name = address(process, args)?;
        self.become_process(process)?;
        match self.host.call(libc::SYS_connect, [fd as u64, name.as_ptr() as u64, name.len() as u64, 0, 0, 0])
        {
            Err(EINPROGRESS) if !about.nonblocking.get() => {
                about.connecting.set(true);
                self.not_ready(&about, fd, progress, wait())
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

    pub(super) fn name(&mut self, call: &Call, process: &mut Process, args: &[u64; 6]) -> Made {
        let fd = process.files.host(args[0])? as u64;
        let room: u32 = process.bank.get(args[2])?;
        if (room as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let mut name = [0u8; NAME as usize];
        let mut length = NAME as u32;
        let host = [fd, name.as_mut_ptr() as u64, &raw mut length as u64, 0, 0, 0];
        self.host.call(i64::from(call.number), host)?;
        put_name(process, &name, length, (args[1], room))?;
        process.bank.write(args[2], &length.to_le_bytes())?;
        done(0)
    }

    pub(super) fn send(
        &mut self,
        call: &Call,
        process: &mut Process,
        request: &Request,
        progress: &mut Progress,
    ) -> Made {
        let args = &request.args;
        let file = process.files.get(args[0])?;
        let (fd, about) = (file.fd.as_raw_fd(), file.about.clone());
        let to = u32::from(call.number) == nr::sendto;
        let (header, flags) = if to {
            let data = data(args, Use::Read);
            let name_len = if args[4] == 0 { 0 } else { args[5] as u32 };
            if u64::from(name_len) > NAME {
                return Err(Errno::EINVAL);
            }
            (Header { name: args[4], name_len, parts: data, control: 0, control_len: 0 }, args[3])
        } else {
            (Header::read(process, args[1], Use::Read)?, args[2])
        };
        let name = process
            .bank
            .bytes_or_none(header.name, if header.name == 0 { 0 } else { header.name_len.into() })?;
        let mut control = outgoing(process, &header)?;
        let mut parts = Parts::new(process, &header.parts)?;
        let total = parts.len();
        parts.cut(progress.done, u64::MAX);
        // what goes beside the data goes with its first byte
        if progress.done > 0 {
            control.clear();
        }
        // a name may be a path; where there is none, it does not matter where the worker is
        if !name.is_empty() {
            self.become_process(process)?;
        }
        let message = parts.message(&name, &control);
        let own = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
        let sent =
            self.host.call(libc::SYS_sendmsg, [fd as u64, &raw const message as u64, flags | own, 0, 0, 0]);
        match sent {
            Ok(n) => {
                progress.done += n;
                if progress.done < total && n > 0 {
                    return self.not_now(&about, fd, progress, flags, libc::EPOLLOUT);
                }
                done(progress.done)
            }
            Err(Errno::EAGAIN) => self.not_now(&about, fd, progress, flags, libc::EPOLLOUT),
            Err(e) if flags & libc::MSG_NOSIGNAL as u64 != 0 => stopped(progress, e),
            Err(e) => write_stopped(process, progress, e),
        }
    }

    pub(super) fn receive(
        &mut self,
        call: &Call,
        process: &mut Process,
        request: &Request,
        progress: &mut Progress,
    ) -> Made {
        let args = &request.args;
        let file = process.files.get(args[0])?;
        let (fd, about) = (file.fd.as_raw_fd(), file.about.clone());
        let from = u32::from(call.number) == nr::recvfrom;
        let (header, flags) = if from {
            let data = data(args, Use::Write);
            let name_len: u32 = if args[4] == 0 { 0 } else { process.bank.get(args[5])? };
            (Header { name: args[4], name_len, parts: data, control: 0, control_len: 0 }, args[3])
        } else {
            (Header::read(process, args[1], Use::Write)?, args[2])
        };
        if header.name != 0 && (header.name_len as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let mut parts = Parts::new(process, &header.parts)?;
        let total = parts.len();
        parts.cut(progress.done, u64::MAX);
        let mut name = [0u8; NAME as usize];
        let mut control = vec![0u8; header.control_len as usize];
        let mut message = parts.message(&name, &control);
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_control = control.as_mut_ptr().cast();
        // waiting for all of it is done here
        let own = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as u64;
        let host = flags & !(libc::MSG_WAITALL as u64) | own;
        let got = self.host.call(libc::SYS_recvmsg, [fd as u64, &raw mut message as u64, host, 0, 0, 0]);
        let n = match got {
            Ok(n) => n,
            Err(Errno::EAGAIN) => return self.not_now(&about, fd, progress, flags, libc::EPOLLIN),
            Err(e) => return stopped(progress, e),
        };
        progress.done += n;
        control.truncate(message.msg_controllen);
        incoming(process, &mut control, flags & libc::MSG_CMSG_CLOEXEC as u64 != 0)?;
        let all = flags & libc::MSG_WAITALL as u64 != 0 && flags & libc::MSG_PEEK as u64 == 0;
        if all
            && n > 0
            && progress.done < total
            && control.is_empty()
            && message.msg_flags & libc::MSG_TRUNC == 0
            && message.msg_namelen == 0
        {
            return self.not_now(&about, fd, progress, flags, libc::EPOLLIN);
        }
        put_name(process, &name, message.msg_namelen, (header.name, header.name_len))?;
        if from {
            if header.name != 0 {
                process.bank.write(args[5], &message.msg_namelen.to_le_bytes())?;
            }
        } else {
            process.bank.write(args[1] + 8, &message.msg_namelen.to_le_bytes())?;
            if !control.is_empty() {
                process.bank.write(header.control, &control)?;
            }
            process.bank.write(args[1] + 40, &(control.len() as u64).to_le_bytes())?;
            let flags = message.msg_flags & !libc::MSG_CMSG_CLOEXEC | (flags as i32 & libc::MSG_CMSG_CLOEXEC);
            process.bank.write(args[1] + 48, &flags.to_le_bytes())?;
        }
        done(progress.done)
    }

    /// Nothing can be moved now: the flags of the call may say not to wait, too.
    fn not_now(
        &mut self,
        about: &Description,
        fd: i32,
        progress: &mut Progress,
        flags: u64,
        events: i32,
    ) -> Made {
        if flags & libc::MSG_DONTWAIT as u64 != 0 {
            return stopped(progress, Errno::EAGAIN);
        }
        self.not_ready(about, fd, progress, Wait::on(fd, events))
    }
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
