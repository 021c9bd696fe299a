// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors over sockets, beside the bytes of a message.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Most descriptors of one message.
const MOST: usize = 8;

/// Sends bytes, with descriptors if there are any. Returns how many bytes were sent.
///
/// # Errors
/// The system's answer.
pub fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = (!raw.is_empty()).then(|| ControlMessage::ScmRights(&raw));
    let messages: Vec<ControlMessage<'_>> = rights.into_iter().collect();
    let parts = [IoSlice::new(bytes)];
    Ok(sendmsg::<()>(stream.as_raw_fd(), &parts, &messages, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// Receives bytes and the descriptors sent with them; 0 bytes at the end of the stream.
///
/// # Errors
/// The system's answer.
pub fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; MOST]);
    let mut parts = [IoSliceMut::new(bytes)];
    let message =
        recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = part {
            // SAFETY: the kernel made them for this message just now; nobody else has them
            fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, fds))
}
