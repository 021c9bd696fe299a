// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder that files are written to: its file system, a place in it that is removed again, and its storage.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{FsType, statfs};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

use super::{Plan, WHAT};
use crate::StudyError;
use crate::error::step;
use crate::io_nodes::thread_cpu;

/// Name of the file system that has no storage.
const TMPFS: &str = "tmpfs";

/// Most transfers without nodes.
const MOST_WITHOUT_NODES: u64 = 256;

/// A folder under test.
#[derive(Debug)]
pub struct Folder {
    /// As it was given.
    pub path: PathBuf,
    /// Name of its file system.
    pub file_system: String,
    scratch: TempDir,
}

impl Folder {
    /// Makes a place for files in the folder.
    ///
    /// # Errors
    /// [`StudyError::Step`]: a folder that is not there or not writable, or has no room for the largest case.
    pub fn new(path: &Path, plan: &Plan) -> Result<Self, StudyError> {
        let failed = |reason: String| step(WHAT, &format!("--folder {}: {reason}", path.display()));
        let path_found = path.canonicalize().map_err(|e| failed(e.to_string()))?;
        let scratch = tempfile::Builder::new()
            .prefix("colony-io-")
            .tempdir_in(&path_found)
            .map_err(|e| failed(format!("no files can be made there ({e}); give a folder of yours")))?;
        let room = statvfs(&path_found).map_err(|e| failed(e.to_string()))?;
        let free = room.blocks_available().saturating_mul(room.fragment_size());
        let needed = plan.largest_bytes();
        if free < needed {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let text =
                format!("{} MiB are free, {} are needed; give a smaller --block", mib(free), mib(needed));
            return Err(failed(text));
        }
        let kind = statfs(&path_found).map_err(|e| failed(e.to_string()))?.filesystem_type();
        Ok(Self { path: path.to_path_buf(), file_system: name(kind), scratch })
    }

    /// The place for files.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Flushes all files to the storage; time that this waited for it, ns.
    ///
    /// # Errors
    /// [`StudyError::Step`], above all if the storage is full.
    pub(super) fn flush(&self) -> Result<f64, StudyError> {
        self.waited(|path| File::options().append(true).open(path)?.sync_all())
    }

    /// Reads all files from the storage; time that this waited for it, ns. They are in memory afterwards.
    ///
    /// # Errors
    /// [`StudyError::Step`].
    pub(super) fn fetch(&self) -> Result<f64, StudyError> {
        for path in self.files()? {
            let file = File::open(&path).map_err(|e| step(WHAT, &e))?;
            // advice: a file system without storage keeps its files where they are
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        let mut piece = vec![0; 1 << 20];
        self.waited(|path| {
            let mut file = File::open(path)?;
            while file.read(&mut piece)? > 0 {}
            Ok(())
        })
    }

    /// Processor time of a write and of a read of this many bytes, ns: by this process, without nodes and I/O daemon. Files
    /// grow by it, and reads find them in memory, as those of nodes.
    ///
    /// # Errors
    /// [`StudyError::Step`].
    pub(super) fn without_nodes(&self, transfer: u64, count: u64) -> Result<[f64; 2], StudyError> {
        let bytes = vec![0x5a; usize::try_from(transfer).map_err(|e| step(WHAT, &e))?];
        let (path, count) = (self.scratch().join("without-nodes"), count.min(MOST_WITHOUT_NODES));
        let each_ns =
            |began: Duration| thread_cpu().saturating_sub(began).as_nanos() as f64 / count.max(1) as f64;
        let run = || {
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            let began = thread_cpu();
            (0..count).try_for_each(|n| file.write_all_at(&bytes, n * transfer))?;
            let (write_ns, began) = (each_ns(began), thread_cpu());
            let mut read = bytes.clone();
            (0..count).try_for_each(|n| file.read_exact_at(&mut read, n * transfer))?;
            Ok([write_ns, each_ns(began)])
        };
        let ran = run().map_err(|e: std::io::Error| step(WHAT, &e));
        self.clear().and(ran)
    }

    /// Removes the files of a case.
    pub(super) fn clear(&self) -> Result<(), StudyError> {
        self.files()?.into_iter().try_for_each(|path| std::fs::remove_file(path).map_err(|e| step(WHAT, &e)))
    }

    fn files(&self) -> Result<Vec<PathBuf>, StudyError> {
        let entries = self.scratch().read_dir().and_then(|all| all.collect::<Result<Vec<_>, _>>());
        Ok(entries.map_err(|e| step(WHAT, &e))?.into_iter().map(|entry| entry.path()).collect())
    }

    /// Does this with each file; the time that the thread neither was on a processor nor could have been, ns.
    fn waited(&self, mut with: impl FnMut(&Path) -> std::io::Result<()>) -> Result<f64, StudyError> {
        let files = self.files()?;
        let (began, ran) = (Instant::now(), runnable());
        files.iter().try_for_each(|path| with(path)).map_err(|e| step(WHAT, &e))?;
        let waited = began.elapsed().saturating_sub(runnable().saturating_sub(ran));
        // its files are in memory and nowhere else
        Ok(if self.file_system == TMPFS { 0.0 } else { waited.as_nanos() as f64 })
    }
}

/// Time that this thread was on a processor, or waited for one because of other programs.
fn runnable() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(told.split_whitespace().take(2).filter_map(|ns| ns.parse::<u64>().ok()).sum())
}

fn name(kind: FsType) -> String {
    use nix::sys::statfs as fs;
    let known = [
        (fs::TMPFS_MAGIC, TMPFS),
        (fs::EXT4_SUPER_MAGIC, "ext4"),
        (fs::NFS_SUPER_MAGIC, "nfs"),
        (fs::XFS_SUPER_MAGIC, "xfs"),
        (fs::BTRFS_SUPER_MAGIC, "btrfs"),
        (fs::OVERLAYFS_SUPER_MAGIC, "overlay"),
        (fs::FUSE_SUPER_MAGIC, "fuse"),
    ];
    known.iter().find(|k| k.0 == kind).map_or_else(|| format!("type {:#x}", kind.0), |k| k.1.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_leaves_nothing_behind_and_an_impossible_one_is_named() {
        let place = tempfile::tempdir().expect("folder");
        let plan = Plan::default();
        let folder = Folder::new(place.path(), &plan).expect("writable");
        std::fs::write(folder.scratch().join("rank-0"), vec![1; 1 << 16]).expect("written");
        assert!(folder.flush().expect("flushed") >= 0.0 && folder.fetch().expect("read") >= 0.0);
        folder.clear().expect("removed");
        let [write_ns, read_ns] = folder.without_nodes(1 << 16, 20).expect("done");
        assert!(write_ns > 0.0 && read_ns > 0.0, "{write_ns} {read_ns}");
        assert_eq!(folder.scratch().read_dir().expect("there").count(), 0);
        std::fs::write(folder.scratch().join("left"), "x").expect("written");
        drop(folder);
        assert_eq!(place.path().read_dir().expect("there").count(), 0);
        for (path, word) in [("/no/such/folder", "/no/such/folder"), ("/proc", "no files can be made")] {
            let error = Folder::new(Path::new(path), &plan).expect_err("impossible").to_string();
            assert!(error.contains(word), "{error}");
        }
        let huge = Plan { block_bytes: 1 << 50, transfers: vec![1 << 20], ..plan };
        let error = Folder::new(place.path(), &huge).expect_err("no room").to_string();
        assert!(error.contains("are free") && error.contains("--block"), "{error}");
        assert_eq!(place.path().read_dir().expect("there").count(), 0);
    }
}
