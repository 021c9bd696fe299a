// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that a compute node refuses, at once and with the right error. Linux would do most of them.

use colony_fship::Class;
use colony_fship::calls::{CALLS, number as n};

use crate::report::{Report, call, close, file, mut_of, of, open, shown};

pub(crate) fn try_all(r: &mut Report) {
    for row in CALLS {
        if let Class::Error(expected) = row.class {
            let result = call(row.number.into(), &[]);
            let right =
                if result == expected.result() { "as the table says" } else { "not as the table says" };
            r.line(row.number.into(), "refused", &format!("{}, {right}", shown(result)));
        }
    }
    for number in [400u32, 511, 1000, 0x7fff_ffff] {
        r.line(number, &format!("no call {number}"), &shown(call(number, &[])));
    }
    file(c"mapped", b"x");
    let fd = open(c"mapped", libc::O_RDONLY);
    r.case(n::mmap, "a file", &[0, 4096, 1, libc::MAP_PRIVATE as u64, fd, 0]);
    close(fd);
    limits(r);
    inheritance(r);
    // a process, not a thread
    r.case(n::clone, "a process", &[libc::SIGCHLD as u64, 0, 0, 0, 0]);
    let process: [u64; 8] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    r.case(n::clone3, "a process", &[of(&process), 64]);
}

/// Limits are what they are: whoever asks for others is told.
fn limits(r: &mut Report) {
    let (files, cores) = (libc::RLIMIT_NOFILE as u64, libc::RLIMIT_CORE as u64);
    let mut before = [0u64; 2];
    call(n::getrlimit, &[files, mut_of(&mut before)]);
    let (lower, more) = ([before[0] / 2; 2], [u64::MAX; 2]);
    r.case(n::setrlimit, "fewer files", &[files, of(&lower)]);
    r.case(n::prlimit64, "cores", &[0, cores, of(&more), 0]);
    r.case(n::setrlimit, "the same", &[files, of(&before)]);
    let mut after = [0u64; 2];
    call(n::getrlimit, &[files, mut_of(&mut after)]);
    r.line(n::getrlimit, "unchanged", &(after == before).to_string());
}

/// Locks that lend their owner a priority: nobody has one to lend.
fn inheritance(r: &mut Report) {
    let word = 0u32;
    for (operation, what) in [(6, "lock"), (7, "unlock"), (8, "try")] {
        r.case(n::futex, &format!("inheritance, {what}"), &[of(&word), operation | 128, 0, 0]);
    }
    // SAFETY: the attributes are made before they are used; the lock is not used.
    let made = unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT);
        let mut lock = libc::PTHREAD_MUTEX_INITIALIZER;
        libc::pthread_mutex_init(&raw mut lock, &raw const attributes)
    };
    r.line(n::futex, "inheritance, a lock of the C library", &(made == libc::ENOTSUP).to_string());
}
