//! What a compute node refuses, at once and with the right error. Linux would do most of it.

use colony_fship::Class;
use colony_fship::calls::{CALLS, number as n};

use crate::report::{Report, call, close, file, open, shown};

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
    // a process, not a thread
    r.case(n::clone, "a process", &[libc::SIGCHLD as u64, 0, 0, 0, 0]);
    let process: [u64; 8] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    r.case(n::clone3, "a process", &[crate::report::of(&process), 64]);
}
