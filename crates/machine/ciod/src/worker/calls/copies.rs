// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one descriptor to another without the program's memory.

use std::os::fd::{AsRawFd as _, RawFd};

use colony_fship::calls::{Call, number as nr};
use colony_fship::{Errno, Request};

use super::rw::ready;
use super::{Made, TURN, World, done, next_turn, write_stopped};
use crate::worker::process::{Description, Kind, Process};
use crate::worker::waits::{Progress, Wait};

impl World {
    pub(super) fn copy(
        &mut self,
        call: &Call,
        process: &mut Process,
        request: &Request,
        progress: &mut Progress,
    ) -> Made {
        let args = &request.args;
        let range = u32::from(call.number) == nr::copy_file_range;
        // sendfile: out, in, offset of in, count; copy_file_range: in, offset, out, offset, count, flags
        let (from, to, total) = if range { (args[0], args[2], args[4]) } else { (args[1], args[0], args[3]) };
        let offsets = if range { [args[1], args[3]] } else { [args[2], 0] };
        let (input, output) = (process.files.get(from)?, process.files.get(to)?);
        if matches!(output.about.kind, Kind::Output(_)) {
            // what it prints goes in order with what others print: programs write it themselves then
            return Err(Errno::EINVAL);
        }
        let (source, from) = (input.about.clone(), input.fd.as_raw_fd());
        let (about, fd) = (output.about.clone(), output.fd.as_raw_fd());
        let lacks_input = || source.kind != Kind::File && !ready(from, libc::EPOLLIN);
        if source.shared && lacks_input() {
            return self.no_input(&source, from, progress);
        }
        if about.shared && !ready(fd, libc::EPOLLOUT) {
            return self.not_ready(&about, fd, progress, Wait::on(fd, libc::EPOLLOUT));
        }
        let mut at = [0u64; 2];
        for (n, &address) in offsets.iter().enumerate().filter(|(_, a)| **a != 0) {
            at[n] = process.bank.get(address)?;
        }
        let old = at;
        let mut place = |n: usize| if offsets[n] == 0 { 0 } else { &raw mut at[n] as u64 };
        // where the output may wait for room: so many there is room for
        let turn = if about.shared { libc::PIPE_BUF as u64 } else { TURN };
        let most = total.saturating_sub(progress.done).min(turn);
        let (number, args) = if range {
            (libc::SYS_copy_file_range, [from as u64, place(0), fd as u64, place(1), most, args[5]])
        } else {
            (libc::SYS_sendfile, [fd as u64, from as u64, place(0), most, 0, 0])
        };
        let copied = self.growing(fd, about.memory.as_ref(), |world| world.host.call(number, args));
        match copied {
            Ok(n) => {
                for (i, &address) in offsets.iter().enumerate().filter(|(_, a)| **a != 0) {
                    if at[i] != old[i] {
                        process.bank.write(address, &at[i].to_le_bytes())?;
                    }
                }
                progress.done += n;
                if n == 0 || progress.done >= total {
                    return done(progress.done);
                }
                next_turn()
            }
            Err(Errno::EAGAIN) if lacks_input() => self.no_input(&source, from, progress),
            Err(Errno::EAGAIN) => self.not_ready(&about, fd, progress, Wait::on(fd, libc::EPOLLOUT)),
            Err(e) => write_stopped(process, progress, e),
        }
    }

    /// Nothing can be read now; of a stream, what there was is all.
    fn no_input(&mut self, source: &Description, from: RawFd, progress: &mut Progress) -> Made {
        if progress.done > 0 {
            return done(progress.done);
        }
        self.not_ready(source, from, progress, Wait::on(from, libc::EPOLLIN))
    }
}
