// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: their numbers, flags, pipes.

use colony_fship::calls::number as n;

use crate::report::{NO_FD, NOWHERE, Report, call, close, file, mut_of, of, open, text};

pub(crate) fn try_all(r: &mut Report) {
    numbers(r);
    flags(r);
    pipes(r);
    counters(r);
    terminals(r);
}

fn numbers(r: &mut Report) {
    file(c"numbers", b"abcdef");
    let fd = open(c"numbers", libc::O_RDONLY);
    r.line(n::open, "lowest free", &fd.to_string());
    r.case(n::dup, "next", &[fd]);
    r.case(n::dup, "not open", &[NO_FD]);
    r.case(n::dup2, "there", &[fd, 20]);
    r.case(n::dup2, "itself", &[fd, fd]);
    r.case(n::dup2, "not open", &[NO_FD, 20]);
    r.case(n::dup2, "too large", &[fd, 1 << 30]);
    r.case(n::dup3, "there", &[fd, 21, libc::O_CLOEXEC as u64]);
    r.case(n::dup3, "itself", &[fd, fd, 0]);
    r.case(n::dup3, "flags", &[fd, 22, 1]);
    let mut byte = [0u8; 2];
    r.case(n::read, "moves the others", &[fd, mut_of(&mut byte), 2]);
    r.case(n::lseek, "shared place", &[20, 0, 1]);
    r.case(n::fcntl, "F_DUPFD", &[fd, libc::F_DUPFD as u64, 30]);
    r.case(n::fcntl, "F_DUPFD_CLOEXEC", &[fd, libc::F_DUPFD_CLOEXEC as u64, 30]);
    r.case(n::close_range, "those", &[20, 31, 0]);
    r.case(n::close_range, "backwards", &[31, 20, 0]);
    r.case(n::fcntl, "closed", &[20, libc::F_GETFD as u64]);
    close(fd + 1);
    close(fd);
    let fd = open(c"numbers", libc::O_RDONLY);
    r.line(n::open, "lowest free again", &fd.to_string());
    close(fd);
}

fn flags(r: &mut Report) {
    let fd = open(c"numbers", libc::O_RDWR | libc::O_CLOEXEC);
    r.case(n::fcntl, "F_GETFD", &[fd, libc::F_GETFD as u64]);
    r.case(n::fcntl, "F_SETFD", &[fd, libc::F_SETFD as u64, 0]);
    r.case(n::fcntl, "F_GETFD", &[fd, libc::F_GETFD as u64]);
    let shown = call(n::fcntl, &[fd, libc::F_GETFL as u64])
        & i64::from(libc::O_ACCMODE | libc::O_APPEND | libc::O_NONBLOCK);
    r.line(n::fcntl, "F_GETFL", &shown.to_string());
    r.case(n::fcntl, "F_SETFL", &[fd, libc::F_SETFL as u64, libc::O_APPEND as u64]);
    let shown = call(n::fcntl, &[fd, libc::F_GETFL as u64])
        & i64::from(libc::O_ACCMODE | libc::O_APPEND | libc::O_NONBLOCK);
    r.line(n::fcntl, "F_GETFL then", &shown.to_string());
    r.case(n::fcntl, "not open", &[NO_FD, libc::F_GETFL as u64]);
    r.case(n::fcntl, "command", &[fd, 9999]);
    // type and whence, start, length, process
    let mut lock: [u64; 4] = [libc::F_WRLCK as u64, 0, 10, 0];
    r.case(n::fcntl, "F_SETLK", &[fd, libc::F_SETLK as u64, of(&lock)]);
    r.case(n::fcntl, "F_GETLK", &[fd, libc::F_GETLK as u64, mut_of(&mut lock)]);
    r.line(n::fcntl, "F_GETLK mine", &(lock[0] as u16).to_string());
    r.case(n::fcntl, "F_SETLK nowhere", &[fd, libc::F_SETLK as u64, NOWHERE]);
    close(fd);
}

fn pipes(r: &mut Report) {
    for number in [n::pipe, n::pipe2] {
        let mut ends = [0u32; 2];
        r.case(number, "new", &[mut_of(&mut ends), 0]);
        r.line(number, "numbers", &format!("{ends:?}"));
        let [out, into] = ends.map(u64::from);
        let mut bytes = [0u8; 16];
        r.case(n::write, "pipe", &[into, of(b"through"), 7]);
        r.case(n::read, "pipe", &[out, mut_of(&mut bytes), 16]);
        r.line(n::read, "pipe", &text(&bytes));
        r.case(n::lseek, "pipe", &[out, 0, 0]);
        close(into);
        r.case(n::read, "closed pipe", &[out, mut_of(&mut bytes), 16]);
        close(out);
    }
    r.case(n::pipe, "nowhere", &[NOWHERE]);
    r.case(n::pipe2, "flags", &[mut_of(&mut [0u32; 2]), 77]);
}

/// Counters that a thread waits for.
fn counters(r: &mut Report) {
    let mut count = 0u64;
    for number in [n::eventfd, n::eventfd2] {
        let fd = r.case(number, "new", &[3, 0]) as u64;
        r.case(n::read, "counter", &[fd, mut_of(&mut count), 8]);
        r.line(number, "count", &count.to_string());
        r.case(n::write, "counter", &[fd, of(&5u64), 8]);
        r.case(n::write, "counter, too much", &[fd, of(&u64::MAX), 8]);
        r.case(n::write, "counter, too short", &[fd, of(&5u64), 4]);
        let mut polled: [u32; 2] = [fd as u32, libc::POLLIN as u32];
        r.case(n::poll, "counter", &[mut_of(&mut polled), 1, 0]);
        r.case(n::read, "counter again", &[fd, mut_of(&mut count), 8]);
        r.line(number, "sum", &count.to_string());
        close(fd);
    }
    let flags = (libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE) as u64;
    let fd = r.case(n::eventfd2, "semaphore", &[2, flags]) as u64;
    for round in ["first", "second", "third"] {
        r.case(n::read, &format!("semaphore, {round}"), &[fd, mut_of(&mut count), 8]);
    }
    close(fd);
    r.case(n::eventfd2, "flags", &[0, 77]);
    // a write by another thread ends a read that waits
    let fd = call(n::eventfd2, &[0, 0]) as u64;
    let other = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        call(n::write, &[fd, of(&7u64), 8])
    });
    r.case(n::read, "counter of another thread", &[fd, mut_of(&mut count), 8]);
    r.line(n::eventfd2, "from another thread", &format!("{count} {}", other.join().unwrap_or(0)));
    close(fd);
}

fn terminals(r: &mut Report) {
    let fd = open(c"numbers", libc::O_RDONLY);
    let mut termios = [0u8; 64];
    r.case(n::ioctl, "TCGETS on a file", &[fd, 0x5401, mut_of(&mut termios)]);
    r.case(n::ioctl, "TIOCGWINSZ on a file", &[fd, 0x5413, mut_of(&mut termios)]);
    let mut left = 0u32;
    r.case(n::ioctl, "FIONREAD", &[fd, 0x541b, mut_of(&mut left)]);
    r.line(n::ioctl, "FIONREAD", &left.to_string());
    r.case(n::ioctl, "FIOCLEX", &[fd, 0x5451]);
    r.case(n::fcntl, "then", &[fd, libc::F_GETFD as u64]);
    r.case(n::ioctl, "not open", &[NO_FD, 0x5401, mut_of(&mut termios)]);
    close(fd);
}
