// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints in files: the folder `NUMBER` has a file `PE.image` of each PE.
//!
//! A file gets its name once it is whole and on the disk, so a checkpoint is complete when the files of all PEs are there:
//! PEs need not agree, and write while the program runs on.
//!
//! A program trusts what its images unpack into: objects of Python are pickles, which can run any code. So only files are
//! read that no other user can have written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::store::Image;

/// The first bytes of a file.
const MAGIC: &[u8; 8] = b"COLONYC1";
/// The longest head.
const MOST_HEAD: u32 = 1 << 16;
/// Rights of a group and of others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

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
    /// A file is not whole.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, and the remedy.
        reason: String,
    },
    /// A file is not that of a checkpoint of this program, or may have been written by another user.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason, and the remedy.
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

    /// Writes the image of a PE. The file is there whole, or not at all, also after the node has lost its power.
    pub(crate) fn write(
        &self,
        (number, pe): (u64, u32),
        pes: u32,
        run: u64,
        image: &Image,
    ) -> Result<(), DiskError> {
        let (folder, path) = (self.of(number), self.file(number, pe));
        self.create(&folder)?;
        let part = folder.join(format!("{pe}.part"));
        let build = crate::build::id();
        let head = Head { build, run, number, pe, pes, length: image.length(), checksum: image.checksum() };
        let written = write_file(&part, &head, image).and_then(|()| publish(&part, &path, &mut sync_folder));
        written.map_err(|source| {
            let _ = fs::remove_file(&part);
            DiskError::System { path, source }
        })
    }

    /// Creates the folder of a checkpoint, which is for its user only.
    fn create(&self, folder: &Path) -> Result<(), DiskError> {
        fs::create_dir_all(&self.0).map_err(system(&self.0))?;
        match DirBuilder::new().mode(0o700).create(folder) {
            // by another PE
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            created => created.map_err(system(folder)),
        }
    }

    /// Keeps the newest `kept` complete checkpoints, of which `number` is one, and drops those before them. If `number` is not
    /// complete, nothing is dropped.
    pub(crate) fn clean(&self, number: u64, pes: u32, kept: u32) {
        if !self.is_complete(number, pes) {
            return;
        }
        let mut older = self.numbers().unwrap_or_default();
        older.retain(|older| *older < number);
        older.sort_unstable();
        let mut left = kept.saturating_sub(1);
        for older in older.into_iter().rev() {
            if left > 0 && self.complete(older).is_ok_and(|complete| complete.is_some()) {
                left -= 1;
            } else {
                self.remove(older);
            }
        }
    }

    /// Removes a checkpoint. All PEs do, and a file that stays is older than those that are used.
    fn remove(&self, number: u64) {
        let folder = self.of(number);
        let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in files.filter(|file| file.extension().is_some_and(|e| e == "image" || e == "part")) {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(folder);
    }

    /// The numbers of all checkpoints, complete or not.
    fn numbers(&self) -> Result<Vec<u64>, DiskError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
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

    /// The newest complete checkpoint: incomplete and damaged checkpoints are passed over.
    pub(crate) fn newest(&self) -> Result<Option<Complete>, DiskError> {
        self.newest_before(u64::MAX)
    }

    /// The newest complete checkpoint with a smaller number.
    fn newest_before(&self, number: u64) -> Result<Option<Complete>, DiskError> {
        let mut numbers = self.numbers()?;
        numbers.retain(|one| *one < number);
        numbers.sort_unstable();
        let mut damaged = None;
        for number in numbers.into_iter().rev() {
            match self.complete(number) {
                Ok(None) => {}
                Ok(complete) => return Ok(complete),
                Err(error @ DiskError::Damaged { .. }) => {
                    damaged.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        damaged.map_or(Ok(None), Err)
    }

    /// The checkpoint of this number, if it is complete.
    fn complete(&self, number: u64) -> Result<Option<Complete>, DiskError> {
        let names = fs::read_dir(self.of(number)).into_iter().flatten().flatten().map(|entry| entry.path());
        let images = names.filter(|path| path.extension().is_some_and(|extension| extension == "image"));
        let Some(first) = images.min() else { return Ok(None) };
        let (Head { pes, .. }, _) = open(&first)?;
        let complete = Complete { folder: self.0.clone(), number, pes };
        Ok(self.is_complete(number, pes).then_some(complete))
    }

    /// The number of the newest checkpoint, complete or not.
    pub(crate) fn last_number(&self) -> Option<u64> {
        self.numbers().unwrap_or_default().into_iter().max()
    }
}

impl Complete {
    /// Reads the image of a PE.
    pub(crate) fn read(&self, pe: u32) -> Result<Vec<u8>, DiskError> {
        let path = Folder(self.folder.clone()).file(self.number, pe);
        let refused = |reason: String| DiskError::Refused { path: path.clone(), reason };
        let (head, mut file) = open(&path)?;
        if (head.number, head.pe, head.pes) != (self.number, pe, self.pes) {
            return Err(refused(format!(
                "is the image of PE {} of {} in checkpoint {}",
                head.pe, head.pes, head.number
            )));
        }
        let mut bytes = Vec::new();
        let length = usize::try_from(head.length).ok();
        if length.is_none_or(|length| bytes.try_reserve_exact(length).is_err()) {
            return Err(refused(format!("there is no memory for its {} bytes", head.length)));
        }
        file.read_to_end(&mut bytes).map_err(system(&path))?;
        if bytes.len() as u64 != head.length || crc32fast::hash(&bytes) != head.checksum {
            let reason = format!("is corrupt: its checksum is wrong; {}", self.remedy());
            return Err(DiskError::Damaged { path, reason });
        }
        Ok(bytes)
    }

    /// What a user can do if this checkpoint is damaged.
    fn remedy(&self) -> String {
        let folder = Folder(self.folder.clone());
        match folder.newest_before(self.number) {
            Ok(Some(before)) => {
                let own = folder.of(self.number);
                format!("to restart from checkpoint {}, remove {}", before.number, own.display())
            }
            _ => "there is no complete checkpoint before it".to_owned(),
        }
    }
}

fn write_file(path: &Path, head: &Head, image: &Image) -> io::Result<()> {
    let head = postcard::to_allocvec(head).map_err(io::Error::other)?;
    // left by a process that has ended while it wrote; a file of another user is not written to
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&(head.len() as u32).to_le_bytes())?;
    file.write_all(&head)?;
    image.pieces().iter().try_for_each(|piece| file.write_all(&piece.bytes))?;
    file.sync_all()
}

/// Gives a file that is on the disk its name, which is on the disk then, too. `sync` writes a folder to the disk.
fn publish(part: &Path, path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    fs::rename(part, path)?;
    // the folder of the checkpoint has the name of the file, and the one above has the name of the folder
    path.ancestors().skip(1).take(2).try_for_each(sync)
}

/// Writes the names in a folder to the disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // a file system without this operation
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Opens a file and reads its head.
fn open(path: &Path) -> Result<(Head, BufReader<File>), DiskError> {
    let damaged = |reason: &str| DiskError::Damaged { path: path.to_owned(), reason: reason.to_owned() };
    let file = File::open(path).map_err(system(path))?;
    let metadata = file.metadata().map_err(system(path))?;
    check_writers(path, &metadata)?;
    let mut file = BufReader::new(file);
    let mut begin = [0; 12];
    let no_checkpoint = "is no file of a checkpoint";
    file.read_exact(&mut begin).map_err(|_| damaged(no_checkpoint))?;
    let length = u32::from_le_bytes([begin[8], begin[9], begin[10], begin[11]]);
    if begin[..8] != MAGIC[..] || length > MOST_HEAD {
        return Err(damaged(no_checkpoint));
    }
    let mut head = vec![0; length as usize];
    file.read_exact(&mut head).map_err(|_| damaged(no_checkpoint))?;
    let head: Head = postcard::from_bytes(&head).map_err(|_| damaged(no_checkpoint))?;
    if head.build != crate::build::id() {
        let reason = "was written by another build of a program; restart with the same build".to_owned();
        return Err(DiskError::Refused { path: path.to_owned(), reason });
    }
    let before = (begin.len() as u64) + u64::from(length);
    if metadata.len().checked_sub(before) != Some(head.length) {
        return Err(damaged("is corrupt: its length is wrong"));
    }
    Ok((head, file))
}

/// Refuses a file that another user than this one and root can have written.
fn check_writers(path: &Path, metadata: &fs::Metadata) -> Result<(), DiskError> {
    let refused = |reason: String| Err(DiskError::Refused { path: path.to_owned(), reason });
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != own && owner != 0 {
        return refused(format!(
            "belongs to user {owner}, and this is user {own}: restart from a copy if you trust its content"
        ));
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return refused(
            "other users can change it: take their rights by `chmod go-w` if you trust it".to_owned(),
        );
    }
    Ok(())
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
        folder.clean(12, 2, 1);
        assert_eq!(folder.newest().expect("readable"), Some(third.clone()), "the new one is not complete");
        folder.write((12, 0), 2, 7, &image(12)).expect("room");
        assert_eq!(folder.newest().expect("readable"), Some(third.clone()), "the new one is of two runs");
        folder.write((12, 0), 2, 1, &image(12)).expect("room");
        (0..2).for_each(|_| folder.clean(12, 2, 1));
        assert_eq!(folder.numbers().expect("readable"), [12]);
    }

    fn numbers(folder: &Folder) -> Vec<u64> {
        let mut numbers = folder.numbers().expect("readable");
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn so_many_complete_checkpoints_are_kept_and_no_incomplete_one_before_them() {
        let (_dir, folder) = folder();
        let write = |number: u64, pes: u32| {
            (0..pes).for_each(|pe| folder.write((number, pe), pes, 1, &image(3)).expect("room"));
        };
        [1, 2, 4].into_iter().for_each(|number| write(number, 2));
        // of 5, one file is missing; the job goes on with three PEs then
        folder.write((5, 0), 2, 1, &image(3)).expect("room");
        write(6, 3);
        folder.clean(6, 3, 3);
        assert_eq!(numbers(&folder), [2, 4, 6]);
        write(7, 3);
        (0..3).for_each(|_| folder.clean(7, 3, 2));
        assert_eq!(numbers(&folder), [6, 7]);
    }

    #[test]
    fn a_damaged_checkpoint_leaves_the_one_before_it() {
        let (_dir, folder) = folder();
        for number in [4, 5] {
            folder.write((number, 0), 1, 1, &image(3)).expect("room");
            folder.clean(number, 1, 2);
        }
        let path = folder.file(5, 0);
        let whole = fs::read(&path).expect("written");
        let newest = || folder.newest().expect("readable").map(|complete| complete.number);
        assert_eq!(newest(), Some(5));
        // a file that is too short, or too long, is found by its length
        for wrong in [&whole[..whole.len() - 1], &whole[..40], &[], &[&whole[..], &[0]].concat()] {
            fs::write(&path, wrong).expect("room");
            assert_eq!(newest(), Some(4), "{} bytes", wrong.len());
        }
        let mut flipped = whole.clone();
        flipped[whole.len() - 5] ^= 4;
        fs::write(&path, &flipped).expect("room");
        let last = folder.newest().expect("readable").expect("its length is right");
        let error = last.read(0).expect_err("its checksum is wrong").to_string();
        let remedy = format!("to restart from checkpoint 4, remove {}", folder.of(5).display());
        assert!(error.contains("is corrupt") && error.ends_with(&remedy), "{error}");
        folder.remove(4);
        let error = last.read(0).expect_err("its checksum is wrong").to_string();
        assert!(error.ends_with("there is no complete checkpoint before it"), "{error}");
        fs::write(&path, b"short").expect("room");
        assert!(matches!(folder.newest(), Err(DiskError::Damaged { .. })), "not taken for no checkpoint");
    }

    #[test]
    fn a_file_has_its_name_before_the_folders_are_written_to_the_disk() {
        let (_dir, folder) = folder();
        folder.create(&folder.of(0)).expect("room");
        let (part, path) = (folder.of(0).join("0.part"), folder.file(0, 0));
        fs::write(&part, b"whole").expect("room");
        let mut synced = Vec::new();
        let mut note = |folder: &Path| {
            assert!(path.is_file() && !part.exists());
            synced.push(folder.to_owned());
            Ok(())
        };
        publish(&part, &path, &mut note).expect("renamed");
        assert_eq!(synced, [folder.of(0), folder.0.clone()]);
        synced.iter().for_each(|folder| sync_folder(folder).expect("written"));
        fs::write(&part, b"whole").expect("room");
        let mut refuse = |_: &Path| Err(io::Error::other("no disk"));
        assert!(publish(&part, &path, &mut refuse).is_err(), "the checkpoint does not count as written");
        assert!(sync_folder(&folder.of(1)).is_err());
    }

    #[test]
    fn a_file_that_another_user_can_have_written_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, folder) = folder();
        folder.write((0, 0), 1, 1, &image(1)).expect("room");
        let only = Complete { folder: folder.0.clone(), number: 0, pes: 1 };
        let path = folder.file(0, 0);
        assert_eq!(fs::metadata(&path).expect("written").mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(folder.of(0)).expect("written").mode() & 0o777, 0o700);
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            let error = only.read(0).expect_err("anyone can have written it").to_string();
            assert!(error.contains("chmod go-w"), "{error}");
            assert!(matches!(folder.newest(), Err(DiskError::Refused { .. })), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        assert!(only.read(0).is_ok());
        if !geteuid().is_root() {
            colony_testing::skip("a file of another user needs root");
            return;
        }
        std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
        let error = only.read(0).expect_err("of another user").to_string();
        assert!(error.contains("belongs to user 65534, and this is user 0"), "{error}");
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
