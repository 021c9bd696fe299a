// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room on the disk for what has to be stored: ends of jobs, cancels, the states of partitions. A file of the machine's folder keeps it
//! and is removed when the disk is full. New jobs do not use it: they are refused.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

use crate::ControlError;

/// Bytes of the file. The log of the database has up to 4 MiB before it is written back.
const RESERVE: u64 = 8 << 20;
/// With fewer bytes free, the disk is full.
const FULL: u64 = 1 << 20;
/// The file is made if so many bytes are free.
const PLENTY: u64 = 4 * RESERVE;

/// The reserved room of a machine.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    file: PathBuf,
}

impl Room {
    /// Beside the database.
    pub(super) fn beside(database: &Path) -> Self {
        Self { folder: database.with_file_name(""), file: database.with_file_name("reserve") }
    }

    /// Bytes that are free for the daemon; `None` if the system does not tell.
    fn free(&self) -> Option<u64> {
        let disk = statvfs(&self.folder).ok()?;
        Some(disk.blocks_available().saturating_mul(disk.fragment_size()))
    }

    /// Before a change that has to be stored: gives the room back if the disk is full, and takes it if there is plenty.
    pub(super) fn prepare(&self) {
        match self.free() {
            Some(free) if free < FULL => self.give_back(),
            Some(free) if free > PLENTY && !self.file.exists() => {
                // a file system that reserves nothing for files has none
                let _ = self.take();
            }
            _ => {}
        }
    }

    /// The database has found the disk full.
    pub(super) fn give_back(&self) {
        // without it there is nothing to give back
        let _ = std::fs::remove_file(&self.file);
    }

    fn take(&self) -> io::Result<()> {
        let file = File::create_new(&self.file)?;
        let length = i64::try_from(RESERVE).unwrap_or(i64::MAX);
        let reserved = fallocate(&file, FallocateFlags::empty(), 0, length);
        reserved.map_err(|e| {
            self.give_back();
            e.into()
        })
    }

    /// Refuses what can wait if the disk is full.
    pub(super) fn check(&self) -> Result<(), ControlError> {
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
