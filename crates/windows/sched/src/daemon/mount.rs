// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place where the tree appears: the directory, the mount, and what an earlier daemon left there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags};

/// The source name our mounts carry in `/proc/self/mountinfo`.
pub(crate) const SOURCE: &str = "colonyd";

/// How long a daemon that is there may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Why the tree cannot appear.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Another daemon is there.
    #[error("another colonyd has its files at {0}; stop it first, or choose another place with --mount")]
    Running(PathBuf),
    /// Another file system is there.
    #[error("{path} is the mount point of something else ({what}); choose another place with --mount")]
    Foreign {
        /// The mount point.
        path: PathBuf,
        /// Type and source of what is mounted.
        what: String,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}{}", hint.map(|h| format!("; {h}")).unwrap_or_default())]
    System {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
        /// What to do about it.
        hint: Option<&'static str>,
    },
}

/// What is mounted at a path.
#[derive(Debug)]
enum Found {
    Nothing,
    /// A daemon's tree whose daemon is gone; the descriptor names this very mount.
    Dead(OwnedFd),
    Alive,
    Foreign(String),
}

/// The directory, held by this daemon: nobody else can take it while this lives.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    created: bool,
    _lock: Flock<File>,
}

impl Place {
    /// Takes `path`: makes the directory if it is missing, detaches the tree of a daemon that died.
    pub(crate) fn take(path: &Path) -> Result<Self, MountError> {
        let system =
            |what, hint| move |source| MountError::System { what, path: path.to_owned(), source, hint };
        let resolved = if path.is_symlink() {
            std::fs::canonicalize(path).map_err(system("following", None))?
        } else {
            path.to_owned()
        };
        let path = resolved.as_path();
        clear(path)?;
        let created = match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            Err(e) => {
                return Err(system("making the mount point", Some("its parent directory must exist"))(e));
            }
        };
        let path = std::fs::canonicalize(path).map_err(system("finding the mount point", None))?;
        let running = || MountError::Running(path.clone());
        let directory = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(&path)
            .map_err(system("opening the mount point", Some("it must be a directory")))?;
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock).map_err(|_| running())?;
        // somebody may have mounted, or removed the directory, between the look and the lock
        let same = lock
            .metadata()
            .ok()
            .zip(std::fs::metadata(&path).ok())
            .is_some_and(|(a, b)| (a.dev(), a.ino()) == (b.dev(), b.ino()));
        if !same || !matches!(look(&path), Ok(Found::Nothing)) {
            return Err(running());
        }
        Ok(Self { path, created, _lock: lock })
    }

    /// Removes the directory if it was made here.
    pub(crate) fn give_up(self) {
        let Self { path, created, _lock } = self;
        drop(_lock);
        if created {
            remove_directory(&path);
        }
    }

    /// Absolute, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory was made by [`Self::take`].
    pub(crate) const fn created(&self) -> bool {
        self.created
    }

    /// Mounts, and returns the descriptor the kernel's questions arrive at. Everybody may look at the tree;
    /// who may do what is decided by the daemon.
    pub(crate) fn mount(&self) -> Result<OwnedFd, MountError> {
        let system =
            |what, hint| move |source| MountError::System { what, path: self.path.clone(), source, hint };
        let device = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(system("opening /dev/fuse for", Some("load the kernel module (modprobe fuse)")))?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
        nix::mount::mount(Some(SOURCE), &self.path, Some("fuse"), flags, Some(options.as_str()))
            .map_err(|e| system("mounting at", Some("this needs root or CAP_SYS_ADMIN"))(e.into()))?;
        Ok(device.into())
    }
}

/// Detaches what dead daemons left at `path`; says so where a live one or something else is there.
pub(crate) fn clear(path: &Path) -> Result<(), MountError> {
    loop {
        match look(path) {
            Ok(Found::Nothing) => return Ok(()),
            Ok(Found::Dead(mount)) => {
                tracing::warn!("detaching what a colonyd that died left at {}", path.display());
                detach(&mount).map_err(|source| MountError::System {
                    what: "detaching the dead mount at",
                    path: path.to_owned(),
                    source,
                    hint: Some("this needs root or CAP_SYS_ADMIN"),
                })?;
            }
            Ok(Found::Alive) => return Err(MountError::Running(path.to_owned())),
            Ok(Found::Foreign(what)) => return Err(MountError::Foreign { path: path.to_owned(), what }),
            Err(source) => {
                return Err(MountError::System {
                    what: "looking at the mount point",
                    path: path.to_owned(),
                    source,
                    hint: None,
                });
            }
        }
    }
}

/// Detaches the tree at `path` where its daemon is gone; whether nothing of the kind is there any more.
pub(crate) fn detach_dead(path: &Path) -> bool {
    match look(path) {
        Ok(Found::Dead(mount)) => detach(&mount).is_ok(),
        Ok(Found::Alive) | Err(_) => false,
        Ok(Found::Nothing | Found::Foreign(_)) => true,
    }
}

/// Detaches what is mounted at `path`, alive or not; nothing there is fine.
pub(crate) fn detach_path(path: &Path) -> io::Result<()> {
    match nix::mount::umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Removes the directory unless somebody else has taken it in the meantime.
pub(crate) fn remove_directory(path: &Path) {
    let free = File::open(path).is_ok_and(|d| Flock::lock(d, FlockArg::LockExclusiveNonblock).is_ok());
    if free {
        let _ = std::fs::remove_dir(path);
    }
}

/// Detaches exactly the mount that `mount` was opened on, whatever has been mounted over it since.
fn detach(mount: &OwnedFd) -> io::Result<()> {
    let link = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(nix::mount::umount2(link.as_str(), MntFlags::MNT_DETACH)?)
}

fn look(path: &Path) -> io::Result<Found> {
    // O_PATH asks the file system nothing, so that a dead one does not answer with an error
    let place =
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path);
    let fd = match place {
        Ok(file) => OwnedFd::from(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(e) => return Err(e),
    };
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = info.lines().find_map(|l| l.strip_prefix("mnt_id:")).map(str::trim).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let absolute = std::path::absolute(path)?;
    match mounts.lines().filter_map(MountLine::parse).find(|m| m.id == id) {
        Some(m) if Path::new(&m.at) != canonical(&absolute) => Ok(Found::Nothing),
        Some(m) if m.kind.starts_with("fuse") && m.source == SOURCE => Ok(match answers(&fd) {
            Some(false) => Found::Dead(fd),
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

/// Whether a FUSE file system still has its daemon; `None` where the daemon is there and does not answer.
fn answers(mount: &OwnedFd) -> Option<bool> {
    let mount = mount.try_clone().ok()?;
    let (tell, told) = mpsc::channel();
    // a stopped daemon would keep the question waiting for ever: let it wait alone
    std::thread::spawn(move || {
        let _ = tell.send(nix::sys::statfs::fstatfs(mount.as_fd()).map(drop));
    });
    match told.recv_timeout(ANSWER) {
        Ok(Err(Errno::ENOTCONN | Errno::ECONNABORTED)) => Some(false),
        Ok(_) => Some(true),
        Err(_) => None,
    }
}

/// A line of `/proc/self/mountinfo`.
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
    fn places_without_a_mount_are_free_and_others_are_not_ours() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert!(matches!(look(dir.path()), Ok(Found::Nothing)));
        assert!(matches!(look(&dir.path().join("missing")), Ok(Found::Nothing)));
        assert!(matches!(look(Path::new("/proc")), Ok(Found::Foreign(_))));
        assert!(matches!(clear(Path::new("/proc")), Err(MountError::Foreign { .. })));
    }

    #[test]
    fn a_place_is_taken_once_and_removed_only_when_free() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("colony");
        let place = Place::take(&path).expect("free");
        assert!(place.created() && path.is_dir());
        assert!(matches!(Place::take(&path), Err(MountError::Running(_))));
        remove_directory(&path);
        assert!(path.is_dir(), "somebody has it");
        drop(place);
        assert!(!Place::take(&path).expect("free again").created());
        remove_directory(&path);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_cannot_be_says_why() {
        let error = Place::take(Path::new("/nonexistent/deep/colony")).expect_err("no parent").to_string();
        assert!(error.contains("/nonexistent/deep/colony") && error.contains("parent"), "{error}");
    }

    proptest! {
        #[test]
        fn no_line_panics(line in r"[0-9 /a-z\\:é-]{0,80}") {
            let _ = MountLine::parse(&line);
            let _ = unescaped(&line);
        }
    }
}
