// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mount of a `colonyd`: whether its daemon still lives, and detaching it if not.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::MntFlags;

/// The source name our mounts carry in `/proc/PID/mountinfo`.
pub const SOURCE: &str = "colonyd";

/// Timeout for the answer of a daemon that exists.
const ANSWER: Duration = Duration::from_secs(2);

/// The file system that is mounted at a path.
#[derive(Debug)]
pub enum Found {
    /// No mount.
    Nothing,
    /// A daemon's tree whose daemon is gone; the descriptor names this very mount.
    Dead(OwnedFd),
    /// A tree whose daemon answers, or is stopped.
    Alive,
    /// Another file system: its type and source.
    Foreign(String),
}

/// Detaches the tree at `path` if its daemon is dead. Returns whether no tree of a `colonyd` is there any more.
#[must_use]
pub fn detach_dead(path: &Path) -> bool {
    match inspect(path) {
        Ok(Found::Dead(mount)) => detach(&mount).is_ok(),
        Ok(Found::Alive) | Err(_) => false,
        Ok(Found::Nothing | Found::Foreign(_)) => true,
    }
}

/// Waits until the daemon of the tree at `path` is dead, at most `longest`, and detaches the tree. Returns whether it is
/// gone.
///
/// A dying process closes its descriptors one by one, and on a busy node not at once: its sockets may close long before
/// its mount does.
#[must_use]
pub fn wait_for_death(path: &Path, longest: Duration) -> bool {
    let start = Instant::now();
    let mut wait = Duration::from_millis(1);
    while !detach_dead(path) {
        if start.elapsed() > longest {
            return false;
        }
        std::thread::sleep(wait);
        wait = (2 * wait).min(Duration::from_millis(100));
    }
    true
}

/// The longest wait for the end of a process that has [locked](remove_directory) a mount point.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Removes the directory of a mount point, unless it is somebody else's by now: something is mounted there, or a daemon keeps it locked.
///
/// The kernel releases the files of a dying process one after another, the mount often before the lock. So a locked directory is tried
/// again for a while.
pub fn remove_directory(path: &Path) {
    let deadline = Instant::now() + UNLOCK_TIMEOUT;
    let mut pause = Duration::from_millis(1);
    loop {
        match lock_free_directory(path) {
            Some(Ok(_lock)) => {
                let _ = std::fs::remove_dir(path);
                return;
            }
            Some(Err((_, Errno::EWOULDBLOCK))) if Instant::now() < deadline => std::thread::sleep(pause),
            _ => return,
        }
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

/// Locks the directory at `path`; `None` if there is none, or if something is mounted there. The daemon of a mount may be stopped, so
/// no question goes to it.
fn lock_free_directory(path: &Path) -> Option<Result<Flock<File>, (File, Errno)>> {
    let place = place(path).ok()?;
    if !matches!(found_at(path, &place), Ok(Found::Nothing)) {
        return None;
    }
    // of the very directory that was looked at, also if something is mounted over it meanwhile
    let directory = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    Some(Flock::lock(directory, FlockArg::LockExclusiveNonblock))
}

/// Detaches exactly the mount that `mount` was opened on, whatever has been mounted over it since.
///
/// # Errors
/// The kernel refuses: this needs `CAP_SYS_ADMIN`.
pub fn detach(mount: &OwnedFd) -> io::Result<()> {
    let link = format!("/proc/self/fd/{}", mount.as_raw_fd());
    match nix::mount::umount2(link.as_str(), MntFlags::MNT_DETACH) {
        // a guard or a release agent was faster
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Finds out which file system is mounted at `path`, without waiting for a daemon that is dead or stopped.
///
/// # Errors
/// The system does not tell.
pub fn inspect(path: &Path) -> io::Result<Found> {
    match place(path) {
        Ok(place) => found_at(path, &place),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(e) => Err(e),
    }
}

/// What is at `path`, without a question to its file system: a dead one would answer with an error, and that of a stopped daemon
/// never.
fn place(path: &Path) -> io::Result<OwnedFd> {
    let options = libc::O_PATH | libc::O_NOFOLLOW;
    Ok(std::fs::OpenOptions::new().read(true).custom_flags(options).open(path)?.into())
}

/// As [`inspect`], of what was opened at `path`.
fn found_at(path: &Path, fd: &OwnedFd) -> io::Result<Found> {
    // of this thread: it may be in another mount namespace than the process
    let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = info.lines().find_map(|l| l.strip_prefix("mnt_id:")).map(str::trim).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    let absolute = std::path::absolute(path)?;
    match mounts.lines().filter_map(MountLine::parse).find(|m| m.id == id) {
        Some(m) if Path::new(&m.at) != canonical(&absolute) => Ok(Found::Nothing),
        Some(m) if m.kind.starts_with("fuse") && m.source == SOURCE => Ok(match answers(fd) {
            Some(false) => Found::Dead(fd.try_clone()?),
            Some(true) | None => Found::Alive,
        }),
        Some(m) => Ok(Found::Foreign(format!("{} {}", m.kind, m.source))),
        None => Ok(Found::Nothing),
    }
}

/// The path with its parent's links resolved; the last part is left alone, since a dead mount answers nothing.
fn canonical(path: &Path) -> PathBuf {
    match (path.parent().and_then(|p| p.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Returns `Some(true)` if the daemon of a FUSE file system answers, `Some(false)` if it has ended, and `None` if it is stopped.
fn answers(mount: &OwnedFd) -> Option<bool> {
    let mount = mount.try_clone().ok()?;
    let (send, answer) = mpsc::channel();
    // a stopped daemon would keep the question waiting for ever: let it wait alone
    std::thread::spawn(move || {
        let _ = send.send(nix::sys::statfs::fstatfs(mount.as_fd()).map(drop));
    });
    match answer.recv_timeout(ANSWER) {
        Ok(Err(Errno::ENOTCONN | Errno::ECONNABORTED)) => Some(false),
        Ok(_) => Some(true),
        Err(_) => None,
    }
}

/// A line of `/proc/PID/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct MountLine<'a> {
    id: &'a str,
    at: String,
    kind: &'a str,
    source: &'a str,
}

impl<'a> MountLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, fs) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let mut fs = fs.split(' ');
        Some(Self { id: mount.next()?, at: unescaped(mount.nth(3)?), kind: fs.next()?, source: fs.next()? })
    }
}

/// A path in `mountinfo`: blank, tab, newline and backslash are written in octal (`\040`).
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                out.push(byte.into());
                out.push_str(&part[3..]);
            }
            _ => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mount_with_a_blank_in_its_name_is_read() {
        let line = r"97 29 0:45 / /tmp/a\040b rw,nosuid shared:9 - fuse colonyd rw,user_id=0";
        let m = MountLine::parse(line).expect("a mount");
        assert_eq!((m.id, m.at.as_str(), m.kind, m.source), ("97", "/tmp/a b", "fuse", "colonyd"));
    }

    #[test]
    fn a_mount_that_somebody_else_has_detached_meanwhile_is_no_failure() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mounted = nix::mount::mount(
            Some("colony-test"),
            dir.path(),
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        );
        match mounted {
            Err(nix::Error::EPERM) => return colony_testing::skip("this user may not mount"),
            mounted => mounted.expect("a temporary file system"),
        }
        let mount = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(dir.path());
        let mount = OwnedFd::from(mount.expect("there"));
        assert!(matches!(inspect(dir.path()), Ok(Found::Foreign(_))));
        detach(&mount).expect("it is there");
        assert!(matches!(inspect(dir.path()), Ok(Found::Nothing)));
        detach(&mount).expect("it is not there any more, as it should be");
    }

    #[test]
    fn a_directory_goes_as_soon_as_a_dying_daemon_unlocks_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("colony");
        std::fs::create_dir(&path).expect("a directory");
        let open = || File::open(&path).expect("there");
        let lock = Flock::lock(open(), FlockArg::LockExclusiveNonblock).expect("free");
        let dying = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(lock);
        });
        remove_directory(&path);
        assert!(!path.exists());
        dying.join().expect("no panic");
        // another daemon has it, and keeps it
        std::fs::create_dir(&path).expect("a directory");
        let _lock = Flock::lock(open(), FlockArg::LockExclusiveNonblock).expect("free");
        remove_directory(&path);
        assert!(path.exists());
    }

    #[test]
    fn places_without_a_mount_are_free_and_others_are_not_ours() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert!(matches!(inspect(dir.path()), Ok(Found::Nothing)));
        assert!(matches!(inspect(&dir.path().join("missing")), Ok(Found::Nothing)));
        assert!(matches!(inspect(Path::new("/proc")), Ok(Found::Foreign(_))));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in r"[0-9 /a-z\\:é-]{0,80}") {
            let _ = MountLine::parse(&line);
            let _ = unescaped(&line);
        }
    }
}
