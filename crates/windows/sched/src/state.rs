// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files about this node that mean something to this user and until the next boot only.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use colony_node::file::replace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
#[must_use]
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// A form of JSON files that mean nothing in another boot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The name of the form and its version.
    pub(crate) schema: &'static str,
    /// Bytes of a file at most.
    pub(crate) largest: u64,
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
    pub(crate) fn write<T: Serialize>(self, path: &Path, what: &T) -> io::Result<()> {
        let text = serde_json::to_vec(&Saved { schema: self.schema.into(), boot: boot(), what })?;
        self.check_size(text.len() as u64)?;
        replace(path, &text)
    }

    /// Reads a file; `None` for a file of another boot.
    ///
    /// # Errors
    /// A file that is not there, cannot be read, is larger than [`Form::largest`] or has another form.
    pub(crate) fn read<T: DeserializeOwned>(self, path: &Path) -> io::Result<Option<T>> {
        let found = fs::symlink_metadata(path)?;
        if !found.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        self.check_size(found.len())?;
        let text = fs::read(path)?;
        let head: Head = serde_json::from_slice(&text)?;
        if head.boot != boot() {
            return Ok(None);
        }
        if head.schema != self.schema {
            let reason = format!("its form is {}, and this version reads {}", head.schema, self.schema);
            return Err(io::Error::other(reason));
        }
        let saved: Saved<T> = serde_json::from_slice(&text)?;
        Ok(Some(saved.what))
    }

    fn check_size(self, bytes: u64) -> io::Result<()> {
        if bytes <= self.largest {
            return Ok(());
        }
        Err(io::Error::other(format!("{bytes} bytes are too many: the file may have {}", self.largest)))
    }
}
