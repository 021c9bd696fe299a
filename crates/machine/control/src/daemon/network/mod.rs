// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entrance from the network: one port with TLS, from the request of an operator until the machine is switched off.

mod certificate;
mod connections;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use nix::unistd::gethostname;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::tokens::Key;
use crate::ControlError;
use crate::api::{Network, NetworkRequest};
use certificate::Certificate;
pub(super) use connections::Connection;
use connections::Connections;

/// The file that says where the daemon listens: one that is started again listens there, too.
const FILE: &str = "network.json";

/// Tries to bind a port that this daemon has just closed, and the pause between two.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// A port that is open.
struct Open {
    network: Network,
    listener: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// The entrance from the network.
pub(super) struct Entrance {
    folder: PathBuf,
    routes: OnceLock<Router>,
    open: Mutex<Option<Open>>,
    connections: Arc<Connections>,
}

impl Entrance {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, routes: OnceLock::new(), open: Mutex::new(None), connections: Arc::default() }
    }

    /// Where the daemon listens.
    pub(super) async fn network(&self) -> Option<Network> {
        self.open.lock().await.as_ref().map(|open| open.network.clone())
    }

    /// Listens, in place of the port before.
    pub(super) async fn open(&self, mut request: NetworkRequest) -> Result<Network, ControlError> {
        let routes = self.routes.get().cloned().unwrap_or_default();
        let mut open = self.open.lock().await;
        let host = host_of(request.listen);
        let certificate = match (&request.certificate, &request.key) {
            (Some(chain), Some(key)) => Certificate::read(chain, key)?,
            (None, None) => Certificate::own(&self.folder, request.listen.ip(), &host_name())?,
            _ => {
                let text = "a certificate and its key belong together: give both files, or neither";
                return Err(ControlError::Wrong(text.to_owned()));
            }
        };
        // the port before stays open if the new one cannot be had
        let is_same = open.as_ref().is_some_and(|before| before.network.listen == request.listen);
        if is_same {
            *open = None;
        }
        let listener = bind(request.listen, is_same).await?;
        let listen = listener.local_addr().map_err(ControlError::io("the port"))?;
        request.listen = listen;
        let text = serde_json::to_vec(&request).map_err(|e| ControlError::Fault(e.to_string()))?;
        let file = self.folder.join(FILE);
        colony_node::file::replace(&file, &text).map_err(ControlError::io(file.display().to_string()))?;
        let network = Network {
            listen,
            url: format!("https://{host}:{}/", listen.port()),
            fingerprint: certificate.fingerprint,
            certificate: certificate.file,
        };
        let acceptor = TlsAcceptor::from(certificate.config);
        self.connections.close(None);
        let serve = connections::serve(listener, acceptor, routes, self.connections.clone());
        *open = Some(Open { network: network.clone(), listener: tokio::spawn(serve).abort_handle() });
        Ok(network)
    }

    /// Serves these routes from now on, where a daemon before this one listened.
    pub(super) async fn open_again(&self, routes: Router) -> Result<(), ControlError> {
        // the first are the only ones
        let _ = self.routes.set(routes);
        let Ok(text) = std::fs::read(self.folder.join(FILE)) else { return Ok(()) };
        let request = serde_json::from_slice(&text);
        let request = request.map_err(|e| ControlError::Fault(format!("{FILE}: {e}")))?;
        self.open(request).await.map(drop)
    }

    /// Closes the port and its connections.
    pub(super) async fn close(&self) -> Result<(), ControlError> {
        let file = self.folder.join(FILE);
        let mut open = self.open.lock().await;
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ControlError::io(file.display().to_string())(error));
            }
            _ => {}
        }
        *open = None;
        self.connections.close(None);
        Ok(())
    }

    /// Closes the connections on which these tokens were used. Web pages connect again.
    pub(super) fn close_connections_of(&self, keys: &[Key]) {
        self.connections.close(Some(keys));
    }
}

/// Binds a port. One that this daemon has just closed may take a moment to be free.
async fn bind(listen: SocketAddr, is_same: bool) -> Result<TcpListener, ControlError> {
    let mut tries = if is_same { TRIES } else { 1 };
    loop {
        tries -= 1;
        match TcpListener::bind(listen).await {
            Ok(listener) => return Ok(listener),
            Err(_) if tries > 0 => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                return Err(ControlError::Wrong(format!(
                    "cannot listen on {listen}: {error}; choose another port"
                )));
            }
        }
    }
}

fn host_name() -> String {
    gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned())
}

/// The host of the page's address.
fn host_of(listen: SocketAddr) -> String {
    match listen {
        _ if listen.ip().is_unspecified() => host_name(),
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}
