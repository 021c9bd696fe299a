// SPDX-License-Identifier: MIT OR Apache-2.0
//! Telling the service manager how the daemon is (`sd_notify(3)`): a datagram to `$NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` (such as `READY=1`) where a service manager asked for it; without one, nothing happens.
///
/// # Errors
/// The socket was named but could not be written to.
pub(crate) fn notify(state: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) if !name.is_empty() => send(&name, state),
        _ => Ok(()),
    }
}

fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_receives_the_state_on_either_kind_of_socket() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("notify");
        let name = format!("colony-test-{}", std::process::id());
        let sockets = [
            (UnixDatagram::bind(&path).expect("bind"), path.into_os_string()),
            (
                SocketAddr::from_abstract_name(&name)
                    .and_then(|a| UnixDatagram::bind_addr(&a))
                    .expect("bind"),
                format!("@{name}").into(),
            ),
        ];
        for (socket, name) in sockets {
            send(&name, "READY=1").expect("sent");
            let mut buffer = [0; 32];
            let n = socket.recv(&mut buffer).expect("received");
            assert_eq!(&buffer[..n], b"READY=1");
        }
        assert!(send(OsStr::new("/nonexistent/socket"), "READY=1").is_err());
    }
}
