// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints in files: the folder `NUMBER` has a file `PE.image` of each PE.
//!
//! A file gets its name once it is whole and on the disk, so a checkpoint is complete when the files of all PEs are there:
//! PEs need not agree, and write while the program runs on. Its head says what the image has been made from, so that another
//! build of the program can tell whether it reads the image.
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
use crate::schema::{ClassNumbers, Description, Difference};

/// The first bytes of a file. The last one is the format.
const MAGIC: &[u8; 8] = b"COLONYC2";
/// Bytes before the head: the first ones, the length and the checksum of the head.
const BEGIN: usize = 16;
/// The longest head.
const MOST_HEAD: u32 = 1 << 24;
/// Rights of a group and of others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The head of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    description: Description,
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
    /// A file is of another program, or of a build with other classes.
    #[error("{}: {difference}", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The first difference.
        difference: Difference,
    },
}

/// The job that writes an image, for the head of the file.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) pes: u32,
    /// Files of one number that were written by different runs are no checkpoint.
    pub(crate) run: u64,
    pub(crate) description: Description,
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
        author: Author,
        image: &Image,
    ) -> Result<(), DiskError> {
        let (folder, path) = (self.of(number), self.file(number, pe));
        self.create(&folder)?;
        let part = folder.join(format!("{pe}.part"));
        let Author { pes, run, description } = author;
        let (length, checksum) = (image.length(), image.checksum());
        let head = Head { description, run, number, pe, pes, length, checksum };
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
        // what cannot be read stays
        if !matches!(self.is_complete(number, pes), Ok(true)) {
            return;
        }
        let Ok(mut older) = self.numbers() else { return };
        older.retain(|older| *older < number);
        older.sort_unstable();
        let mut left = kept.saturating_sub(1);
        for older in older.into_iter().rev() {
            match self.complete(older) {
                Ok(Some(_)) if left > 0 => left -= 1,
                Ok(_) | Err(DiskError::Damaged { .. }) => self.remove(older),
                Err(_) => {}
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
        let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
        let names = names.map_err(system(&self.0))?;
        Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
    }

    /// Returns `true` if the files of all PEs are there, and one run has written them.
    fn is_complete(&self, number: u64, pes: u32) -> Result<bool, DiskError> {
        let mut first = None;
        for pe in 0..pes {
            let Some((head, _)) = is_there(open(&self.file(number, pe)))? else { return Ok(false) };
            if *first.get_or_insert(head.run) != head.run {
                return Ok(false);
            }
        }
        Ok(first.is_some())
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
        let folder = self.of(number);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // another PE has removed it, or it is a file of the user
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(system(&folder)(e)),
        };
        let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        let paths = paths.map_err(system(&folder))?;
        let images = paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "image"));
        let Some(first) = images.min() else { return Ok(None) };
        let Some((Head { pes, .. }, _)) = is_there(open(&first))? else { return Ok(None) };
        let complete = Complete { folder: self.0.clone(), number, pes };
        Ok(self.is_complete(number, pes)?.then_some(complete))
    }

    /// The number of the newest checkpoint, complete or not.
    pub(crate) fn last_number(&self) -> Result<Option<u64>, DiskError> {
        Ok(self.numbers()?.into_iter().max())
    }
}

impl Complete {
    fn file(&self, pe: u32) -> PathBuf {
        Folder(self.folder.clone()).file(self.number, pe)
    }

    /// Refuses the checkpoint if the program that describes itself by `now` cannot read it.
    pub(crate) fn check(&self, now: &Description) -> Result<(), DiskError> {
        let path = self.file(0);
        let (head, _) = open(&path)?;
        let differs = |difference: Difference| DiskError::Differs { path, difference };
        head.description.match_classes(now).map(drop).map_err(differs)
    }

    /// Reads the image of a PE, and the numbers that its classes have in the program that describes itself by `now`.
    pub(crate) fn read(&self, pe: u32, now: &Description) -> Result<(Vec<u8>, ClassNumbers), DiskError> {
        let path = self.file(pe);
        let refused = |reason: String| DiskError::Refused { path: path.clone(), reason };
        let (head, mut file) = open(&path)?;
        if (head.number, head.pe, head.pes) != (self.number, pe, self.pes) {
            return Err(refused(format!(
                "is the image of PE {} of {} in checkpoint {}",
                head.pe, head.pes, head.number
            )));
        }
        let numbers = head.description.match_classes(now);
        let numbers = numbers.map_err(|difference| DiskError::Differs { path: path.clone(), difference })?;
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
        Ok((bytes, numbers))
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
    let length = u32::try_from(head.len()).ok().filter(|length| *length <= MOST_HEAD);
    let length = length.ok_or_else(|| io::Error::other("the description of the classes is too long"))?;
    // left by a process that has ended while it wrote; a file of another user is not written to
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&crc32fast::hash(&head).to_le_bytes())?;
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

/// What has been opened, if the file is there.
fn is_there<T>(opened: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(DiskError::System { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file and reads its head.
fn open(path: &Path) -> Result<(Head, BufReader<File>), DiskError> {
    let damaged = |reason: &str| DiskError::Damaged { path: path.to_owned(), reason: reason.to_owned() };
    let file = File::open(path).map_err(system(path))?;
    let metadata = file.metadata().map_err(system(path))?;
    check_writers(path, &metadata)?;
    let mut file = BufReader::new(file);
    let no_checkpoint = "is no file of a checkpoint";
    // only the end of the file is damage: what the system refuses says nothing about the bytes
    let cut = |e: io::Error| match e.kind() {
        ErrorKind::UnexpectedEof => damaged(no_checkpoint),
        _ => system(path)(e),
    };
    let mut begin = [0; BEGIN];
    file.read_exact(&mut begin).map_err(cut)?;
    let [magic @ .., l0, l1, l2, l3, c0, c1, c2, c3] = begin;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if magic[..7] == MAGIC[..7] && magic != *MAGIC {
        let reason = format!(
            "has the format {}, and this program reads format {}; restart with the build that has written it",
            char::from(magic[7]).escape_default(),
            char::from(MAGIC[7]),
        );
        return Err(DiskError::Refused { path: path.to_owned(), reason });
    }
    if magic != *MAGIC || length > MOST_HEAD {
        return Err(damaged(no_checkpoint));
    }
    let mut head = vec![0; length as usize];
    file.read_exact(&mut head).map_err(cut)?;
    if crc32fast::hash(&head) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(damaged("is corrupt: the checksum of its head is wrong"));
    }
    let head: Head = postcard::from_bytes(&head).map_err(|_| damaged(no_checkpoint))?;
    let before = BEGIN as u64 + u64::from(length);
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
mod tests;
