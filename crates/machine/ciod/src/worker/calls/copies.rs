// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one descriptor to another without the program's memory.

use colony_fship::Errno;
use colony_fship::calls::number as nr;

use super::context::{CallContext, OpenFile};
use super::rw::ready;
use super::{Made, TURN, World, done, next_turn};
use crate::worker::process::Kind;

impl World {
    pub(super) fn copy(&mut self, cx: &mut CallContext<'_>) -> Made {
        let args = cx.args();
        let range = cx.number() == nr::copy_file_range;
        // sendfile: out, in, offset of in, count; copy_file_range: in, offset, out, offset, count, flags
        let (from, to, total) = if range { (args[0], args[2], args[4]) } else { (args[1], args[0], args[3]) };
        let offsets = if range { [args[1], args[3]] } else { [args[2], 0] };
        let (input, output) = (cx.file(from)?, cx.file(to)?);
        if matches!(output.about.kind, Kind::Output(_)) {
            // what it prints goes in order with what others print: programs write it themselves then
            return Err(Errno::EINVAL);
        }
        let lacks_input = || input.about.kind != Kind::File && !ready(input.fd, libc::EPOLLIN);
        if input.about.shared && lacks_input() {
            return no_input(cx, &input);
        }
        if output.about.shared && !ready(output.fd, libc::EPOLLOUT) {
            return cx.not_ready(&output, libc::EPOLLOUT);
        }
        let mut at = [0u64; 2];
        for (n, &address) in offsets.iter().enumerate().filter(|(_, a)| **a != 0) {
            at[n] = cx.process.bank.get(address)?;
        }
        let old = at;
        let mut place = |n: usize| if offsets[n] == 0 { 0 } else { &raw mut at[n] as u64 };
        // where the output may wait for room: so many there is room for
        let turn = if output.about.shared { libc::PIPE_BUF as u64 } else { TURN };
        let most = total.saturating_sub(cx.progress.done).min(turn);
        let (from, to) = (input.fd as u64, output.fd as u64);
        let (number, args) = if range {
            (libc::SYS_copy_file_range, [from, place(0), to, place(1), most, args[5]])
        } else {
            (libc::SYS_sendfile, [to, from, place(0), most, 0, 0])
        };
        let copied =
            self.growing(output.fd, output.about.memory.as_ref(), |world| world.host.call(number, args));
        match copied {
            Ok(n) => {
                for (i, &address) in offsets.iter().enumerate().filter(|(_, a)| **a != 0) {
                    if at[i] != old[i] {
                        cx.process.bank.write(address, &at[i].to_le_bytes())?;
                    }
                }
                cx.progress.done += n;
                if n == 0 || cx.progress.done >= total {
                    return done(cx.progress.done);
                }
                next_turn()
            }
            Err(Errno::EAGAIN) if lacks_input() => no_input(cx, &input),
            Err(Errno::EAGAIN) => cx.not_ready(&output, libc::EPOLLOUT),
            Err(e) => cx.write_stopped(e),
        }
    }
}

/// Ends or delays a copy whose source has nothing now; of a stream, all that was there has been copied.
fn no_input(cx: &mut CallContext<'_>, source: &OpenFile) -> Made {
    if cx.progress.done > 0 {
        return done(cx.progress.done);
    }
    cx.not_ready(source, libc::EPOLLIN)
}
