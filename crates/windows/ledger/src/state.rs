// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files about this node that mean something to this user and until the next boot only.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use colony_node::file::replace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::lock::lock_file;

/// Makes a folder that only this user can look into, unless it is there.
///
/// # Errors
/// The file system refuses it, or [`check_private`] does.
pub fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => check_private(folder),
    }
}

/// Checks that a folder is this user's alone: another user may be able to write beside it, and make it first.
///
/// # Errors
/// The folder does not exist, is a link, or is open to another user.
pub fn check_private(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let own = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if own {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is no folder of this user alone; remove it", folder.display())))
}

/// The boot that process numbers and starts belong to.
///
/// # Errors
/// The kernel's answer. Nothing is known of a file then: it may be of this boot.
pub fn boot() -> io::Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let id = fs::read_to_string(FILE).map_err(|e| io::Error::new(e.kind(), format!("{FILE}: {e}")))?;
    Ok(id.trim().to_owned())
}

/// The folder of what Colony has to undo on this node: accessible to this user alone, and empty after the next boot.
///
/// # Errors
/// It cannot be made, or is not this user's alone; `XDG_RUNTIME_DIR` is not set for a user without privileges.
pub fn folder() -> io::Result<PathBuf> {
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
///
/// # Errors
/// As [`folder`] and [`lock_file`].
pub fn lock(name: &str, timeout: Duration) -> io::Result<fs::File> {
    lock_file(&folder()?.join(name), timeout)
}

/// A form of JSON files that mean nothing in another boot. Each file names its form and version.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The name of the form.
    pub name: &'static str,
    /// The version that is written. Older ones are read.
    pub version: u32,
    /// Bytes of a file at most.
    pub largest: u64,
}

#[derive(Serialize, Deserialize)]
struct Saved<T> {
    schema: String,
    /// The boot it is of: process numbers and starts mean nothing in another one.
    boot: String,
    what: T,
}

/// What is read first: in a file of another boot or form, the rest may be anything.
#[derive(Deserialize)]
struct Head {
    schema: String,
    boot: String,
}

impl Form {
    /// Writes a file anew.
    ///
    /// # Errors
    /// More than [`Form::largest`], which no reader would take, or what the file system says. The file is as it was then.
    pub fn write<T: Serialize>(self, path: &Path, what: &T) -> io::Result<()> {
        let schema = format!("{}/{}", self.name, self.version);
        let text = serde_json::to_vec(&Saved { schema, boot: boot()?, what })?;
        self.check_size(text.len() as u64)?;
        replace(path, &text)
    }

    /// Reads a file; `None` for a file of another boot.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) if a newer version has written it. [`InvalidData`](io::ErrorKind::InvalidData) if
    /// its bytes are wrong: it is no file of this form, is damaged, or is larger than [`Form::largest`]. Otherwise the file
    /// system's answer.
    pub fn read<T: DeserializeOwned>(self, path: &Path) -> io::Result<Option<T>> {
        let found = fs::symlink_metadata(path)?;
        if !found.is_file() {
            return Err(wrong("it is no file"));
        }
        self.check_size(found.len())?;
        let text = fs::read(path)?;
        let head: Head = serde_json::from_slice(&text).map_err(wrong)?;
        if head.boot != boot()? {
            return Ok(None);
        }
        self.check_version(&head.schema)?;
        let saved: Saved<T> = serde_json::from_slice(&text).map_err(wrong)?;
        Ok(Some(saved.what))
    }

    fn check_version(self, schema: &str) -> io::Result<()> {
        let version =
            schema.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('/')?.parse::<u32>().ok());
        match version {
            Some(version) if version <= self.version => Ok(()),
            Some(_) => {
                let reason = format!(
                    "a newer version of Colony wrote it ({schema}; this one reads {}/{} and older): use that version, or \
                     have it end what it has begun",
                    self.name, self.version
                );
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
            None => Err(wrong(format!("its form is {schema:?} instead of {}", self.name))),
        }
    }

    fn check_size(self, bytes: u64) -> io::Result<()> {
        if bytes <= self.largest {
            return Ok(());
        }
        Err(wrong(format!("{bytes} bytes are too many: the file may have {}", self.largest)))
    }
}

/// The error for bytes that are no file of a form.
fn wrong(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
