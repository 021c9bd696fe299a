// SPDX-License-Identifier: MIT OR Apache-2.0
//! A control daemon on another host: the way to it by TLS, and the token of its user.

mod token;
mod trust;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, Error as TlsError};
use tokio_rustls::{TlsConnector, rustls};

use crate::ClientError;

pub use trust::Trust;

/// Longest wait for a connection, and for its TLS handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// Idle seconds until the system asks the other end of a connection whether it is there.
const KEEP_ALIVE_S: u32 = 30;

/// A control daemon on another host.
#[derive(Clone, Debug)]
pub struct Server {
    /// `HOST:PORT`.
    authority: String,
    name: ServerName<'static>,
    tls: Arc<rustls::ClientConfig>,
    /// The value of the header that names the user.
    bearer: String,
}

/// Host and port of `https://HOST:PORT/`.
fn split(url: &str) -> Result<(String, String), ClientError> {
    let wrong = |why: &str| {
        Err(ClientError::Wrong(format!("the server {url:?} {why}: https://HOST:PORT is expected")))
    };
    let Some(rest) = url.strip_prefix("https://") else {
        return wrong(if url.starts_with("http://") { "is not encrypted" } else { "is no address" });
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "443"),
    };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_host =
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
    if !is_port || !is_host {
        return wrong("is no address");
    }
    Ok((host.to_owned(), port.to_owned()))
}

impl Server {
    /// The daemon at `https://HOST:PORT`, the file of a token, and the certificate that is expected.
    ///
    /// # Errors
    /// Not an address, a token or a certificate, or a token that other users may read.
    pub fn new(url: &str, token: &Path, trust: &Trust) -> Result<Self, ClientError> {
        let (host, port) = split(url)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|_| {
            ClientError::Wrong(format!("the server {url:?} has no name or address of a host"))
        })?;
        let bearer = format!("Bearer {}", token::read(token)?);
        Ok(Self { authority: format!("{host}:{port}"), name, tls: trust.config()?, bearer })
    }

    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn bearer(&self) -> &str {
        &self.bearer
    }

    /// Connects. A server that was `reached` before is expected to come back.
    pub(crate) async fn connect(&self, reached: bool) -> Result<TlsStream<TcpStream>, ClientError> {
        let at = &self.authority;
        let slow = |_| ClientError::Failed(format!("{at} does not answer within {} s", CONNECT.as_secs()));
        let stream = timeout(CONNECT, TcpStream::connect(at)).await.map_err(slow)?;
        let stream = stream.map_err(|source| {
            let text = match source.kind() {
                io::ErrorKind::ConnectionRefused => format!(
                    "nothing listens at {at}: `colony machine web --listen ADDR:PORT` on the machine's host opens a port"
                ),
                _ => format!("{at} is not reached: {source}"),
            };
            if reached { ClientError::Disconnected(text) } else { ClientError::Failed(text) }
        })?;
        // an option that is refused costs a later notice of a dead host only
        let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
        let _ = setsockopt(&stream, sockopt::TcpKeepIdle, &KEEP_ALIVE_S);
        let _ = stream.set_nodelay(true);
        let shake = TlsConnector::from(self.tls.clone()).connect(self.name.clone(), stream);
        timeout(CONNECT, shake).await.map_err(slow)?.map_err(|error| match self.refused(&error) {
            // a daemon that is killed in the handshake
            ClientError::Failed(text)
                if reached && error.get_ref().is_none_or(|inner| !inner.is::<TlsError>()) =>
            {
                ClientError::Disconnected(text)
            }
            refused => refused,
        })
    }

    /// The reason why the TLS handshake has failed, and the remedy.
    fn refused(&self, error: &io::Error) -> ClientError {
        let at = &self.authority;
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        ClientError::Failed(match tls {
            Some(TlsError::InvalidCertificate(why)) => format!(
                "the certificate of {at} is not the expected one ({why:?}): compare its fingerprint with the one that \
                 `colony machine web` prints on the machine's host"
            ),
            Some(TlsError::General(why)) => format!("{at}: {why}"),
            Some(TlsError::InvalidMessage(_)) => {
                format!("{at} does not speak TLS: is it the port of `colony machine web --listen`?")
            }
            Some(
                TlsError::PeerIncompatible(_) | TlsError::AlertReceived(AlertDescription::ProtocolVersion),
            ) => {
                format!("{at} does not speak TLS 1.3, which is needed")
            }
            Some(error) => format!("{at} refuses TLS: {error}"),
            None => format!("{at} ended the connection in the TLS handshake: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_https_host_and_port() {
        for (url, host, port) in [
            ("https://machine.example:8443", "machine.example", "8443"),
            ("https://machine.example:8443/", "machine.example", "8443"),
            ("https://10.0.0.1", "10.0.0.1", "443"),
            ("https://[::1]:8443/", "[::1]", "8443"),
            ("https://[::1]", "[::1]", "443"),
        ] {
            assert_eq!(split(url).expect(url), (host.to_owned(), port.to_owned()));
        }
        for url in [
            "",
            "machine:8443",
            "http://machine:8443",
            "https://",
            "https://:8443",
            "https://a:0",
            "https://a:99999",
            "https://a:b",
            "https://a/path",
            "https://a:1/v1/x",
            "https://user@a:1",
            "https://a b:1",
            "https://a\n:1",
        ] {
            let text = split(url).expect_err(url).to_string();
            assert!(text.contains("https://HOST:PORT"), "{text}");
        }
    }
}
