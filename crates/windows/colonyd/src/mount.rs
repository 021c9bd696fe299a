// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mount point: its directory, the mount, and the dead mount of an earlier daemon.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use colony_sched::undo::mount::{Found, SOURCE, detach, inspect, remove_directory};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags};

/// A tree that cannot be mounted.
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
        /// The operation that failed.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
        /// The remedy, if one is known.
        hint: Option<&'static str>,
    },
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
        if !same || !matches!(inspect(&path), Ok(Found::Nothing)) {
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

    /// Returns `true` if [`Self::take`] made the directory.
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

/// Detaches the mounts of dead daemons at `path`. A mount of a live daemon or another file system is an error.
pub(crate) fn clear(path: &Path) -> Result<(), MountError> {
    loop {
        match inspect(path) {
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

/// Detaches what is mounted at `path`, alive or not; nothing there is fine.
pub(crate) fn detach_path(path: &Path) -> io::Result<()> {
    match nix::mount::umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_a_mount_is_clear_and_another_file_system_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert!(clear(dir.path()).is_ok());
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
}
