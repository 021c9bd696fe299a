// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between a partition and its boot process: JSON, one packet each, with descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use colony_node::rights;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of these messages: that of the package, since both sides are installed together.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Bytes of a message at most; a request has the arguments of an emulator.
const MOST: usize = 64 << 10;

/// To the boot process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Start an emulator with these arguments. Its console and then the descriptors of its command line come along.
    Boot(Vec<String>),
    /// Kill the emulator of this number.
    Kill(u64),
}

/// From the boot process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It is ready. The first message.
    Ready { version: String },
    /// The emulator that was asked for runs. Its number is never used again, unlike a process id.
    Booted { number: u64, pid: u32 },
    /// The emulator that was asked for does not start.
    Refused(Refusal),
    /// An emulator ended, in this way.
    Ended { number: u64, how: String },
}

/// The reason why an emulator does not start.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// QEMU cannot be started.
    Missing(String),
    /// The user can ask for something else instead.
    Wrong(String),
    /// The system refused.
    System(String),
}

/// Two connected sockets that keep the limits of messages.
pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    Ok((ours.into(), theirs.into()))
}

/// Sends a message.
pub(crate) fn send(socket: &UnixStream, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MOST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a message of {} bytes", bytes.len()),
        ));
    }
    rights::send(socket, &bytes, fds).map(drop)
}

/// Waits for a message; `None` after the other side has closed its socket.
pub(crate) fn receive<T: DeserializeOwned>(socket: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MOST];
    let (count, fds) = loop {
        match rights::receive(socket, &mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // the other side was killed with messages unread
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            other => break other?,
        }
    };
    if count == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..count])?, fds)))
}
