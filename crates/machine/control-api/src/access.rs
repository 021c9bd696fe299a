// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and answers about the network: where the daemon listens, and the tokens of its users.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the daemon is to listen on the network, with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// Address and port, such as `192.0.2.1:8443`. With port 0, the system chooses one.
    #[schema(value_type = String)]
    pub listen: SocketAddr,
    /// File of the certificate and those that sign it, in PEM. Without one, the daemon makes a certificate.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub certificate: Option<PathBuf>,
    /// File of the certificate's key, in PEM.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub key: Option<PathBuf>,
}

/// Where the daemon listens on the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Network {
    /// Address and port.
    #[schema(value_type = String)]
    pub listen: SocketAddr,
    /// Address of the web page.
    pub url: String,
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// File of the certificate.
    #[schema(value_type = String)]
    pub certificate: PathBuf,
}

/// A request for the caller's token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Replace the token. The one before is wrong from then on, and connections of the network end.
    #[serde(default)]
    pub renew: bool,
    /// The token that may only look: it changes nothing, and sees neither output nor environment of jobs.
    #[serde(default)]
    pub read_only: bool,
}

/// The caller's token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// The token, for the header `Authorization: Bearer TOKEN`.
    pub token: String,
    /// The user that it stands for.
    pub user: String,
    /// Whether it may only look.
    pub read_only: bool,
    /// Where it is asked for; `null` if the daemon does not listen on the network.
    pub network: Option<Network>,
}

/// The caller, as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// The user.
    pub user: String,
    /// Whether the token of the caller may only look.
    pub read_only: bool,
}
