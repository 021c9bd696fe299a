// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes that a daemon makes to its node, beside the classes of tasks: a mount, a socket file, the CPUs of tasks.
//!
//! `colonyd` makes them, and its guard undoes them. They are undone here, and not in `colonyd`, because the release agent
//! of a node is whichever program started last: `colony run` must be able to undo what a `colonyd` has left.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use colony_ledger::OwnerId;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use super::file::left_behind;
use super::former::FormerBindings;
use super::mount::{Found, inspect, remove_directory, wait_for_death};
use super::namespace::MountNamespace;

/// The kind of undo files that hold [`NodeChanges`].
pub const DAEMON: &str = "daemon";

/// A socket file as it was made. A path alone would not do: another daemon may have put its own there since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The file at `path`, which this process has just made.
    ///
    /// # Errors
    /// It is not there.
    pub fn at(path: &Path) -> io::Result<Self> {
        let m = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: m.dev(), inode: m.ino() })
    }

    /// Removes the file, if it is still there.
    pub fn remove(&self) {
        if Self::at(&self.path).is_ok_and(|now| now == *self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Changes to the node that are undone when the daemon has ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NodeChanges {
    /// The mount point.
    pub mount: PathBuf,
    /// The mount namespace of the daemon: all paths here are paths in it. `None` in a file of an earlier version; the reader's
    /// namespace is used then.
    #[serde(default)]
    pub namespace: Option<MountNamespace>,
    /// True if the directory of the mount point is to be removed.
    pub remove: bool,
    /// The owner, in the ledger, of tasks that were bound to the job's CPUs.
    pub affinities: Option<OwnerId>,
    /// The socket where monitors ask.
    pub socket: Option<SocketFile>,
    /// Tasks that a daemon without a ledger has bound.
    #[serde(flatten, skip_serializing)]
    pub former: FormerBindings,
}

impl NodeChanges {
    /// Undoes what does not wait for the death of the daemon: bindings and the socket. Call it in the daemon's mount namespace.
    pub fn undo_at_once(&self) {
        colony_ledger::undo(self.affinities.as_ref());
        self.remove_socket();
    }

    fn remove_socket(&self) {
        if let Some(socket) = &self.socket {
            socket.remove();
        }
    }

    /// Undoes all of it: the paths in the mount namespace of the daemon, if that is another one.
    fn undo(&self) -> io::Result<()> {
        colony_ledger::undo(self.affinities.as_ref());
        let here = MountNamespace::here()?;
        match self.namespace.filter(|namespace| *namespace != here) {
            None => self.undo_paths(),
            // the number of an ended namespace may be another one's by now, where the same path is nothing of ours
            Some(elsewhere) => {
                elsewhere.enter(|| match inspect(&self.mount) {
                    Ok(Found::Nothing | Found::Foreign(_)) => self.remove_socket(),
                    Ok(Found::Dead(_) | Found::Alive) | Err(_) => self.undo_paths(),
                })?;
            }
        }
        Ok(())
    }

    fn undo_paths(&self) {
        self.remove_socket();
        // a place where files are served is another daemon's by now
        let _ = wait_for_death(&self.mount, Duration::from_secs(1));
        if self.remove {
            remove_directory(&self.mount);
        }
    }
}

/// Undoes the changes of dead daemons whose guards are dead too, and those of daemon `ended`.
pub(crate) fn restore_node(ended: Option<TaskId>) {
    for (path, changes) in left_behind::<NodeChanges>(DAEMON, ended) {
        changes.former.undo();
        if let Err(e) = changes.undo() {
            tracing::warn!("cannot undo the mount at {}: {e}", changes.mount.display());
        }
        let _ = std::fs::remove_file(path);
    }
}
