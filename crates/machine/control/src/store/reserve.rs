// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disk space that is reserved for ends of jobs, cancels and states of partitions. A file in the machine's folder holds the space and is
//! removed when the disk is full. Submissions of jobs do not use the reserved space: on a full disk they are refused.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

use crate::ControlError;

/// Bytes of the file. The write-ahead log of the database grows to some 4 MiB before SQLite writes it back.
const RESERVE: u64 = 8 << 20;
/// The disk counts as full with fewer free bytes.
const FULL: u64 = 1 << 20;
/// The file is created only if so many bytes are free.
const PLENTY: u64 = 4 * RESERVE;

/// The reserved disk space of a machine.
#[derive(Debug)]
pub(super) struct DiskReserve {
    folder: PathBuf,
    file: PathBuf,
}

impl DiskReserve {
    /// Beside the database.
    pub(super) fn beside(database: &Path) -> Self {
        Self { folder: database.with_file_name(""), file: database.with_file_name("reserve") }
    }

    /// Bytes that are free for the daemon; `None` if `statvfs` fails.
    fn free(&self) -> Option<u64> {
        let disk = statvfs(&self.folder).ok()?;
        Some(disk.blocks_available().saturating_mul(disk.fragment_size()))
    }

    /// Called before each change of the database: removes the file if the disk is full, and creates it if there is plenty of space.
    pub(super) fn adjust(&self) {
        match self.free() {
            Some(free) if free < FULL => self.release(),
            Some(free) if free > PLENTY && !self.file.exists() => {
                // some file systems have no fallocate: without the file, a full disk delays what has to be stored
                let _ = self.create();
            }
            _ => {}
        }
    }

    /// Removes the file, so that its space is free.
    pub(super) fn release(&self) {
        // the file may not exist
        let _ = std::fs::remove_file(&self.file);
    }

    fn create(&self) -> io::Result<()> {
        let file = File::create_new(&self.file)?;
        let length = i64::try_from(RESERVE).unwrap_or(i64::MAX);
        let reserved = fallocate(&file, FallocateFlags::empty(), 0, length);
        reserved.map_err(|e| {
            self.release();
            e.into()
        })
    }

    /// Refuses a request that would use the last free space.
    pub(super) fn check_space(&self) -> Result<(), ControlError> {
        match self.free() {
            Some(free) if free < FULL => Err(ControlError::Full(format!(
                "the disk of {} is full: {} KiB are free, and the last {} KiB are for ends of jobs; make room there",
                self.folder.display(),
                free >> 10,
                FULL >> 10
            ))),
            _ => Ok(()),
        }
    }
}
