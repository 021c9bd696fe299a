// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of the local socket, with bounds: on the number for each user, on the time for the head of a request, and on the
//! time of each write.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::counts::Counts;
use super::deadline::{Deadline, WRITE};
use super::peer::Peer;
use super::serving::{HEAD, PAUSE, http};
use crate::ControlError;

/// Connections of one user at most, if the limit of descriptors allows it: a `job run` takes three.
const OF_ONE: usize = 256;
/// The share of the descriptors that connections of one user take at most, and those of all users but operators.
const SHARE_OF_ONE: usize = 8;
const SHARE_OF_ALL: usize = 2;
/// Refused clients that get an answer at the same time. Further ones are disconnected without an answer.
const REFUSED: usize = 16;
/// Timeout for the head of a request of a client that is refused.
const REFUSED_HEAD: Duration = Duration::from_secs(1);

/// Numbers of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    /// Of one user.
    one: usize,
    /// Of all users but operators, for whom there is always room.
    all: usize,
}

impl Bounds {
    /// For a process that may have so many descriptors.
    fn of(descriptors: u64) -> Self {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Self { one: OF_ONE.min(descriptors / SHARE_OF_ONE), all: descriptors / SHARE_OF_ALL }
    }
}

/// Serves connections until the task ends.
pub(super) async fn serve(listener: UnixListener, routes: Router) {
    let bounds = Bounds::of(colony_node::descriptor::raise_limit());
    // a semaphore has a largest number of its own
    let room = Arc::new(Semaphore::new(bounds.all.min(Semaphore::MAX_PERMITS)));
    let (users, refused) = (Arc::<Counts<u32>>::default(), Arc::new(Semaphore::new(REFUSED)));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let peer = Peer::of(&stream);
        let own = users.count(peer.uid, bounds.one);
        let permit = if peer.is_operator() { None } else { Some(room.clone().try_acquire_owned()) };
        let (Some(own), None | Some(Ok(_))) = (own, &permit) else {
            if let Ok(permit) = refused.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    connection(stream, too_many(bounds.one), peer, REFUSED_HEAD).await;
                    drop(permit);
                });
            }
            continue;
        };
        let routes = routes.clone();
        tokio::spawn(async move {
            connection(stream, routes, peer, HEAD).await;
            drop((own, permit));
        });
    }
}

/// The answer to a user who has too many connections.
fn too_many(most: usize) -> Router {
    Router::new().fallback(move || async move {
        ControlError::TooMany(format!(
            "there are too many connections to the control daemon, and one user may have {most}: end some, and try again"
        ))
    })
}

/// Serves one connection to its end.
async fn connection(stream: UnixStream, routes: Router, peer: Peer, head: Duration) {
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        routes.call(request)
    });
    // what goes wrong with a connection concerns its client only
    let _ = http(head).serve_connection(TokioIo::new(Deadline::new(stream, WRITE)), service).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_takes_an_eighth_of_the_descriptors_and_all_users_a_half() {
        assert_eq!(Bounds::of(1024), Bounds { one: 128, all: 512 });
        assert_eq!(Bounds::of(1 << 20), Bounds { one: 256, all: 1 << 19 });
        assert_eq!(Bounds::of(u64::MAX).one, OF_ONE);
    }
}
