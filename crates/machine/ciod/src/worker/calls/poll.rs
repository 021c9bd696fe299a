// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for descriptors: `poll`, `select`, `epoll`.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use colony_fship::Errno;
use colony_fship::calls::number as nr;
use zerocopy::IntoBytes as _;

use super::context::{CallContext, Timeout};
use super::{Made, Step, World, done};
use crate::worker::process::{DESCRIPTORS, Descriptor, Kind, Process};
use crate::worker::waits::Wait;

/// One descriptor that is asked for.
struct Asked {
    number: u64,
    events: i16,
    found: i16,
}

impl World {
    /// Finds the events of the descriptors that are asked for; returns the number of descriptors that have any.
    fn ask(&mut self, process: &Process, all: &mut [Asked]) -> Result<usize, Errno> {
        let mut fds: Vec<libc::pollfd> = all
            .iter()
            .map(|a| libc::pollfd {
                fd: process.files.host(a.number).unwrap_or(-1),
                events: a.events,
                revents: 0,
            })
            .collect();
        self.host.call(libc::SYS_poll, [fds.as_mut_ptr() as u64, fds.len() as u64, 0, 0, 0, 0])?;
        for (a, fd) in all.iter_mut().zip(&fds) {
            a.found = match process.files.get(a.number) {
                // a negative number is passed over
                Err(_) if (a.number as i32) < 0 => 0,
                Err(_) => libc::POLLNVAL,
                Ok(file) => match file.about.kind {
                    // what it prints goes where the job's output waits for its reader
                    Kind::Output(n) if self.outputs[n].room() > 0 => {
                        fd.revents | a.events & (libc::POLLOUT | libc::POLLWRNORM)
                    }
                    Kind::Output(_) => fd.revents & !(libc::POLLOUT | libc::POLLWRNORM),
                    _ => fd.revents,
                },
            };
        }
        Ok(all.iter().filter(|a| a.found != 0).count())
    }

    /// Goes on when one of them may have something, or the time is over.
    fn until(cx: &mut CallContext<'_>, all: &[Asked], timeout: Timeout) -> Step {
        let mut wait = Wait { until: cx.deadline(timeout), ..Wait::default() };
        for a in all {
            let Ok(file) = cx.process.files.get(a.number) else { continue };
            let mut events = a.events;
            if let Kind::Output(n) = file.about.kind
                && events & libc::POLLOUT != 0
            {
                wait.outputs[n] = true;
                events &= !(libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND);
                if events == 0 {
                    continue;
                }
            }
            wait.on.push((file.fd.as_raw_fd(), i32::from(events)));
        }
        Step::Wait(wait)
    }

    pub(super) fn poll(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let count = args[1] as u32 as u64;
        if count > DESCRIPTORS as u64 {
            return Err(Errno::EINVAL);
        }
        cx.check_memory()?;
        let timeout = if cx.number() == nr::poll {
            u64::try_from(args[2] as i32).ok().map(Duration::from_millis)
        } else {
            time(cx.process, args[2], 1)?
        };
        let bytes = if count == 0 { Vec::new() } else { cx.process.bank.bytes(args[0], count * 8)? };
        let mut all: Vec<Asked> = bytes
            .chunks_exact(8)
            .map(|c| Asked {
                number: i64::from(i32::from_le_bytes([c[0], c[1], c[2], c[3]])) as u64,
                events: i16::from_le_bytes([c[4], c[5]]),
                found: 0,
            })
            .collect();
        let found = self.ask(cx.process, &mut all)?;
        if found == 0 && !cx.is_over(timeout) {
            return Ok(Self::until(cx, &all, timeout));
        }
        for (n, a) in all.iter().enumerate() {
            cx.process.bank.write(args[0] + n as u64 * 8 + 6, &a.found.to_le_bytes())?;
        }
        done(found as u64)
    }

    pub(super) fn select(&mut self, cx: &mut CallContext<'_>) -> Made {
        /// Events that make a descriptor readable, writable, exceptional.
        const ASKED: [i16; 3] = [
            libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
            libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
            libc::POLLPRI,
        ];
        const FOUND: [i16; 3] =
            [ASKED[0] | libc::POLLHUP | libc::POLLERR, ASKED[1] | libc::POLLERR, libc::POLLPRI];
        let args = cx.args();
        let count = usize::try_from(args[0] as i32).map_err(|_| Errno::EINVAL)?.min(DESCRIPTORS);
        cx.check_memory()?;
        let unit = if cx.number() == nr::select { 1000 } else { 1 };
        let timeout = time(cx.process, args[4], unit)?;
        let words = count.div_ceil(64);
        let mut sets = [vec![0u64; words], vec![0; words], vec![0; words]];
        for (set, &at) in sets.iter_mut().zip(&args[1..4]).filter(|(_, at)| **at != 0 && words > 0) {
            colony_fship::spans::Memory::read(&cx.process.bank, at, set.as_mut_bytes())?;
        }
        let has = |set: &[u64], n: usize| set[n / 64] >> (n % 64) & 1 != 0;
        let mut all = Vec::new();
        for n in 0..count {
            let events = (0..3).filter(|&s| has(&sets[s], n)).fold(0, |e, s| e | ASKED[s]);
            if events != 0 {
                cx.process.files.get(n as u64)?;
                all.push(Asked { number: n as u64, events, found: 0 });
            }
        }
        self.ask(cx.process, &mut all)?;
        let mut results = [vec![0u64; words], vec![0; words], vec![0; words]];
        let mut found = 0;
        for a in &all {
            let n = a.number as usize;
            for s in (0..3).filter(|&s| has(&sets[s], n) && a.found & FOUND[s] != 0) {
                results[s][n / 64] |= 1 << (n % 64);
                found += 1;
            }
        }
        if found == 0 && !cx.is_over(timeout) {
            return Ok(Self::until(cx, &all, timeout));
        }
        for (set, &at) in results.iter().zip(&args[1..4]).filter(|(_, at)| **at != 0 && words > 0) {
            cx.process.bank.write(at, set.as_bytes())?;
        }
        // Linux tells how much of the time is left
        if args[4] != 0 {
            let left = cx
                .progress
                .deadline
                .map_or(timeout.unwrap_or_default(), |at| at.saturating_duration_since(Instant::now()));
            let left = [left.as_secs(), u64::from(left.subsec_nanos()) / unit];
            cx.process.bank.write(args[4], left.as_bytes())?;
        }
        done(found)
    }

    pub(super) fn epoll_create(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let sized = cx.number() == nr::epoll_create;
        if sized && args[0] as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        cx.process.files.free(0)?;
        let flags = if sized { 0 } else { args[0] };
        let fd =
            self.host.open(libc::SYS_epoll_create1, [flags | libc::EPOLL_CLOEXEC as u64, 0, 0, 0, 0, 0])?;
        let closes = flags & libc::EPOLL_CLOEXEC as u64 != 0;
        done(cx.process.files.insert(0, Descriptor::new(fd, Kind::Epoll, false, closes))?)
    }

    pub(super) fn epoll_ctl(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        let mut event = [0u8; 12];
        if args[1] as i32 != libc::EPOLL_CTL_DEL {
            event = process.bank.get(args[3])?;
        }
        let (epoll, file) = (process.files.host(args[0])?, process.files.host(args[2])?);
        let args = [epoll as u64, args[1], file as u64, event.as_mut_ptr() as u64, 0, 0];
        done(self.host.call(libc::SYS_epoll_ctl, args)?)
    }

    pub(super) fn epoll_wait(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let most = args[2] as i32;
        if most <= 0 || most > i32::MAX / 12 {
            return Err(Errno::EINVAL);
        }
        let fd = cx.process.files.host(args[0])?;
        cx.check_memory()?;
        // so many fit in any memory, and more than there are descriptors never come
        let most = (most as u64).min(DESCRIPTORS as u64);
        let mut events = vec![0u8; most as usize * 12];
        let timeout = u64::try_from(args[3] as i32).ok().map(Duration::from_millis);
        let count =
            self.host.call(libc::SYS_epoll_wait, [fd as u64, events.as_mut_ptr() as u64, most, 0, 0, 0])?;
        if count == 0 && !cx.is_over(timeout) {
            let until = cx.deadline(timeout);
            return Ok(Step::Wait(Wait { until, ..Wait::on(fd, libc::EPOLLIN) }));
        }
        let used = (count as usize * 12).min(events.len());
        cx.process.bank.write(args[1], &events[..used])?;
        done(count)
    }
}

/// A `timespec` (unit 1 ns) or `timeval` (unit 1000 ns); null is for ever.
fn time(process: &Process, address: u64, unit: u64) -> Result<Timeout, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let [seconds, part]: [u64; 2] = process.bank.get(address)?;
    // `select` carries what is more than a second of microseconds; nothing may be negative
    let carries = unit == 1000;
    if (seconds as i64) < 0 || (part as i64) < 0 || (!carries && part >= 1_000_000_000) {
        return Err(Errno::EINVAL);
    }
    let part = Duration::from_nanos(part.saturating_mul(unit));
    Ok(Some(Duration::from_secs(seconds).saturating_add(part)))
}
