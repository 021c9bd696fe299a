// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories, and the one a process is in.

use colony_fship::calls::number as n;

use crate::report::{HERE, NO_FD, NOWHERE, Report, call, close, file, mut_of, open, text};

pub(crate) fn try_all(r: &mut Report) {
    let [dir, sub] = [c"dir", c"dir/sub"].map(|s| s.as_ptr() as u64);
    r.case(n::mkdir, "new", &[dir, 0o755]);
    r.case(n::mkdir, "there", &[dir, 0o755]);
    r.case(n::mkdir, "nowhere", &[NOWHERE, 0o755]);
    r.case(n::mkdirat, "new", &[HERE, sub, 0o755]);
    r.case(n::rmdir, "not empty", &[dir]);
    file(c"dir/file", b"x");
    listing(r);
    working(r);
    r.case(n::unlink, "folder", &[dir]);
    r.case(n::rmdir, "empty", &[sub]);
    r.case(n::rmdir, "missing", &[sub]);
    r.case(n::rmdir, "file", &[c"dir/file".as_ptr() as u64]);
}

fn listing(r: &mut Report) {
    let fd = open(c"dir", libc::O_RDONLY | libc::O_DIRECTORY);
    let mut entries = vec![0u8; 4096];
    let mut names = Vec::new();
    let got = call(n::getdents64, &[fd, mut_of(&mut entries[..]), 4096]);
    let mut at = 0;
    while at < usize::try_from(got).unwrap_or(0) {
        let size = usize::from(u16::from_le_bytes([entries[at + 16], entries[at + 17]]));
        names.push(format!("{}/{}", text(&entries[at + 19..at + size]), entries[at + 18]));
        at += size.max(1);
    }
    names.sort();
    r.line(n::getdents64, "names", &names.join(" "));
    r.case(n::getdents64, "end", &[fd, mut_of(&mut entries[..]), 4096]);
    r.case(n::lseek, "start", &[fd, 0, 0]);
    r.case(n::getdents64, "room", &[fd, mut_of(&mut entries[..]), 8]);
    r.case(n::read, "folder", &[fd, mut_of(&mut entries[..]), 8]);
    r.case(n::getdents64, "not open", &[NO_FD, mut_of(&mut entries[..]), 4096]);
    let f = open(c"dir/file", libc::O_RDONLY);
    r.case(n::getdents64, "file", &[f, mut_of(&mut entries[..]), 4096]);
    r.case(n::openat, "below a file", &[f, c"x".as_ptr() as u64, 0, 0]);
    r.case(n::openat, "below a folder", &[fd, c"file".as_ptr() as u64, 0, 0]);
    close(fd + 2);
    close(f);
    close(fd);
    r.case(n::open, "folder to write", &[c"dir".as_ptr() as u64, libc::O_WRONLY as u64, 0]);
    r.case(n::open, "file as folder", &[c"dir/file".as_ptr() as u64, libc::O_DIRECTORY as u64, 0]);
}

fn working(r: &mut Report) {
    let home = open(c".", libc::O_RDONLY | libc::O_DIRECTORY);
    let mut path = vec![0u8; 4096];
    let whole = r.done(n::getcwd, "whole", &[mut_of(&mut path[..]), 4096]);
    r.line(n::getcwd, "length is that of the path", &(whole as usize == text(&path).len() + 1).to_string());
    let top = text(&path);
    r.case(n::getcwd, "room", &[mut_of(&mut path[..]), 1]);
    r.case(n::chdir, "folder", &[c"dir/sub".as_ptr() as u64]);
    call(n::getcwd, &[mut_of(&mut path[..]), 4096]);
    r.line(n::getcwd, "below", text(&path).strip_prefix(&top).unwrap_or("elsewhere"));
    r.case(n::access, "from there", &[c"../file".as_ptr() as u64, 0]);
    r.case(n::chdir, "file", &[c"../file".as_ptr() as u64]);
    r.case(n::chdir, "missing", &[c"missing".as_ptr() as u64]);
    r.case(n::fchdir, "home", &[home]);
    call(n::getcwd, &[mut_of(&mut path[..]), 4096]);
    r.line(n::getcwd, "home again", &(text(&path) == top).to_string());
    r.case(n::fchdir, "not open", &[NO_FD]);
    close(home);
}
