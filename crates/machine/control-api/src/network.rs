// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests about the network: where the daemon listens, and the token of the caller.

use hyper::Method;

use crate::api::{Caller, Network, NetworkRequest, Token, TokenRequest};
use crate::client::json;
use crate::{Client, ClientError};

impl Client {
    /// Lets the daemon listen on the network, in place of the port before, until the machine is switched off.
    ///
    /// # Errors
    /// As all requests.
    pub fn open_network(&self, request: &NetworkRequest) -> Result<Network, ClientError> {
        self.ask(Method::PUT, "/v1/network", json(request)?)
    }

    /// Closes the port.
    ///
    /// # Errors
    /// As all requests.
    pub fn close_network(&self) -> Result<(), ClientError> {
        self.ask(Method::DELETE, "/v1/network", Vec::new())
    }

    /// The token of the caller. With `renew`, a new one in place of that before.
    ///
    /// # Errors
    /// As all requests.
    pub fn token(&self, renew: bool) -> Result<Token, ClientError> {
        self.ask(Method::POST, "/v1/token", json(&TokenRequest { renew, read_only: false })?)
    }

    /// The token of the caller that may only look. With `renew`, a new one in place of that before.
    ///
    /// # Errors
    /// As all requests.
    pub fn read_only_token(&self, renew: bool) -> Result<Token, ClientError> {
        self.ask(Method::POST, "/v1/token", json(&TokenRequest { renew, read_only: true })?)
    }

    /// The caller, as the daemon knows it.
    ///
    /// # Errors
    /// As all requests.
    pub fn caller(&self) -> Result<Caller, ClientError> {
        self.ask(Method::GET, "/v1/caller", Vec::new())
    }

    /// Takes the token of the caller back.
    ///
    /// # Errors
    /// As all requests.
    pub fn revoke_token(&self) -> Result<(), ClientError> {
        self.ask(Method::DELETE, "/v1/token", Vec::new())
    }
}
