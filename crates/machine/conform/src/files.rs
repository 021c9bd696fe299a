// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of files.

use colony_fship::calls::number as n;

use crate::report::{HERE, NO_FD, NOWHERE, Report, close, file, mut_of, of, open, text};

pub(crate) fn try_all(r: &mut Report) {
    reads_and_writes(r);
    vectors(r);
    lengths(r);
    between_files(r);
}

fn reads_and_writes(r: &mut Report) {
    let name = c"contents";
    let path = name.as_ptr() as u64;
    let fd =
        r.case(n::open, "new", &[path, (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as u64, 0o640]) as u64;
    r.case(n::open, "again", &[path, (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as u64, 0o640]);
    r.case(n::open, "missing", &[c"missing".as_ptr() as u64, 0, 0]);
    r.case(n::open, "nowhere", &[NOWHERE, 0, 0]);
    r.case(n::open, "beyond", &[0xffff_8000_0000_0000, 0, 0]);
    r.case(n::write, "some", &[fd, of(b"0123456789"), 10]);
    r.case(n::write, "nothing", &[fd, NOWHERE, 0]);
    r.case(n::write, "nowhere", &[fd, NOWHERE, 4]);
    r.case(n::write, "not open", &[NO_FD, of(b"x"), 1]);
    let mut buffer = [0u8; 16];
    r.case(n::lseek, "start", &[fd, 0, 0]);
    r.case(n::read, "more than there is", &[fd, mut_of(&mut buffer), 16]);
    r.line(n::read, "bytes", &text(&buffer));
    r.case(n::read, "end", &[fd, mut_of(&mut buffer), 16]);
    r.case(n::read, "nowhere, at the end", &[fd, NOWHERE, 1]);
    r.case(n::read, "not open", &[NO_FD, mut_of(&mut buffer), 1]);
    // a program's own text cannot be written, by nobody
    r.case(n::lseek, "start", &[fd, 0, 0]);
    r.case(n::read, "nowhere", &[fd, NOWHERE, 1]);
    r.case(n::read, "into text", &[fd, try_all as *const () as u64, 1]);
    r.case(n::read, "beyond", &[fd, 0x7fff_ffff_0000_0000, 8]);
    for (what, offset, whence) in
        [("end", 0, 2), ("beyond the end", 90, 0), ("before", u64::MAX, 0), ("whence", 0, 9)]
    {
        r.case(n::lseek, what, &[fd, offset, whence]);
    }
    let mut buffer = [0u8; 16];
    r.case(n::pread64, "middle", &[fd, mut_of(&mut buffer), 4, 3]);
    r.line(n::pread64, "bytes", &text(&buffer));
    r.case(n::pread64, "before", &[fd, mut_of(&mut buffer), 4, u64::MAX]);
    r.case(n::pwrite64, "middle", &[fd, of(b"ab"), 2, 4]);
    r.case(n::pwrite64, "not open", &[NO_FD, of(b"ab"), 2, 4]);
    r.case(n::fsync, "file", &[fd]);
    r.case(n::fdatasync, "file", &[fd]);
    r.case(n::fsync, "not open", &[NO_FD]);
    r.case(n::fdatasync, "not open", &[NO_FD]);
    r.case(n::syncfs, "file", &[fd]);
    r.case(n::sync, "all", &[]);
    r.case(n::sync_file_range, "all", &[fd, 0, 0, 0]);
    r.case(n::fadvise64, "all", &[fd, 0, 0, 0]);
    r.case(n::fadvise64, "advice", &[fd, 0, 0, 99]);
    r.case(n::readahead, "some", &[fd, 0, 4096]);
    r.case(n::close, "open", &[fd]);
    r.case(n::close, "closed", &[fd]);
    let fd = open(name, libc::O_RDONLY);
    r.case(n::write, "read only", &[fd, of(b"x"), 1]);
    close(fd);
    let fd = open(name, libc::O_WRONLY | libc::O_APPEND);
    r.case(n::read, "write only", &[fd, mut_of(&mut buffer), 1]);
    r.case(n::write, "append", &[fd, of(b"end"), 3]);
    r.case(n::lseek, "where", &[fd, 0, 1]);
    close(fd);
    let fd = r.case(n::creat, "again", &[path, 0o600]) as u64;
    r.case(n::lseek, "empty", &[fd, 0, 2]);
    close(fd);
    let fd = r.case(n::openat, "here", &[HERE, path, libc::O_RDONLY as u64, 0]) as u64;
    r.case(n::openat, "on a file", &[fd, path, 0, 0]);
    r.case(n::openat, "not open", &[NO_FD, path, 0, 0]);
    close(fd);
    let how: [u64; 3] = [libc::O_RDONLY as u64, 0, 0];
    let fd = r.case(n::openat2, "here", &[HERE, path, of(&how), 24]) as u64;
    close(fd);
    r.case(n::openat2, "size", &[HERE, path, of(&how), 8]);
}

fn vectors(r: &mut Report) {
    let fd = open(c"vectors", libc::O_RDWR | libc::O_CREAT);
    let parts: [u64; 6] = [of(b"one,"), 4, 0, 0, of(b"two"), 3];
    r.case(n::writev, "three", &[fd, of(&parts), 3]);
    r.case(n::writev, "none", &[fd, of(&parts), 0]);
    r.case(n::writev, "too many", &[fd, of(&parts), 1025]);
    r.case(n::writev, "nowhere", &[fd, NOWHERE, 1]);
    r.case(n::pwritev, "at", &[fd, of(&parts), 3, 7, 0]);
    r.case(n::pwritev2, "at", &[fd, of(&parts), 3, 14, 0, 0]);
    let (mut a, mut b) = ([0u8; 3], [0u8; 30]);
    let parts: [u64; 4] = [mut_of(&mut a), 3, mut_of(&mut b), 30];
    r.case(n::lseek, "start", &[fd, 0, 0]);
    r.case(n::readv, "two", &[fd, of(&parts), 2]);
    r.line(n::readv, "bytes", &format!("{} {}", text(&a), text(&b)));
    r.case(n::preadv, "at", &[fd, of(&parts), 2, 7, 0]);
    r.line(n::preadv, "bytes", &format!("{} {}", text(&a), text(&b)));
    r.case(n::preadv2, "at", &[fd, of(&parts), 2, 14, 0, 0]);
    r.case(n::preadv, "not open", &[NO_FD, of(&parts), 2, 7, 0]);
    let negative: [u64; 2] = [mut_of(&mut a), u64::MAX];
    r.case(n::readv, "length", &[fd, of(&negative), 1]);
    close(fd);
}

fn lengths(r: &mut Report) {
    file(c"long", b"0123456789");
    let path = c"long".as_ptr() as u64;
    r.case(n::truncate, "shorter", &[path, 4]);
    r.case(n::truncate, "negative", &[path, u64::MAX]);
    r.case(n::truncate, "missing", &[c"missing".as_ptr() as u64, 4]);
    let fd = open(c"long", libc::O_RDWR);
    r.case(n::lseek, "end", &[fd, 0, 2]);
    r.case(n::ftruncate, "longer", &[fd, 100]);
    r.case(n::lseek, "end", &[fd, 0, 2]);
    r.case(n::ftruncate, "not open", &[NO_FD, 100]);
    r.case(n::fallocate, "longer", &[fd, 0, 0, 5000]);
    r.case(n::fallocate, "length", &[fd, 0, 0, 0]);
    r.case(n::lseek, "end", &[fd, 0, 2]);
    r.case(n::flock, "exclusive", &[fd, libc::LOCK_EX as u64]);
    let other = open(c"long", libc::O_RDWR);
    r.case(n::flock, "held", &[other, (libc::LOCK_EX | libc::LOCK_NB) as u64]);
    r.case(n::flock, "release", &[fd, libc::LOCK_UN as u64]);
    r.case(n::flock, "free", &[other, (libc::LOCK_EX | libc::LOCK_NB) as u64]);
    r.case(n::flock, "operation", &[fd, 77]);
    close(other);
    close(fd);
}

fn between_files(r: &mut Report) {
    file(c"from", b"what is copied");
    let (from, to) = (open(c"from", libc::O_RDONLY), open(c"to", libc::O_RDWR | libc::O_CREAT));
    r.case(n::sendfile, "all", &[to, from, 0, 100]);
    let mut offset = 5u64;
    r.case(n::sendfile, "at", &[to, from, mut_of(&mut offset), 2]);
    r.line(n::sendfile, "offset", &offset.to_string());
    r.case(n::sendfile, "not open", &[NO_FD, from, 0, 2]);
    let (mut from_at, mut to_at) = (0u64, 100u64);
    r.case(n::copy_file_range, "at", &[from, mut_of(&mut from_at), to, mut_of(&mut to_at), 4, 0]);
    r.line(n::copy_file_range, "offsets", &format!("{from_at} {to_at}"));
    r.case(n::lseek, "end", &[to, 0, 2]);
    close(from);
    close(to);
    let fd = r.done(n::memfd_create, "file", &[c"name".as_ptr() as u64, 0]) as u64;
    r.case(n::write, "memory", &[fd, of(b"x"), 1]);
    close(fd);
}
