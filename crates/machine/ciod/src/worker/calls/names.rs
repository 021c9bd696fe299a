// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolution of the paths of calls.
//!
//! A link in `/proc` leads to what no name leads to: to a descriptor of this worker, its directory, its memory. So the
//! operating system walks a path with [`World::open_quietly`], which follows none of these, and the call is made on
//! what was found there: on `N` or `N/name` in the worker's own directory of descriptors.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use colony_fship::Errno;
use colony_fship::calls::{Arg, number as nr};

use super::World;
use super::context::CallContext;
use super::paths::{Itself, itself, program};
use super::replay::Host;
use crate::worker::process::Process;

/// Handling of the last part of a path, if that is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It follows it.
    Followed,
    /// It looks at the link itself, unless a slash follows.
    Looked,
    /// It makes, moves or removes the name.
    Made,
}

/// The way call `number` handles the path that is its argument `n`; none for arguments that are no paths.
fn last(number: u32, n: usize, args: &[u64; 6]) -> Option<Last> {
    let unless = |at: usize| {
        if args[at] & libc::AT_SYMLINK_NOFOLLOW as u64 != 0 { Last::Looked } else { Last::Followed }
    };
    Some(match (number, n) {
        (nr::symlink | nr::symlinkat, 0) | (nr::getxattr | nr::lgetxattr | nr::fgetxattr, 1) => return None,
        (
            nr::stat
            | nr::access
            | nr::truncate
            | nr::chmod
            | nr::chown
            | nr::utime
            | nr::utimes
            | nr::statfs
            | nr::getxattr
            | nr::faccessat
            | nr::fchmodat
            | nr::futimesat,
            _,
        ) => Last::Followed,
        (nr::statx, _) => unless(2),
        (nr::newfstatat | nr::utimensat | nr::faccessat2 | nr::fchmodat2, _) => unless(3),
        (nr::fchownat, _) => unless(4),
        (nr::linkat, 1) if args[4] & libc::AT_SYMLINK_FOLLOW as u64 != 0 => Last::Followed,
        (nr::linkat, 1) | (nr::link, 0) => Last::Looked,
        (nr::lstat | nr::lchown | nr::lgetxattr | nr::readlink | nr::readlinkat, _) => Last::Looked,
        _ => Last::Made,
    })
}

/// The directory of a path, and the name in it with the slashes that follow.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(end) = path.iter().rposition(|&b| b != b'/') else { return (b"/", b".") };
    match path[..end].iter().rposition(|&b| b == b'/') {
        Some(slash) => path.split_at(slash + 1),
        None => (b".", path),
    }
}

/// Returns `true` if a path is a name in the process's own directory, which needs no resolution.
fn is_plain(path: &CStr, last: Last) -> bool {
    path.is_empty() || last != Last::Followed && !path.to_bytes().contains(&b'/')
}

impl World {
    /// Takes the process's place, and leads a call's paths to what was found there; these descriptors are to be kept
    /// until the call is made.
    pub(super) fn lead(&mut self, cx: &CallContext<'_>, host: &mut Host) -> Result<Vec<OwnedFd>, Errno> {
        let (number, process) = (cx.number(), &*cx.process);
        self.become_process(process)?;
        let Some(own) = self.own.as_ref().map(|fd| fd.as_raw_fd() as u64) else { return Ok(Vec::new()) };
        let args = host.args;
        let paths = host.paths.iter_mut().enumerate().filter_map(|(n, path)| {
            last(number, n, &args).and_then(|last| path.as_mut().map(|path| (n, path, last)))
        });
        let paths: Vec<_> = paths.collect();
        // all or none: names in the process's directory would not be found any more
        if paths.iter().all(|(_, path, last)| is_plain(path, *last)) {
            return Ok(Vec::new());
        }
        let mut kept = Vec::new();
        let mut elsewhere = false;
        for (n, path, last) in paths.into_iter().filter(|(_, path, _)| !path.is_empty()) {
            let directory = n.checked_sub(1).filter(|&d| cx.call.args[d] == Arg::DirFd);
            let at = directory.map_or(libc::AT_FDCWD as u64, |d| args[d]);
            *path = self.found(process, at, path, last, &mut kept)?;
            host.args[n] = path.as_ptr() as u64;
            match directory {
                Some(d) => host.args[d] = own,
                None => elsewhere = true,
            }
        }
        if elsewhere {
            self.directory = None;
            self.host.call(libc::SYS_fchdir, [own, 0, 0, 0, 0, 0])?;
        }
        Ok(kept)
    }

    /// The name of what a path leads to, among the worker's descriptors.
    fn found(
        &mut self,
        process: &Process,
        at: u64,
        path: &CStr,
        last: Last,
        kept: &mut Vec<OwnedFd>,
    ) -> Result<CString, Errno> {
        let (directory, name) = split(path.to_bytes());
        // these two are directories, and what is before a slash is one
        let is_directory = matches!(name, b"." | b"..") || name.ends_with(b"/");
        let whole = last == Last::Followed || last == Last::Looked && is_directory;
        let mut walk = |path: &CStr, flags: i32| -> Result<RawFd, Errno> {
            let flags = (libc::O_PATH | libc::O_CLOEXEC | flags) as u64;
            let fd = self.open_quietly(at, path, [flags, 0, 0])?;
            kept.push(fd);
            Ok(kept[kept.len() - 1].as_raw_fd())
        };
        let found = if whole {
            let fd = match itself(path) {
                None => walk(path, 0)?,
                Some(Itself::Program) => walk(&program(process)?, 0)?,
                Some(Itself::Descriptor(n)) => process.files.host(n).map_err(|_| Errno::ENOENT)?,
                Some(Itself::Hidden) => return Err(Errno::ENOENT),
            };
            // where links are not followed, the descriptor's name is one
            let behind = if last == Last::Looked { "/." } else { "" };
            format!("{fd}{behind}").into_bytes()
        } else {
            let directory = CString::new(directory).map_err(|_| Errno::ENOENT)?;
            let fd = walk(&directory, libc::O_DIRECTORY)?;
            [fd.to_string().as_bytes(), b"/", name].concat()
        };
        CString::new(found).map_err(|_| Errno::ENOENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_name() {
        for (path, directory, name) in [
            ("a", ".", "a"),
            ("a//", ".", "a//"),
            ("/a", "/", "a"),
            ("b/../a/", "b/../", "a/"),
            ("/b//a", "/b//", "a"),
            ("//", "/", "."),
        ] {
            assert_eq!(split(path.as_bytes()), (directory.as_bytes(), name.as_bytes()), "{path}");
        }
    }
}
