// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files about this node that mean something to this user and until the next boot only.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

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
