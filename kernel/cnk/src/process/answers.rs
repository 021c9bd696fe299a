// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that the entry code gives by itself, without a way through the kernel: `getpid` and the like.

use colony_fship::calls::number;

use crate::machine::area::area;
use crate::process;

/// Sets the quick answers of CPU `n`, where it begins a process. That of `gettid` comes with each thread.
pub fn prepare(n: usize) {
    let block = process::on(n).block;
    for (number, value) in [
        (number::getpid, block.pid),
        (number::getppid, block.ppid),
        (number::getpgrp, block.pid),
        (number::getuid, block.uid),
        (number::geteuid, block.uid),
        (number::getgid, block.gid),
        (number::getegid, block.gid),
    ] {
        area(n).answer(number, value);
    }
}
