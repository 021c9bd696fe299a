// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder of a machine.

use std::path::{Path, PathBuf};

use crate::ClientError;

/// The variable that names the folder.
pub const FOLDER: &str = "COLONY_MACHINE";
/// The daemon's socket in the folder.
pub const SOCKET: &str = "api";
/// A file that is there from the set-up of a machine until it is switched off: a daemon that is not there has been killed.
pub const UP: &str = "up";
/// The file that a daemon locks.
pub const LOCK: &str = "lock";
/// Bytes of a socket's path at most (`unix(7)`), less those of the longest name in the folder.
const LONGEST: usize = 107 - "/partitions/".len() - 31 - "/socket".len();

/// The folder of this user's machine: that of the variable [`FOLDER`], otherwise `/var/lib/colony/machine` for root and
/// `~/.local/state/colony/machine` for other users.
///
/// # Errors
/// The user has no home.
pub fn default_folder() -> Result<PathBuf, ClientError> {
    if let Some(folder) = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    if nix::unistd::geteuid().is_root() {
        return Ok("/var/lib/colony/machine".into());
    }
    let variable =
        |name| std::env::var_os(name).filter(|v: &std::ffi::OsString| !v.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    state.map(|state| state.join("colony/machine")).ok_or_else(|| {
        ClientError::Wrong(format!(
            "neither HOME nor {FOLDER} is set: set {FOLDER} to the folder of the machine"
        ))
    })
}

/// Refuses a folder whose sockets no program could connect to.
///
/// # Errors
/// A path that is too long.
pub fn check_length(folder: &Path) -> Result<(), ClientError> {
    let length = folder.as_os_str().len();
    if length <= LONGEST {
        return Ok(());
    }
    Err(ClientError::Wrong(format!(
        "{} has {length} bytes, and a machine's folder may have {LONGEST}: take one with a shorter path",
        folder.display()
    )))
}
