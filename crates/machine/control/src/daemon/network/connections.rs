// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of the network, with bounds: on their number, on the time until TLS and each head of a request are there, and
//! on the size of heads.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::daemon::control::lock;
use crate::daemon::counts::Counts;
use crate::daemon::deadline::{Deadline, WRITE};
use crate::daemon::serving::{HEAD, PAUSE, http};
use crate::daemon::tokens::Key;

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

/// A connection, with the tokens of the requests that it carried.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    tokens: Mutex<BTreeSet<Key>>,
    end: Notify,
}

impl Connection {
    /// Records that a request has used this token.
    pub(crate) fn add_token(&self, key: Key) {
        lock(&self.tokens).insert(key);
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Vec<Weak<Connection>>>);

impl Connections {
    fn add(&self) -> Arc<Connection> {
        let connection = Arc::<Connection>::default();
        let mut all = lock(&self.0);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        connection
    }

    /// Closes the connections on which one of these tokens was used; with `None`, all connections.
    pub(super) fn close(&self, keys: Option<&[Key]>) {
        for connection in lock(&self.0).iter().filter_map(Weak::upgrade) {
            let has_used = |keys: &[Key]| keys.iter().any(|key| lock(&connection.tokens).contains(key));
            if keys.is_none_or(has_used) {
                connection.end.notify_one();
            }
        }
    }
}

/// Serves connections until the task ends.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    routes: Router,
    connections: Arc<Connections>,
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
        let (acceptor, routes, known) = (acceptor.clone(), routes.clone(), connections.add());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, acceptor, routes, known.clone()) => {}
                () = known.end.notified() => {}
            }
            drop((counted, permit));
        });
    }
}

/// Serves one connection to its end.
async fn connection(mut stream: TcpStream, acceptor: TlsAcceptor, routes: Router, known: Arc<Connection>) {
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
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(known.clone());
        routes.call(request)
    });
    // what goes wrong with a connection concerns its client only
    let _ = http(HEAD).serve_connection(TokioIo::new(stream), service).await;
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

    /// Returns `true` if the connection has been told to close.
    fn is_closed(connection: &Connection) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async { timeout(Duration::ZERO, connection.end.notified()).await.is_ok() })
    }

    #[test]
    fn a_token_that_is_replaced_closes_the_connections_on_which_it_was_used() {
        let all = Connections::default();
        let (eve, bob, new) = (all.add(), all.add(), all.add());
        let gone = all.add();
        eve.add_token((7, false));
        eve.add_token((7, true));
        bob.add_token((8, false));
        gone.add_token((7, true));
        drop(gone);
        all.close(Some(&[(7, true)]));
        assert_eq!([&eve, &bob, &new].map(|one| is_closed(one)), [true, false, false]);
        all.close(None);
        assert!(is_closed(&bob) && is_closed(&new));
        drop((eve, bob));
        let _last = all.add();
        assert_eq!(lock(&all.0).len(), 2, "those that are open");
    }

    #[test]
    fn the_answer_without_tls_has_the_length_that_it_names() {
        let text = String::from_utf8(PLAIN.to_vec()).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
