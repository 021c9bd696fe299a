// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening, and what else makes of a path more than a word for the operating system.
//!
//! A process has no directory in `/proc`: `/proc/self` of the operating system would be the worker, with the memory
//! of all its nodes. What a program may see of itself is answered here; what leads to any process's directory in
//! whatever way is not there.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

use colony_fship::Errno;
use colony_fship::calls::number as nr;

use super::context::CallContext;
use super::replay::translate;
use super::{Made, World, done, later};
use crate::worker::process::{Descriptor, Kind, Process};

/// `RESOLVE_NO_MAGICLINKS`: links of `/proc` that lead to descriptors of this worker.
const NO_MAGIC_LINKS: u64 = 2;
/// `statfs` of procfs says so.
const PROC_MAGIC: i64 = 0x9fa0;

/// A path that means the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Itself {
    /// One of its descriptors.
    Descriptor(u64),
    /// Its program.
    Program,
    /// Something else about a process, which is not to be seen.
    Hidden,
}

/// The meaning of a path that names a process's directory; none for all other paths.
pub(super) fn itself(path: &CStr) -> Option<Itself> {
    let bytes = path.to_bytes();
    if bytes.first() != Some(&b'/') {
        return None;
    }
    let parts: Vec<&[u8]> = bytes.split(|&b| b == b'/').filter(|s| !s.is_empty() && *s != b".").collect();
    let number = |s: &[u8]| std::str::from_utf8(s).ok().and_then(|s| s.parse::<u64>().ok());
    match parts.as_slice() {
        [b"dev", b"stdin"] => Some(Itself::Descriptor(0)),
        [b"dev", b"stdout"] => Some(Itself::Descriptor(1)),
        [b"dev", b"stderr"] => Some(Itself::Descriptor(2)),
        [b"dev", b"fd", n] | [b"proc", b"self" | b"thread-self", b"fd", n] => {
            Some(number(n).map_or(Itself::Hidden, Itself::Descriptor))
        }
        [b"dev", b"fd", ..] => Some(Itself::Hidden),
        [b"proc", b"self" | b"thread-self", b"exe"] => Some(Itself::Program),
        [b"proc", b"self" | b"thread-self", ..] => Some(Itself::Hidden),
        [b"proc", n, ..] if number(n).is_some() => Some(Itself::Hidden),
        _ => None,
    }
}

/// Arguments of opening a file, as `openat2` has them.
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

impl How {
    /// As `open` reads its arguments: what it does not know it ignores, where `openat2` refuses.
    fn plain(flags: u64, mode: u64) -> Self {
        const KNOWN: i32 = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_NOCTTY
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_DSYNC
            | libc::O_SYNC
            | libc::O_DIRECT
            | libc::O_LARGEFILE
            | 0o100_000
            | libc::O_DIRECTORY
            | libc::O_NOFOLLOW
            | libc::O_NOATIME
            | libc::O_CLOEXEC
            | libc::O_PATH
            | libc::O_TMPFILE;
        const PATH: i32 = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH | libc::O_CLOEXEC;
        let mut flags = flags as i32 & KNOWN;
        if flags & libc::O_PATH != 0 {
            flags &= PATH;
        }
        let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mode = if creates { mode & 0o7777 } else { 0 };
        Self { flags: flags as u32 as u64, mode, resolve: 0 }
    }

    fn has(&self, flag: i32) -> bool {
        self.flags & flag as u64 != 0
    }
}

impl World {
    pub(super) fn open(&mut self, cx: &mut CallContext<'_>) -> Made {
        let host = translate(cx)?;
        let (args, process) = (host.args, &mut *cx.process);
        let (at, n, how) = match cx.call.number.into() {
            nr::open => (libc::AT_FDCWD as u64, 0, How::plain(args[1], args[2])),
            nr::creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                (libc::AT_FDCWD as u64, 0, How::plain(flags as u64, args[1]))
            }
            nr::openat => (args[0], 1, How::plain(args[2], args[3])),
            _ => (args[0], 1, extended(process, &cx.request.args)?),
        };
        let path = host.paths[n].as_deref().ok_or(Errno::EFAULT)?;
        match itself(path) {
            None => {}
            Some(Itself::Descriptor(n)) => {
                let again =
                    process.files.get(n).map_err(|_| Errno::ENOENT)?.duplicate(how.has(libc::O_CLOEXEC))?;
                return done(process.files.insert(0, again)?);
            }
            Some(Itself::Program) => return self.open_at(process, at, &program(process)?, &how),
            Some(Itself::Hidden) => return Err(Errno::ENOENT),
        }
        self.open_at(process, at, path, &how)
    }

    fn open_at(&mut self, process: &mut Process, at: u64, path: &CStr, how: &How) -> Made {
        // no room is told before anything is made
        process.files.free(0)?;
        self.become_process(process)?;
        let own = how.flags | libc::O_CLOEXEC as u64;
        // opening never waits: what has to is made again
        let flags =
            if how.has(libc::O_PATH) { own } else { own | (libc::O_NONBLOCK | libc::O_NOCTTY) as u64 };
        let fd = match self.open_quietly(at, path, [flags, how.mode, how.resolve]) {
            Ok(fd) => fd,
            Err(Errno(6)) if !how.has(libc::O_NONBLOCK) && self.is_fifo(at, path) => {
                // it has no reader
                return later();
            }
            Err(e) => return Err(e),
        };
        let kind = match kind(&fd)? {
            Kind::Fifo if how.flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64 => Kind::Stream,
            kind => kind,
        };
        let descriptor = Descriptor::new(fd, kind, how.has(libc::O_NONBLOCK), how.has(libc::O_CLOEXEC));
        done(process.files.insert(0, descriptor)?)
    }

    /// Opens a file that is no process's.
    pub(super) fn open_quietly(&mut self, at: u64, path: &CStr, how: [u64; 3]) -> Result<OwnedFd, Errno> {
        let [flags, mode, resolve] = how;
        let how = [flags, mode, resolve | NO_MAGIC_LINKS];
        let args = [at, path.as_ptr() as u64, how.as_ptr() as u64, 24, 0, 0];
        let fd = self.host.open(libc::SYS_openat2, args)?;
        if self.is_hidden(&fd) { Err(Errno::ENOENT) } else { Ok(fd) }
    }

    /// Returns `true` if a file lies in a process's directory of `/proc`, wherever that is mounted.
    fn is_hidden(&mut self, fd: &OwnedFd) -> bool {
        // SAFETY: plain numbers
        let mut about: libc::statfs = unsafe { std::mem::zeroed() };
        let args = [fd.as_raw_fd() as u64, &raw mut about as u64, 0, 0, 0, 0];
        match self.host.call(libc::SYS_fstatfs, args) {
            Ok(_) if about.f_type != PROC_MAGIC => return false,
            Ok(_) => {}
            // what cannot be told is not on /proc: that always can
            Err(_) => return false,
        }
        let Some(own) = &self.own else { return true };
        let name = fd.as_raw_fd().to_string();
        let Ok(path) = nix::fcntl::readlinkat(own, name.as_str()) else { return true };
        path.as_bytes()
            .split(|&b| b == b'/')
            .any(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
    }

    fn is_fifo(&mut self, at: u64, path: &CStr) -> bool {
        // SAFETY: plain numbers
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        let args = [at, path.as_ptr() as u64, &raw mut about as u64, 0, 0, 0];
        self.host.call(libc::SYS_newfstatat, args).is_ok() && about.st_mode & libc::S_IFMT == libc::S_IFIFO
    }

    pub(super) fn chdir(&mut self, cx: &mut CallContext<'_>) -> Made {
        let host = translate(cx)?;
        let path = host.paths[0].as_deref().ok_or(Errno::EFAULT)?;
        if itself(path).is_some() {
            return Err(Errno::ENOENT);
        }
        self.become_process(cx.process)?;
        let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
        let fd = self.open_quietly(libc::AT_FDCWD as u64, path, [flags, 0, 0])?;
        self.enter(cx.process, fd)
    }

    pub(super) fn fchdir(&mut self, process: &mut Process, args: &[u64; 6]) -> Made {
        let fd = process.files.get(args[0])?.duplicate(true)?.fd;
        self.enter(process, fd)
    }

    fn enter(&mut self, process: &mut Process, fd: OwnedFd) -> Made {
        self.host.call(libc::SYS_fchdir, [fd.as_raw_fd() as u64, 0, 0, 0, 0, 0])?;
        process.directory = Rc::new(fd);
        self.directory = Some(process.directory.clone());
        done(0)
    }

    pub(super) fn readlink(&mut self, cx: &mut CallContext<'_>) -> Made {
        let mut host = translate(cx)?;
        let n = usize::from(cx.number() == nr::readlinkat);
        let path = host.paths[n].as_deref().ok_or(Errno::EFAULT)?;
        let (to, room) = (cx.args()[n + 1], cx.args()[n + 2]);
        match itself(path) {
            Some(Itself::Program) => {
                let target = program(cx.process)?;
                if room as i32 <= 0 {
                    return Err(Errno::EINVAL);
                }
                let bytes = target.as_bytes();
                let length = bytes.len().min(room as usize);
                cx.process.bank.write(to, &bytes[..length])?;
                done(length as u64)
            }
            Some(_) => Err(Errno::ENOENT),
            None => {
                let _kept = self.lead(cx, &mut host)?;
                done(self.host.call(i64::from(cx.call.number), host.args)?)
            }
        }
    }
}

/// The path of the process's program.
pub(super) fn program(process: &Process) -> Result<CString, Errno> {
    CString::new(process.executable.as_os_str().as_bytes()).map_err(|_| Errno::ENOENT)
}

/// `struct open_how`: flags, mode, resolve; longer ones must end with zeroes.
fn extended(process: &Process, args: &[u64; 6]) -> Result<How, Errno> {
    let size = args[3];
    if size < 24 {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let bytes = process.bank.bytes(args[2], size)?;
    if bytes[24..].iter().any(|&b| b != 0) {
        return Err(Errno::E2BIG);
    }
    let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    Ok(How { flags: field(0), mode: field(8), resolve: field(16) })
}

/// The kind of a new file.
pub(super) fn kind(fd: &OwnedFd) -> Result<Kind, Errno> {
    let about = nix::sys::stat::fstat(fd).map_err(|e| Errno(e as i32 as u16))?;
    Ok(match about.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK | libc::S_IFLNK => Kind::File,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        _ => Kind::Stream,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_process_itself_are_recognized() {
        let found = |p: &str| itself(&CString::new(p).expect("no zero"));
        assert_eq!(found("/dev/stdout"), Some(Itself::Descriptor(1)));
        assert_eq!(found("//proc/./self/fd/7"), Some(Itself::Descriptor(7)));
        assert_eq!(found("/proc/self/exe"), Some(Itself::Program));
        for hidden in [
            "/proc/self",
            "/proc/self/mem",
            "/proc/thread-self/maps",
            "/proc/1/mem",
            "/dev/fd",
            "/proc/self/fd",
        ] {
            assert_eq!(found(hidden), Some(Itself::Hidden), "{hidden}");
        }
        for other in
            ["/proc/meminfo", "/proc", "/dev/null", "proc/self", "/tmp/proc/self", "/proc/sys/kernel/pid_max"]
        {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
