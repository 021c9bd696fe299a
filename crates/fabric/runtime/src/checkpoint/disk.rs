// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints in files: the folder `NUMBER` has a file `PE.image` of each PE.
//!
//! A file gets its name once it is whole and on the disk, so a checkpoint is complete when the files of all PEs are there:
//! PEs need not agree, and write while the program runs on.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::store::Image;

/// The first bytes of a file.
const MAGIC: &[u8; 8] = b"COLONYC1";
/// The longest head.
const MOST_HEAD: u32 = 1 << 16;

/// The head of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    build: String,
    /// The run that wrote it. Files of one number that were written by different runs are no checkpoint.
    run: u64,
    number: u64,
    pe: u32,
    pes: u32,
    length: u64,
    checksum: u32,
}

/// A checkpoint on disk that cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// The system refuses something.
    #[error("{}: {source}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file is not that of a checkpoint of this program.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// A folder of checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

/// A checkpoint of which the files of all PEs are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Complete {
    pub(crate) folder: PathBuf,
    pub(crate) number: u64,
    /// PEs of the job that made it.
    pub(crate) pes: u32,
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> DiskError + use<'_> {
    move |source| DiskError::System { path: path.to_owned(), source }
}

impl Folder {
    fn of(&self, number: u64) -> PathBuf {
        self.0.join(number.to_string())
    }

    fn file(&self, number: u64, pe: u32) -> PathBuf {
        self.of(number).join(format!("{pe}.image"))
    }

    /// Writes the image of a PE. The file is there whole, or not at all.
    pub(crate) fn write(
        &self,
        (number, pe): (u64, u32),
        pes: u32,
        run: u64,
        image: &Image,
    ) -> Result<(), DiskError> {
        let (folder, path) = (self.of(number), self.file(number, pe));
        fs::create_dir_all(&folder).map_err(system(&folder))?;
        let part = folder.join(format!("{pe}.part"));
        let build = crate::build::id();
        let head = Head { build, run, number, pe, pes, length: image.length(), checksum: image.checksum() };
        let written = write_file(&part, &head, image).and_then(|()| fs::rename(&part, &path));
        written.map_err(|source| {
            let _ = fs::remove_file(&part);
            DiskError::System { path, source }
        })
    }

    /// Drops the checkpoints before `number`, if that is complete.
    pub(crate) fn clean(&self, number: u64, pes: u32) {
        if !self.is_complete(number, pes) {
            return;
        }
        for older in self.numbers().unwrap_or_default().into_iter().filter(|older| *older < number) {
            let folder = self.of(older);
            let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
            for file in files.filter(|file| file.extension().is_some_and(|e| e == "image" || e == "part")) {
                // all PEs remove them, and a file that stays is older than those that are used
                let _ = fs::remove_file(file);
            }
            let _ = fs::remove_dir(folder);
        }
    }

    /// The numbers of all checkpoints, complete or not.
    fn numbers(&self) -> Result<Vec<u64>, DiskError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(system(&self.0)(e)),
        };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(numbers.collect())
    }

    /// Returns `true` if the files of all PEs are there, and one run has written them.
    fn is_complete(&self, number: u64, pes: u32) -> bool {
        let run = |pe| open(&self.file(number, pe)).ok().map(|(head, _)| head.run);
        let first = run(0);
        first.is_some() && (1..pes).all(|pe| run(pe) == first)
    }

    /// Returns `true` if there is no checkpoint, complete or not.
    pub(crate) fn is_empty(&self) -> Result<bool, DiskError> {
        self.numbers().map(|numbers| numbers.is_empty())
    }

    /// The newest complete checkpoint.
    pub(crate) fn newest(&self) -> Result<Option<Complete>, DiskError> {
        let mut numbers = self.numbers()?;
        numbers.sort_unstable();
        for number in numbers.into_iter().rev() {
            let folder = self.of(number);
            let Some(first) = fs::read_dir(&folder).ok().and_then(|entries| {
                let names = entries.flatten().map(|entry| entry.path());
                names.filter(|path| path.extension().is_some_and(|extension| extension == "image")).min()
            }) else {
                continue;
            };
            let (head, _) = open(&first)?;
            if self.is_complete(number, head.pes) {
                return Ok(Some(Complete { folder: self.0.clone(), number, pes: head.pes }));
            }
        }
        Ok(None)
    }
}

impl Complete {
    /// Reads the image of a PE.
    pub(crate) fn read(&self, pe: u32) -> Result<Vec<u8>, DiskError> {
        let path = Folder(self.folder.clone()).file(self.number, pe);
        let unusable = |reason: String| DiskError::Unusable { path: path.clone(), reason };
        let (head, mut file) = open(&path)?;
        if (head.number, head.pe, head.pes) != (self.number, pe, self.pes) {
            return Err(unusable(format!(
                "is the image of PE {} of {} in checkpoint {}",
                head.pe, head.pes, head.number
            )));
        }
        let mut bytes = Vec::new();
        let length = usize::try_from(head.length).ok();
        if length.is_none_or(|length| bytes.try_reserve_exact(length).is_err()) {
            return Err(unusable(format!("there is no memory for its {} bytes", head.length)));
        }
        file.read_to_end(&mut bytes).map_err(system(&path))?;
        if bytes.len() as u64 != head.length || crc32fast::hash(&bytes) != head.checksum {
            return Err(unusable(
                "is corrupt: its length or checksum is wrong; use an older checkpoint".to_owned(),
            ));
        }
        Ok(bytes)
    }
}

fn write_file(path: &Path, head: &Head, image: &Image) -> io::Result<()> {
    let head = postcard::to_allocvec(head).map_err(io::Error::other)?;
    let mut file = File::create(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&(head.len() as u32).to_le_bytes())?;
    file.write_all(&head)?;
    image.pieces().iter().try_for_each(|piece| file.write_all(&piece.bytes))?;
    file.sync_all()
}

/// Opens a file and reads its head.
fn open(path: &Path) -> Result<(Head, BufReader<File>), DiskError> {
    let unusable = |reason: &str| DiskError::Unusable { path: path.to_owned(), reason: reason.to_owned() };
    let mut file = BufReader::new(File::open(path).map_err(system(path))?);
    let mut begin = [0; 12];
    let no_checkpoint = "is no file of a checkpoint";
    file.read_exact(&mut begin).map_err(|_| unusable(no_checkpoint))?;
    let length = u32::from_le_bytes([begin[8], begin[9], begin[10], begin[11]]);
    if begin[..8] != MAGIC[..] || length > MOST_HEAD {
        return Err(unusable(no_checkpoint));
    }
    let mut head = vec![0; length as usize];
    file.read_exact(&mut head).map_err(|_| unusable(no_checkpoint))?;
    let head: Head = postcard::from_bytes(&head).map_err(|_| unusable(no_checkpoint))?;
    if head.build != crate::build::id() {
        return Err(unusable("was written by another build of a program; restart with the same build"));
    }
    Ok((head, file))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder(dir.path().join("checkpoints"));
        (dir, folder)
    }

    fn image(seed: u8) -> Image {
        Image::new((0..1000u32).map(|i| (i as u8).wrapping_mul(seed)).collect())
    }

    #[test]
    fn the_newest_checkpoint_with_all_files_is_used_and_older_ones_are_dropped() {
        let (_dir, folder) = folder();
        assert_eq!(folder.newest().expect("no folder is no checkpoint"), None);
        for (number, pe) in [(3, 0), (3, 1), (12, 1)] {
            folder.write((number, pe), 2, 1, &image(number as u8)).expect("room");
        }
        let third = Complete { folder: folder.0.clone(), number: 3, pes: 2 };
        assert_eq!(folder.newest().expect("readable"), Some(third.clone()));
        assert_eq!(third.read(1).expect("whole"), *image(3).bytes());
        folder.clean(12, 2);
        assert_eq!(folder.newest().expect("readable"), Some(third.clone()), "the new one is not complete");
        folder.write((12, 0), 2, 7, &image(12)).expect("room");
        assert_eq!(folder.newest().expect("readable"), Some(third.clone()), "the new one is of two runs");
        folder.write((12, 0), 2, 1, &image(12)).expect("room");
        (0..2).for_each(|_| folder.clean(12, 2));
        assert_eq!(folder.numbers().expect("readable"), [12]);
    }

    #[test]
    fn files_that_are_damaged_or_of_others_are_refused() {
        let (_dir, folder) = folder();
        folder.write((0, 0), 1, 1, &image(1)).expect("room");
        let only = Complete { folder: folder.0.clone(), number: 0, pes: 1 };
        let path = folder.file(0, 0);
        let whole = fs::read(&path).expect("written");
        for (at, flip) in [(0, 1), (9, 0x80), (20, 1), (whole.len() - 5, 4)] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&path, bytes).expect("room");
            assert!(only.read(0).is_err(), "byte {at}");
        }
        fs::write(&path, &whole[..whole.len() - 1]).expect("room");
        assert!(only.read(0).expect_err("cut").to_string().contains("corrupt"));
        fs::write(&path, &whole).expect("room");
        let another = Complete { pes: 2, ..only };
        assert!(another.read(0).expect_err("another").to_string().contains("PE 0 of 1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn any_bytes_are_a_checkpoint_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (_dir, folder) = folder();
            fs::create_dir_all(folder.of(0)).expect("room");
            fs::write(folder.file(0, 0), &bytes).expect("room");
            let checkpoint = Complete { folder: folder.0.clone(), number: 0, pes: 1 };
            prop_assert!(checkpoint.read(0).is_err());
            let _ = folder.newest();
        }
    }
}
