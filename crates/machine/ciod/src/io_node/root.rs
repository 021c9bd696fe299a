// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a job on a Linux I/O node: a root directory of its own, with the program and what was copied, in which
//! nothing is left of other jobs. It lies in memory, and is removed with the job.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::export::{Mount, is_seen};
use super::wire::{FileHead, Seen};

/// Bytes of the files of all jobs on an I/O node at most. There is memory for them beside that of the compute nodes.
const ROOM: &str = "size=256m,mode=755";
/// Devices that a job sees.
const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];
/// Links beside them.
const LINKS: [(&str, &str); 4] =
    [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")];

/// The root directory of a job; dropping it removes it.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    /// The file that began last.
    file: Option<File>,
    mounted: Vec<PathBuf>,
    /// Places where files of the host are seen.
    seen: Vec<Mount>,
    /// Something is mounted that could not be taken away.
    is_kept: bool,
}

/// Makes room for the files of jobs.
///
/// # Errors
/// If the system refuses it.
pub(super) fn prepare(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place)?;
    Ok(mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), Some(ROOM))?)
}

impl Root {
    /// An empty one.
    ///
    /// # Errors
    /// If it is there, or cannot be made.
    pub(super) fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        let root = Self { path, file: None, mounted: Vec::new(), seen: Vec::new(), is_kept: false };
        root.folder(Path::new("/tmp"))?;
        fs::set_permissions(root.path.join("tmp"), Permissions::from_mode(0o1777))?;
        Ok(root)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of a path of the job. No path leads out: there are only folders and regular files below.
    fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let mut place = self.path.clone();
        for part in path.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => place.push(name),
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::other(format!("{}: a path without .. is needed", path.display())));
                }
            }
        }
        Ok(place)
    }

    fn folder(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.place(path)?;
        fs::create_dir_all(&place)?;
        Ok(place)
    }

    /// A file or a folder begins; [`Root::data`] follows.
    pub(super) fn begin(&mut self, head: &FileHead) -> io::Result<()> {
        self.file = None;
        let Some(mode) = head.mode else { return self.folder(&head.path).map(drop) };
        let place = self.place(&head.path)?;
        if let Some(above) = place.parent() {
            fs::create_dir_all(above)?;
        }
        // the process has no umask that would take a right away
        let file = File::options().write(true).create(true).truncate(true).mode(mode & 0o777).open(&place)?;
        file.set_permissions(Permissions::from_mode(mode & 0o777))?;
        self.file = Some(file);
        Ok(())
    }

    /// More of the file that began last.
    pub(super) fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().ok_or_else(|| io::Error::other("no file began"))?.write_all(bytes)
    }

    /// No more files follow: makes the directory that the job starts in, which belongs to its user unless it was copied, and
    /// shows the job what every Linux system has, and the files of the host.
    pub(super) fn finish(
        &mut self,
        directory: &Path,
        (uid, gid): (u32, u32),
        seen: &[Seen],
    ) -> io::Result<()> {
        self.file = None;
        let place = self.place(directory)?;
        let is_of_host = is_seen(directory, seen.iter().map(|seen| seen.path.as_path()));
        if !is_of_host && !place.exists() {
            fs::create_dir_all(&place)?;
            chown(&place, Some(uid), Some(gid))?;
        }
        self.show(Path::new("/proc"))?;
        for (name, target) in LINKS {
            let link = self.folder(Path::new("/dev"))?.join(name);
            symlink(target, link)?;
        }
        for name in DEVICES {
            let place = Path::new("/dev").join(name);
            File::create(self.place(&place)?)?;
            self.show(&place)?;
        }
        for seen in seen {
            let place = self.place(&seen.path)?;
            self.seen.push(Mount::new(place, seen.read_only, (uid, gid))?);
        }
        Ok(())
    }

    /// The kernel's ends of the places where files of the host are seen, in their order.
    pub(super) fn devices(&self) -> Vec<Arc<File>> {
        self.seen.iter().map(Mount::device).collect()
    }

    /// Takes the files of the host away: whoever waits for them gets an error.
    pub(super) fn end_seen(&mut self) {
        for seen in self.seen.drain(..) {
            self.is_kept |= !seen.end();
        }
    }

    /// Shows the job a file or folder of the I/O node, at its own path.
    fn show(&mut self, path: &Path) -> io::Result<()> {
        let to = self.place(path)?;
        if path.is_dir() {
            fs::create_dir_all(&to)?;
        }
        mount(Some(path), &to, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        self.mounted.push(to);
        Ok(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.end_seen();
        let gone = |place: &PathBuf| umount2(place, MntFlags::MNT_DETACH).is_ok();
        // what is still mounted is not the job's to remove
        if self.mounted.iter().all(gone) && !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str, mode: Option<u32>) -> FileHead {
        FileHead { path: path.into(), mode }
    }

    #[test]
    fn files_arrive_at_their_paths_and_leave_with_the_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("1");
        let mut root = Root::new(path.clone()).expect("made");
        assert!(root.data(b"lost").is_err(), "no file began");
        root.begin(&head("/a/b/program", Some(0o755))).expect("begun");
        root.data(b"one ").and_then(|()| root.data(b"two")).expect("written");
        root.begin(&head("/empty", None)).expect("a folder");
        assert!(root.data(b"lost").is_err(), "a folder takes no data");
        assert_eq!(fs::read(path.join("a/b/program")).expect("there"), b"one two");
        let mode = |name: &str| fs::metadata(path.join(name)).expect("there").permissions().mode() & 0o7777;
        assert_eq!((mode("a/b/program"), mode("tmp")), (0o755, 0o1777));
        assert!(Root::new(path.clone()).is_err(), "one job at a place");
        drop(root);
        assert!(!path.exists());
    }

    #[test]
    fn no_path_leads_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut root = Root::new(folder.path().join("1")).expect("made");
        for path in ["/../out", "/a/../../out", ".."] {
            assert!(root.begin(&head(path, Some(0o644))).is_err(), "{path}");
            assert!(root.begin(&head(path, None)).is_err(), "{path}");
        }
        root.begin(&head("relative/./name", Some(0o6777))).expect("below the root");
        let about = fs::metadata(folder.path().join("1/relative/name")).expect("there");
        assert_eq!(about.permissions().mode() & 0o7777, 0o777, "no rights of another user");
        assert!(!folder.path().join("out").exists());
    }
}
