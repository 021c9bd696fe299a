// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of the metrics: opened before the daemon gives up its privileges, and removed when it ends.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use colony_sched::undo::SocketFile;
use nix::sys::stat::{Mode, umask};

use super::address::{Address, Place};

/// The place cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program answers there.
    #[error("[metrics] another program answers at {0}; stop it, or choose another place")]
    Taken(PathBuf),
    /// Something is there that this daemon did not make.
    #[error("[metrics] {0} is there already, and is no socket; choose another place, or remove it")]
    NoSocket(PathBuf),
    /// The system refused a socket file.
    #[error("[metrics] {what} {path}: {source}; its directory must exist, and root be able to write there")]
    File {
        /// The operation that failed.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused a port.
    #[error("[metrics] cannot listen at {address}: {source}; choose another address or port")]
    Port {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
}

/// An open place, and its file where it has one.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listener: Listener,
    pub(crate) file: Option<OwnedSocket>,
}

/// A listening socket that does not block.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A socket file that is removed with its owner.
#[derive(Debug)]
pub(crate) struct OwnedSocket(SocketFile);

impl OwnedSocket {
    pub(crate) const fn file(&self) -> &SocketFile {
        &self.0
    }
}

impl Drop for OwnedSocket {
    fn drop(&mut self) {
        self.0.remove();
    }
}

impl Listening {
    /// Opens `place`. For a process without other threads: the mask of new files changes for a moment.
    pub(crate) fn open(place: &Place) -> Result<Self, ListenError> {
        match &place.address {
            Address::Tcp(address) => {
                let failed = |source| ListenError::Port { address: *address, source };
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let at = listener.local_addr().map_err(failed)?;
                tracing::info!("figures for monitors at http://{at}/metrics");
                Ok(Self { listener: Listener::Tcp(listener), file: None })
            }
            Address::Unix(path) => {
                let listening = open_file(path, place.group)?;
                tracing::info!("figures for monitors at {}", place.address);
                Ok(listening)
            }
        }
    }
}

fn open_file(path: &Path, group: Option<u32>) -> Result<Listening, ListenError> {
    let failed = |what| move |source| ListenError::File { what, path: path.to_owned(), source };
    clear(path)?;
    // made with its rights: a path may be something else by the time they are set. A group is let in by its name
    let closed = if group.is_some() { Mode::S_IRWXO } else { Mode::empty() };
    let before = umask(closed | Mode::S_IXUSR | Mode::S_IXGRP | Mode::S_IXOTH);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(failed("cannot listen at"))?;
    let file = OwnedSocket(SocketFile::at(path).map_err(failed("cannot find again"))?);
    if group.is_some() {
        std::os::unix::fs::lchown(path, None, group).map_err(failed("cannot set the group of"))?;
    }
    listener.set_nonblocking(true).map_err(failed("cannot listen at"))?;
    Ok(Listening { listener: Listener::Unix(listener), file: Some(file) })
}

/// Removes the socket of a daemon that died; says so where somebody answers, or something else is there.
fn clear(path: &Path) -> Result<(), ListenError> {
    let Ok(there) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(ListenError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|source| ListenError::File { what: "cannot remove", path: path.to_owned(), source }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(ListenError::Taken(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn place(path: &Path) -> Place {
        Place { address: Address::Unix(path.to_owned()), group: None }
    }

    #[test]
    fn a_socket_that_nobody_answers_at_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("m.sock");
        drop(UnixListener::bind(&path).expect("bound"));
        let open = Listening::open(&place(&path)).expect("the old one is stale");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        assert!(matches!(Listening::open(&place(&path)), Err(ListenError::Taken(_))));
        drop(open);
        assert!(!path.exists(), "it goes with its owner");
        std::fs::write(&path, "mine").expect("written");
        assert!(matches!(Listening::open(&place(&path)), Err(ListenError::NoSocket(_))));
        let error = Listening::open(&place(&dir.path().join("no/m.sock"))).expect_err("no directory");
        assert!(error.to_string().contains("directory"), "{error}");
    }

    #[test]
    fn a_group_and_nobody_else_comes_in_where_one_is_named() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("m.sock");
        let own = std::fs::metadata(dir.path()).expect("there").gid();
        let place = Place { address: Address::Unix(path.clone()), group: Some(own) };
        let _open = Listening::open(&place).expect("free");
        let made = std::fs::metadata(&path).expect("there");
        assert_eq!((made.mode() & 0o777, made.gid()), (0o660, own));
    }

    #[test]
    fn a_file_that_another_one_put_there_stays() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("m.sock");
        let open = Listening::open(&place(&path)).expect("free");
        // beside the old one, so that it cannot have its number
        let other = dir.path().join("other");
        std::fs::write(&other, "").expect("written");
        std::fs::rename(&other, &path).expect("renamed");
        drop(open);
        assert!(path.exists());
    }

    #[test]
    fn a_port_in_use_says_so() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(taken.local_addr().expect("bound"));
        let error = Listening::open(&Place { address, group: None }).expect_err("taken").to_string();
        assert!(error.contains("127.0.0.1") && error.contains("another"), "{error}");
    }
}
