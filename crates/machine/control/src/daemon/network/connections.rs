// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of the network, with bounds: on their number, on the time until TLS and each head of a request are there, and
//! on the size of heads.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::daemon::counts::Counts;
use crate::daemon::deadline::{Deadline, WRITE};
use crate::daemon::serving::{HEAD, PAUSE, http};

/// Connections at most, of all hosts and of one host.
const ALL: usize = 256;
const OF_ONE: usize = 64;
/// Longest wait for the first byte and for the end of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first byte of a TLS handshake.
const TLS: u8 = 0x16;

/// The answer to a client that does not speak TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 42\r\n\r\n\
    this port takes TLS only: begin by https:\n";

/// Serves connections until the task ends. Each connection ends when `ending` changes.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    routes: Router,
    ending: watch::Sender<u64>,
) {
    let (room, hosts) = (Arc::new(Semaphore::new(ALL)), Arc::<Counts<IpAddr>>::default());
    loop {
        // further ones wait in the kernel
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (stream, host) = match listener.accept().await {
            Ok((stream, address)) => (stream, address.ip().to_canonical()),
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(counted) = hosts.count(host, OF_ONE) else { continue };
        let (acceptor, routes, mut ending) = (acceptor.clone(), routes.clone(), ending.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, acceptor, routes) => {}
                _ = ending.changed() => {}
            }
            drop((counted, permit));
        });
    }
}

/// Serves one connection to its end.
async fn connection(mut stream: TcpStream, acceptor: TlsAcceptor, routes: Router) {
    let _ = stream.set_nodelay(true);
    let mut first = [0; 1];
    match timeout(HANDSHAKE, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first == [TLS] => {}
        Ok(Ok(1)) => {
            // a client that sends nothing more has its answer; the rest of what it sends is not read
            let _ = timeout(HANDSHAKE, stream.write_all(PLAIN)).await;
            let _ = timeout(HANDSHAKE, stream.shutdown()).await;
            return;
        }
        _ => return,
    }
    let stream = Deadline::new(stream, WRITE);
    let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    // what goes wrong with a connection concerns its client only
    let _ = http(HEAD).serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_host_cannot_take_all_connections() {
        let (room, hosts) = (Arc::new(Semaphore::new(ALL)), Arc::<Counts<IpAddr>>::default());
        let one = async |host: [u8; 4]| {
            let permit = room.clone().acquire_owned().await.expect("open");
            hosts.count(host.into(), OF_ONE).map(|counted| (counted, permit))
        };
        let mut taken = Vec::new();
        for _ in 0..OF_ONE {
            taken.push(one([10, 0, 0, 1]).await.expect("room"));
        }
        assert!(one([10, 0, 0, 1]).await.is_none());
        assert!(one([10, 0, 0, 2]).await.is_some());
        assert_eq!(room.available_permits(), ALL - OF_ONE);
        drop(taken);
        assert!(one([10, 0, 0, 1]).await.is_some());
        assert!(hosts.is_empty() && room.available_permits() == ALL);
    }

    #[test]
    fn the_answer_without_tls_has_the_length_that_it_names() {
        let text = String::from_utf8(PLAIN.to_vec()).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
