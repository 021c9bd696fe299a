// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening for the processes of a job: on a Unix socket without a file, or for TCP on the address that peers are told.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;

use super::secret::Secret;
use super::stream::Stream;

/// The variable that makes all processes of a job listen on all addresses of their hosts, with the value [`ALL`].
const LISTEN: &str = "COLONY_LISTEN";
const ALL: &str = "all";
/// An address of the documentation (RFC 5737): packets for it take the default route.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

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
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
        UnixListener::bind_addr(&address).map(|l| Self::Unix(l, name))
    }

    /// On any free port of the address that other hosts reach under the name or address `host`. If `host` is no such
    /// address here, on `reached`, by which this host is known to be reached.
    pub(crate) fn tcp(host: &str, reached: Option<IpAddr>) -> io::Result<Self> {
        if listens_on_all(std::env::var_os(LISTEN).as_deref())? {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let port = listener.local_addr()?.port();
            return Ok(Self::Tcp(listener, format!("{host}:{port}")));
        }
        let listener = bind(host, reached)?;
        let place = listener.local_addr()?.to_string();
        Ok(Self::Tcp(listener, place))
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

/// Reads the value of [`LISTEN`].
fn listens_on_all(value: Option<&std::ffi::OsStr>) -> io::Result<bool> {
    match value {
        None => Ok(false),
        Some(value) if value.is_empty() => Ok(false),
        Some(value) if value == ALL => Ok(true),
        Some(value) => {
            let reason = format!("{LISTEN} is {value:?}; it can be `{ALL}`, or not set");
            Err(io::Error::new(ErrorKind::InvalidInput, reason))
        }
    }
}

/// Listens on the address by which other hosts reach this one.
fn bind(host: &str, reached: Option<IpAddr>) -> io::Result<TcpListener> {
    let named: Vec<IpAddr> = (host, 0)
        .to_socket_addrs()
        .map(|addresses| addresses.map(|address: SocketAddr| address.ip()).collect())
        .unwrap_or_default();
    let (loopback, others): (Vec<IpAddr>, Vec<IpAddr>) = named.iter().copied().partition(IpAddr::is_loopback);
    let mut others = others.into_iter().filter(|ip| !ip.is_unspecified());
    if let Some(listener) = others.find_map(|ip| TcpListener::bind((ip, 0)).ok()) {
        return Ok(listener);
    }
    if let Some(reached) = reached {
        return TcpListener::bind((reached, 0));
    }
    if named.len() > loopback.len() {
        let reason = format!(
            "{host} is no address of this host: give another one by --this-host, or set {LISTEN}={ALL} to listen on all"
        );
        return Err(io::Error::new(ErrorKind::AddrNotAvailable, reason));
    }
    let own = loopback.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if is_loopback_name(host) {
        return TcpListener::bind((own, 0));
    }
    // distributions such as Debian give the host's own name a loopback address
    TcpListener::bind((routed_address().unwrap_or(own), 0))
}

/// Returns `true` if the user means the loopback interface.
fn is_loopback_name(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The address of this host on its default route. No packet is sent.
fn routed_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address that a listener is bound to, and the one that peers are told.
    fn addresses(listener: &Listener) -> (SocketAddr, String) {
        let Listener::Tcp(bound, _) = listener else { panic!("{listener:?}") };
        (bound.local_addr().expect("bound"), listener.address())
    }

    #[test]
    fn a_listener_is_bound_to_the_address_that_peers_are_told() {
        // the last one is a name for `ssh` only
        for host in ["127.0.0.1", "localhost", "user@host"] {
            let (bound, told) = addresses(&Listener::tcp(host, None).expect("a port"));
            assert_eq!(told, format!("tcp:{bound}"), "{host}");
            assert!(!bound.ip().is_unspecified(), "{host}: {bound}");
            assert!(host.contains('@') || bound.ip().is_loopback(), "{host}: {bound}");
        }
    }

    #[test]
    fn a_host_whose_name_is_no_address_of_it_listens_where_it_was_reached() {
        let reached: IpAddr = "127.0.0.3".parse().expect("an address");
        for host in ["user@host", "192.0.2.7", "0.0.0.0", "127.0.0.1"] {
            let (bound, _) = addresses(&Listener::tcp(host, Some(reached)).expect("a port"));
            assert_eq!(bound.ip(), reached, "{host}");
        }
        let error = Listener::tcp("192.0.2.7", None).expect_err("an address of another host");
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
        assert!(error.to_string().contains("--this-host"), "{error}");
    }

    #[test]
    fn a_process_listens_on_all_addresses_only_if_it_is_asked_to() {
        let read = |value: &str| listens_on_all(Some(value.as_ref())).ok();
        assert_eq!(listens_on_all(None).ok(), Some(false));
        assert_eq!([read(""), read("all"), read("0.0.0.0")], [Some(false), Some(true), None]);
    }
}
