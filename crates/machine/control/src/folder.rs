// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder of a machine.

use std::path::{Path, PathBuf};

use crate::ControlError;

/// The variable that names the folder.
pub const FOLDER: &str = "COLONY_MACHINE";
/// The daemon's socket in the folder.
pub(crate) const SOCKET: &str = "api";
/// A file that is there from the set-up of a machine until it is switched off: a daemon that is not there has been killed.
pub(crate) const UP: &str = "up";
/// The file that a daemon locks.
pub(crate) const LOCK: &str = "lock";
/// Bytes of a socket's path at most (`unix(7)`), less those of the longest name in the folder.
const LONGEST: usize = 107 - "/partitions/".len() - 31 - "/socket".len();

/// The folder of this user's machine: that of the variable [`FOLDER`], otherwise `/var/lib/colony/machine` for root and
/// `~/.local/state/colony/machine` for other users.
///
/// # Errors
/// The user has no home.
pub fn default_folder() -> Result<PathBuf, ControlError> {
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
        ControlError::Wrong(format!(
            "neither HOME nor {FOLDER} is set: set {FOLDER} to the folder of the machine"
        ))
    })
}

/// Refuses a folder whose sockets no program could connect to.
pub(crate) fn check_length(folder: &Path) -> Result<(), ControlError> {
    let length = folder.as_os_str().len();
    if length <= LONGEST {
        return Ok(());
    }
    Err(ControlError::Wrong(format!(
        "{} has {length} bytes, and a machine's folder may have {LONGEST}: take one with a shorter path",
        folder.display()
    )))
}
