// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections over Unix or TCP sockets, which differ in nothing but their addresses.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::secret::Secret;

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

impl Stream {
    /// Connects to an address that [`Listener::address`] gave: `unix:NAME` or `tcp:HOST:PORT`.
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        let stream = match address.split_once(':') {
            Some(("unix", name)) => {
                Self::Unix(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)
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

    /// Bounds reads and writes, for the time before the job begins.
    pub(crate) fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_read_timeout(limit).and_then(|()| s.set_write_timeout(limit)),
            Self::Tcp(s) => s.set_read_timeout(limit).and_then(|()| s.set_write_timeout(limit)),
        }
    }
}

/// Takes connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener, String),
    Tcp(TcpListener, String),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(l, _) => l.as_fd(),
            Self::Tcp(l, _) => l.as_fd(),
        }
    }
}

impl Listener {
    /// Under a random name that is no file: nothing is left behind.
    pub(crate) fn unix() -> io::Result<Self> {
        let name = format!("colony-{}", Secret::new()?.to_hex());
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?).map(|l| Self::Unix(l, name))
    }

    /// On any free port; other hosts reach it under `host`.
    pub(crate) fn tcp(host: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(("0.0.0.0", 0))?;
        let port = listener.local_addr()?.port();
        Ok(Self::Tcp(listener, format!("{host}:{port}")))
    }

    /// Where [`Stream::connect`] finds it.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Unix(_, name) => format!("unix:{name}"),
            Self::Tcp(_, place) => format!("tcp:{place}"),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(l, _) => l.accept().map(|(s, _)| Stream::Unix(s)),
            Self::Tcp(l, _) => {
                let (stream, _) = l.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Unix(l, _) => l.set_nonblocking(on),
            Self::Tcp(l, _) => l.set_nonblocking(on),
        }
    }
}

/// The longest message before the job begins.
const MOST_BYTES: u32 = 1 << 20;

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
