// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections over Unix or TCP sockets, which differ in nothing but their addresses.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::unistd::geteuid;

/// The longest wait for a host that does not answer.
const CONNECT: Duration = Duration::from_secs(10);
/// The time after which a host counts as lost that acknowledges nothing.
const UNREACHED: Duration = Duration::from_millis(1500);

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.read(bytes),
            Self::Tcp(s) => s.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.write(bytes),
            Self::Tcp(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
        }
    }
}

/// Returns `true` if a process of this user can be a process of the job: users are the job's own, and root.
pub(crate) fn is_user_of_job(user: u32) -> bool {
    user == geteuid().as_raw() || user == 0
}

impl Stream {
    /// Connects to an address of [`Listener::address`](super::listener::Listener::address): `unix:NAME` or `tcp:HOST:PORT`.
    ///
    /// A Unix socket of another user is refused, except to root: the name of a process that has ended is free for all users.
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        let stream = match address.split_once(':') {
            Some(("unix", name)) => {
                let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
                let user = getsockopt(&stream, sockopt::PeerCredentials)?.uid();
                if !is_user_of_job(user) && !geteuid().is_root() {
                    let reason = format!("the socket belongs to user {user}");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                Self::Unix(stream)
            }
            Some(("tcp", place)) => {
                let mut error = io::ErrorKind::AddrNotAvailable.into();
                let connected = place.to_socket_addrs()?.find_map(|address| {
                    TcpStream::connect_timeout(&address, CONNECT).map_err(|e| error = e).ok()
                });
                let stream = connected.ok_or(error)?;
                stream.set_nodelay(true)?;
                Self::Tcp(stream)
            }
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("`{address:.80}` is no address"),
                ));
            }
        };
        Ok(stream)
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_nonblocking(on),
            Self::Tcp(s) => s.set_nonblocking(on),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(s) => s.try_clone().map(Self::Unix),
            Self::Tcp(s) => s.try_clone().map(Self::Tcp),
        }
    }

    /// Ends the connection, also for the other end.
    pub(crate) fn shutdown(&self) {
        self.end(Shutdown::Both);
    }

    /// Ends what this end writes: the other end reads an end of file, and what it writes still arrives.
    pub(crate) fn end_writing(&self) {
        self.end(Shutdown::Write);
    }

    fn end(&self, how: Shutdown) {
        // the other end may have ended it before
        let _ = match self {
            Self::Unix(s) => s.shutdown(how),
            Self::Tcp(s) => s.shutdown(how),
        };
    }

    /// Makes a TCP connection fail if the other host is not reached for a while: without traffic after at most
    /// [`UNREACHED`] and a second. By default, TCP takes many minutes.
    pub(crate) fn detect_loss(&self) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        setsockopt(stream, sockopt::TcpUserTimeout, &(UNREACHED.as_millis() as u32))?;
        setsockopt(stream, sockopt::KeepAlive, &true)?;
        setsockopt(stream, sockopt::TcpKeepIdle, &1)?;
        setsockopt(stream, sockopt::TcpKeepInterval, &1)?;
        Ok(())
    }

    /// The user of the process at the other end, which the kernel knows of Unix sockets.
    pub(crate) fn user(&self) -> io::Result<Option<u32>> {
        match self {
            Self::Unix(s) => Ok(Some(getsockopt(s, sockopt::PeerCredentials)?.uid())),
            Self::Tcp(_) => Ok(None),
        }
    }

    /// The address of this end, of a TCP connection.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(s) => s.local_addr().ok().map(|address| address.ip()),
        }
    }

    /// Bounds reads and writes, for the time before the job begins.
    pub(crate) fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_read_timeout(limit).and_then(|()| s.set_write_timeout(limit)),
            Self::Tcp(s) => s.set_read_timeout(limit).and_then(|()| s.set_write_timeout(limit)),
        }
    }
}

/// Returns `true` if this host does not reach the other one, whose programs may run. The network does not answer, or a route or
/// a packet filter of this host refuses the address: Linux then returns `EINVAL`, `EPERM` or `EACCES`.
pub(crate) fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(error.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
        || matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM | libc::EACCES))
}

/// An error of a connection to a process of the job, for people: the process, its address, the reason, and what to check.
pub(crate) fn explain(to: &str, address: &str, error: &io::Error) -> String {
    let mut text = format!("{to} at {address}: {error}");
    if is_unreachable(error) {
        text += "; check the routes and the packet filter of this host (`ip route get`, `nft list ruleset`)";
    }
    text
}

/// The longest message before the job begins.
pub(crate) const MOST_BYTES: u32 = 1 << 20;

/// Writes a value with its length.
pub(crate) fn write_value<T: serde::Serialize>(stream: &mut Stream, value: &T) -> io::Result<()> {
    let bytes = postcard::to_allocvec(value).map_err(io::Error::other)?;
    stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
    stream.write_all(&bytes)
}

/// Reads a value with its length.
pub(crate) fn read_value<T: serde::de::DeserializeOwned>(stream: &mut Stream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes is too long"),
        ));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_a_route_or_a_packet_filter_refuses_is_not_reached() {
        for code in [libc::EINVAL, libc::EPERM, libc::EACCES, libc::EHOSTUNREACH, libc::ENETUNREACH] {
            let error = io::Error::from_raw_os_error(code);
            assert!(is_unreachable(&error), "{error}");
            let text = explain("rank 3", "tcp:10.0.0.7:4711", &error);
            assert!(text.starts_with(&format!("rank 3 at tcp:10.0.0.7:4711: {error}; check ")), "{text}");
        }
        for code in [libc::ECONNREFUSED, libc::ECONNRESET, libc::EMFILE] {
            let error = io::Error::from_raw_os_error(code);
            assert!(!is_unreachable(&error), "{error}");
            assert_eq!(explain("rank 3", "unix:x", &error), format!("rank 3 at unix:x: {error}"));
        }
    }
}
