// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files, and the folder they are in.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use colony_ledger::state::{Form, folder};
use colony_node::task::TaskId;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest file: 16,384 tasks of 200 bytes, and room.
const LARGEST: u64 = 16 << 20;

/// A file with what has to be undone if this process dies.
#[derive(Debug)]
pub struct UndoFile<T> {
    path: PathBuf,
    content: PhantomData<fn(&T)>,
}

/// Versions from before the ledger have written this form, too: [`FormerBindings`](super::FormerBindings) reads what they kept here.
const FORM: Form = Form { name: "colony.undo", version: 1, largest: LARGEST };

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
    /// More than 16 MiB, which no reader would take, or what the file system says. The file is as it was then.
    pub fn save(&self, what: &T) -> io::Result<()> {
        FORM.write(&self.path, what)
    }

    /// Removes the file: nothing is left to undo.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The files of this `kind` whose process is dead, or is `ended`. Files of another boot are removed.
pub(crate) fn left_behind<T: DeserializeOwned>(kind: &str, ended: Option<TaskId>) -> Vec<(PathBuf, T)> {
    let Ok(folder) = folder() else { return Vec::new() };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) => {
            tracing::error!(
                "what programs that were killed have changed is not undone: {}: {e}",
                folder.display()
            );
            return Vec::new();
        }
    };
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
            let what = read_to_undo(&path)?;
            Some((path, what))
        })
        .collect()
}

/// Reads a file of this boot. A file of another boot is removed. One that cannot be read stays, because another version of Colony
/// may be able to read it, and is in the log.
pub(crate) fn read_to_undo<T: DeserializeOwned>(path: &Path) -> Option<T> {
    match FORM.read(path) {
        Ok(Some(what)) => Some(what),
        Ok(None) => {
            let _ = fs::remove_file(path);
            None
        }
        // another process has undone it
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(why) => {
            tracing::error!(
                "changes of a program that was killed are not undone: {}: {why}; see docs/coordinate.md, and remove \
                 the file when the node is as it was",
                path.display()
            );
            None
        }
    }
}

/// Writes what is still to be undone into a file that was read.
///
/// # Errors
/// As [`UndoFile::save`].
pub(crate) fn rewrite<T: Serialize>(path: &Path, what: &T) -> io::Result<()> {
    FORM.write(path, what)
}

/// Returns `true` if there are undo files of a process.
pub(crate) fn has_files(process: TaskId) -> bool {
    let Ok(entries) = folder().and_then(fs::read_dir) else { return false };
    entries.filter_map(|e| Some(e.ok()?.path())).any(|path| owner(&path) == Some(process))
}

/// The process a file is named after.
fn owner(path: &Path) -> Option<TaskId> {
    let mut numbers = path.file_name()?.to_str()?.split('.');
    Some(TaskId { tid: numbers.next()?.parse().ok()?, start_ticks: numbers.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_of_a_living_process_is_left_alone_and_one_of_a_dead_one_is_found() {
        if !colony_testing::machine::has_undo_folder() {
            return;
        }
        let file = UndoFile::<Vec<u32>>::new("test").expect("a folder");
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

    #[test]
    fn a_file_that_cannot_be_read_is_kept_and_one_that_is_too_large_is_not_written() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("1.2.0.test");
        fs::File::create(&path).and_then(|file| file.set_len(LARGEST + 1)).expect("a sparse file");
        assert_eq!(read_to_undo::<Vec<u32>>(&path), None);
        assert!(path.exists(), "what it says is not undone");
        if !colony_testing::machine::has_undo_folder() {
            return;
        }
        let file = UndoFile::<String>::new("test").expect("a folder");
        file.save(&"small".into()).expect("writable");
        let error = file.save(&"x".repeat(17 << 20)).expect_err("too large").to_string();
        assert!(error.contains(&LARGEST.to_string()), "{error}");
        assert_eq!(FORM.read::<String>(file.path()).expect("readable").as_deref(), Some("small"));
        file.remove();
    }

    #[test]
    fn a_file_of_another_boot_is_removed() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("1.2.0.test");
        fs::write(&path, r#"{"schema":"colony.undo/0","boot":"another","what":[1]}"#).expect("writable");
        assert_eq!(read_to_undo::<Vec<u32>>(&path), None);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }

    proptest! {
        #[test]
        fn no_content_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let file = tempfile::NamedTempFile::new().expect("temp dir");
            fs::write(file.path(), bytes).expect("writable");
            prop_assert!(FORM.read::<super::super::Tasks>(file.path()).is_err());
        }

        #[test]
        fn no_name_panics(name in ".{0,40}") {
            let _ = owner(Path::new(&name));
        }
    }
}
