// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files, and the folder they are in.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use colony_node::file::replace;
use colony_node::task::TaskId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::state::{boot, make_private};

/// The largest file that is read: 16,384 tasks of 200 bytes, and room.
const LARGEST: u64 = 16 << 20;

/// A file with what has to be undone if this process dies.
#[derive(Debug)]
pub struct UndoFile<T> {
    path: PathBuf,
    content: PhantomData<fn(&T)>,
}

#[derive(Serialize, Deserialize)]
struct Saved<T> {
    schema: String,
    /// The boot it is of: process numbers and starts mean nothing in another one.
    boot: String,
    what: T,
}

const SCHEMA: &str = "colony.undo/1";

impl<T: Serialize> UndoFile<T> {
    /// A place for files of this `kind` of this process; nothing is written yet.
    ///
    /// # Errors
    /// There is no folder for them, or it is not this user's alone.
    pub fn new(kind: &str) -> io::Result<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let me = TaskId::of(std::process::id().cast_signed()).map_err(io::Error::other)?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = folder()?.join(format!("{}.{}.{serial}.{kind}", me.tid, me.start_ticks));
        Ok(Self { path, content: PhantomData })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file anew.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn save(&self, what: &T) -> io::Result<()> {
        let saved = Saved { schema: SCHEMA.into(), boot: boot(), what };
        replace(&self.path, &serde_json::to_vec(&saved)?)
    }

    /// Removes the file: nothing is left to undo.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder of the files: accessible to this user alone, and empty after the next boot.
fn folder() -> io::Result<PathBuf> {
    let parent = if nix::unistd::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty());
        own.ok_or_else(|| io::Error::other("XDG_RUNTIME_DIR is not set"))?.into()
    };
    let folder = parent.join("colony-undo");
    make_private(&folder)?;
    Ok(folder)
}

/// Keeps all others from what the lock file `name` of the folder stands for, until it is dropped.
pub(crate) fn lock(name: &str) -> io::Result<fs::File> {
    let lock = fs::File::create(folder()?.join(name))?;
    lock.lock()?;
    Ok(lock)
}

/// The files of this `kind` whose process is dead, or is `ended`. Files of another boot are removed.
pub(crate) fn left_behind<T: DeserializeOwned>(kind: &str, ended: Option<TaskId>) -> Vec<(PathBuf, T)> {
    let Ok(entries) = folder().and_then(fs::read_dir) else { return Vec::new() };
    let paths = entries.filter_map(|e| Some(e.ok()?.path()));
    paths
        .filter(|path| path.extension().is_some_and(|e| e == kind))
        .filter(|path| {
            owner(path).is_some_and(|owner| {
                // a process of which the kernel does not tell may live
                ended == Some(owner) || !owner.is_running_process().unwrap_or(true)
            })
        })
        .filter_map(|path| {
            let what = read(&path);
            if what.is_none() {
                let _ = fs::remove_file(&path);
            }
            Some((path, what?))
        })
        .collect()
}

/// The process a file is named after.
fn owner(path: &Path) -> Option<TaskId> {
    let mut numbers = path.file_name()?.to_str()?.split('.');
    Some(TaskId { tid: numbers.next()?.parse().ok()?, start_ticks: numbers.next()?.parse().ok()? })
}

/// Reads a file of this boot; `None` for a file of another boot or in another form.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    if fs::symlink_metadata(path).ok().filter(|m| m.is_file())?.len() > LARGEST {
        return None;
    }
    let saved: Saved<T> = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (saved.schema == SCHEMA && saved.boot == boot()).then_some(saved.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_of_a_living_process_is_left_alone_and_one_of_a_dead_one_is_found() {
        let Ok(file) = UndoFile::<Vec<u32>>::new("test") else { return colony_testing::skip("no folder") };
        file.save(&vec![1, 2]).expect("writable");
        let mine = |found: &[(PathBuf, Vec<u32>)]| found.iter().any(|(p, _)| p == file.path());
        assert!(!mine(&left_behind("test", None)));
        let me = TaskId::of(std::process::id().cast_signed()).expect("alive");
        let found = left_behind("test", Some(me));
        assert!(mine(&found) && found.iter().all(|(_, what)| *what == [1, 2]));
        assert!(!mine(&left_behind::<Vec<u32>>("other", Some(me))));
        let folder = fs::symlink_metadata(file.path().parent().expect("a folder")).expect("there");
        assert_eq!(folder.mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(file.path()).expect("there").mode() & 0o777, 0o600);
        file.remove();
        assert!(!file.path().exists());
    }

    proptest! {
        #[test]
        fn no_content_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let file = tempfile::NamedTempFile::new().expect("temp dir");
            fs::write(file.path(), bytes).expect("writable");
            prop_assert!(read::<super::super::Tasks>(file.path()).is_none());
        }

        #[test]
        fn no_name_panics(name in ".{0,40}") {
            let _ = owner(Path::new(&name));
        }
    }
}
