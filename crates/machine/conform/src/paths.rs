// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and what is known of files.

use colony_fship::calls::number as n;

use crate::report::{HERE, NO_FD, NOWHERE, Report, close, file, mut_of, of, open, text};

/// The fields of a `struct stat` that do not depend on time and machine.
fn stat_text(words: &[u64; 18]) -> String {
    let (mode, uid) = (words[3] as u32, (words[3] >> 32) as u32);
    format!("links {} mode {mode:o} uid {uid} gid {} size {}", words[2], words[4] as u32, words[6])
}

pub(crate) fn try_all(r: &mut Report) {
    stats(r);
    names(r);
    rights(r);
    times(r);
}

fn stats(r: &mut Report) {
    file(c"known", b"12345");
    let (path, missing) = (c"known".as_ptr() as u64, c"missing".as_ptr() as u64);
    let fd = open(c"known", libc::O_RDONLY);
    let mut s = [0u64; 18];
    let at = mut_of(&mut s);
    r.case(n::symlink, "new", &[path, c"link".as_ptr() as u64]);
    for (number, what, args) in [
        (n::stat, "file", vec![path, at]),
        (n::fstat, "file", vec![fd, at]),
        (n::lstat, "link", vec![c"link".as_ptr() as u64, at]),
        (n::stat, "through a link", vec![c"link".as_ptr() as u64, at]),
        (n::newfstatat, "file", vec![HERE, path, at, 0]),
        (n::newfstatat, "descriptor", vec![fd, c"".as_ptr() as u64, at, libc::AT_EMPTY_PATH as u64]),
        (n::newfstatat, "link", vec![HERE, c"link".as_ptr() as u64, at, libc::AT_SYMLINK_NOFOLLOW as u64]),
    ] {
        r.case(number, what, &args);
        // the times are what is left out; a link's size is its length
        r.line(number, what, &stat_text(&s));
    }
    r.case(n::stat, "missing", &[missing, at]);
    r.case(n::stat, "nowhere", &[path, NOWHERE]);
    r.case(n::stat, "empty", &[c"".as_ptr() as u64, at]);
    r.case(n::lstat, "missing", &[missing, at]);
    r.case(n::fstat, "not open", &[NO_FD, at]);
    r.case(n::newfstatat, "flags", &[HERE, path, at, 0x4000_0000]);
    let mut x = [0u32; 64];
    r.case(n::statx, "file", &[HERE, path, 0, 0x7ff, mut_of(&mut x)]);
    r.line(n::statx, "file", &format!("links {} mode {:o} size {}", x[4], x[7] & 0xffff, x[10]));
    r.case(n::statx, "missing", &[HERE, missing, 0, 0x7ff, mut_of(&mut x)]);
    let mut f = [0u64; 15];
    r.case(n::statfs, "here", &[c".".as_ptr() as u64, mut_of(&mut f)]);
    r.line(n::statfs, "block", &f[1].to_string());
    r.case(n::fstatfs, "file", &[fd, mut_of(&mut f)]);
    r.case(n::fstatfs, "not open", &[NO_FD, mut_of(&mut f)]);
    r.case(n::statfs, "missing", &[missing, mut_of(&mut f)]);
    for number in [n::getxattr, n::lgetxattr] {
        r.case(number, "none", &[path, c"user.none".as_ptr() as u64, mut_of(&mut f), 8]);
    }
    r.case(n::fgetxattr, "none", &[fd, c"user.none".as_ptr() as u64, mut_of(&mut f), 8]);
    close(fd);
}

fn names(r: &mut Report) {
    file(c"a", b"a");
    let [a, b, c, d] = [c"a", c"b", c"c", c"d"].map(|s| s.as_ptr() as u64);
    let missing = c"missing".as_ptr() as u64;
    r.case(n::link, "new", &[a, b]);
    r.case(n::link, "there", &[a, b]);
    r.case(n::linkat, "new", &[HERE, a, HERE, c, 0]);
    r.case(n::linkat, "missing", &[HERE, missing, HERE, d, 0]);
    r.case(n::rename, "over", &[c, b]);
    r.case(n::rename, "missing", &[missing, b]);
    r.case(n::renameat, "new", &[HERE, b, HERE, d]);
    r.case(n::renameat2, "not over", &[HERE, d, HERE, a, 1]);
    r.case(n::renameat2, "exchange", &[HERE, d, HERE, a, 2]);
    r.case(n::symlinkat, "new", &[a, HERE, b]);
    r.case(n::symlinkat, "there", &[a, HERE, b]);
    let mut target = [0u8; 16];
    r.case(n::readlink, "link", &[b, mut_of(&mut target), 16]);
    r.line(n::readlink, "target", &text(&target));
    r.case(n::readlink, "file", &[a, mut_of(&mut target), 16]);
    r.case(n::readlink, "size", &[b, mut_of(&mut target), 0]);
    r.case(n::readlinkat, "link", &[HERE, b, mut_of(&mut target), 16]);
    r.case(n::unlink, "link", &[b]);
    r.case(n::unlink, "missing", &[b]);
    r.case(n::unlink, "nowhere", &[NOWHERE]);
    r.case(n::unlinkat, "file", &[HERE, d, 0]);
    r.case(n::unlinkat, "not a folder", &[HERE, a, libc::AT_REMOVEDIR as u64]);
    r.case(n::unlinkat, "flags", &[HERE, a, 0x4000_0000]);
    let long: Vec<u8> = [vec![b'x'; 5000], vec![0]].concat();
    r.case(n::unlink, "long", &[of(&long[..])]);
    let long: Vec<u8> = [vec![b'x'; 300], vec![0]].concat();
    r.case(n::unlink, "long part", &[of(&long[..])]);
    r.case(n::unlink, "below a file", &[c"a/b".as_ptr() as u64]);
}

fn rights(r: &mut Report) {
    file(c"mine", b"x");
    let path = c"mine".as_ptr() as u64;
    let missing = c"missing".as_ptr() as u64;
    let fd = open(c"mine", libc::O_RDONLY);
    let mut s = [0u64; 18];
    let mut told = |r: &mut Report, number| {
        crate::report::call(n::stat, &[path, mut_of(&mut s)]);
        r.line(number, "then", &stat_text(&s));
    };
    r.case(n::chmod, "file", &[path, 0o604]);
    told(r, n::chmod);
    r.case(n::fchmod, "file", &[fd, 0o640]);
    told(r, n::fchmod);
    r.case(n::fchmodat, "file", &[HERE, path, 0o444]);
    told(r, n::fchmodat);
    r.done(n::fchmodat2, "missing", &[HERE, missing, 0o444, 0]);
    r.case(n::chmod, "missing", &[missing, 0o604]);
    r.case(n::fchmod, "not open", &[NO_FD, 0o604]);
    let same = u64::from(u32::MAX);
    r.case(n::chown, "same", &[path, same, same]);
    r.case(n::lchown, "same", &[path, same, same]);
    r.case(n::fchown, "same", &[fd, same, same]);
    r.case(n::fchownat, "same", &[HERE, path, same, same, 0]);
    r.case(n::chown, "missing", &[missing, same, same]);
    r.case(n::access, "read", &[path, 4]);
    r.case(n::access, "execute", &[path, 1]);
    r.case(n::access, "mode", &[path, 77]);
    r.case(n::access, "missing", &[missing, 0]);
    r.case(n::faccessat, "read", &[HERE, path, 4]);
    r.case(n::faccessat2, "read", &[HERE, path, 4, 0]);
    r.case(n::faccessat2, "flags", &[HERE, path, 4, 0x4000_0000]);
    r.case(n::umask, "new", &[0o77]);
    r.case(n::umask, "old", &[0o22]);
    r.case(n::mknod, "fifo", &[c"fifo".as_ptr() as u64, u64::from(libc::S_IFIFO | 0o600), 0]);
    r.case(n::mknodat, "there", &[HERE, c"fifo".as_ptr() as u64, u64::from(libc::S_IFIFO | 0o600), 0]);
    close(fd);
}

fn times(r: &mut Report) {
    file(c"when", b"x");
    let path = c"when".as_ptr() as u64;
    let mut s = [0u64; 18];
    let mut told = |r: &mut Report, number| {
        crate::report::call(n::stat, &[path, mut_of(&mut s)]);
        r.line(number, "then", &format!("{} {} {} {}", s[9], s[10], s[11], s[12]));
    };
    let when: [u64; 4] = [1_000_000, 5, 2_000_000, 7];
    r.case(n::utimensat, "both", &[HERE, path, of(&when), 0]);
    told(r, n::utimensat);
    let bad: [u64; 4] = [1, 2_000_000_000, 1, 1];
    r.case(n::utimensat, "nanoseconds", &[HERE, path, of(&bad), 0]);
    r.case(n::utimes, "both", &[path, of(&when)]);
    told(r, n::utimes);
    r.case(n::futimesat, "both", &[HERE, path, of(&when)]);
    let seconds: [u64; 2] = [3_000_000, 4_000_000];
    r.case(n::utime, "both", &[path, of(&seconds)]);
    told(r, n::utime);
    r.case(n::utime, "missing", &[c"missing".as_ptr() as u64, of(&seconds)]);
    r.case(n::utime, "now", &[path, 0]);
}
