// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that only the local socket takes: where the daemon listens on the network, and the tokens of its users.

use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::routing::{post, put};
use axum::{Json, Router};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::Shared;
use super::extract::{Body, From_, Known, done};
use crate::ControlError;
use crate::api::{Network, NetworkRequest, Problem, Token, TokenRequest};

#[derive(OpenApi)]
#[openapi(paths(open, close, token, revoke), modifiers(&Bearer))]
pub(super) struct Documentation;

/// How requests from the network name their user.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, all: &mut utoipa::openapi::OpenApi) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some(
            "On the network: the token of `POST /v1/token`. At the local socket, the kernel names the user."
                .to_owned(),
        );
        let components = all.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Listens on the network, with TLS, until the machine is switched off. Only at the local socket.
#[utoipa::path(put, path = "/v1/network", request_body = NetworkRequest, responses((status = 200, body = Network), (status = "4XX", body = Problem)))]
async fn open(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(request): Body<NetworkRequest>,
) -> Result<Json<Network>, ControlError> {
    peer.check_operator("open the machine to the network")?;
    shared.entrance.open(request).await.map(Json)
}

/// Closes the port. Only at the local socket.
#[utoipa::path(delete, path = "/v1/network", responses((status = 200), (status = "4XX", body = Problem)))]
async fn close(State(shared): Known, ConnectInfo(peer): From_) -> Result<Json<()>, ControlError> {
    peer.check_operator("close the machine to the network")?;
    shared.entrance.close().await.map(Json)
}

/// The token of the caller, or the one that may only look, which is made if there is none. Only at the local socket.
#[utoipa::path(post, path = "/v1/token", request_body = TokenRequest, responses((status = 200, body = Token), (status = "4XX", body = Problem)))]
async fn token(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(request): Body<TokenRequest>,
) -> Result<Json<Token>, ControlError> {
    let (tokens, key) = (shared.tokens.clone(), (peer.uid, request.read_only));
    let Json(token) = done(shared.clone(), move |_| tokens.give(key, request.renew)).await?;
    if request.renew {
        shared.entrance.close_connections_of(&[key]);
    }
    Ok(Json(Token {
        token,
        user: peer.name(),
        read_only: request.read_only,
        network: shared.entrance.network().await,
    }))
}

/// Takes the tokens of the caller back. Only at the local socket.
#[utoipa::path(delete, path = "/v1/token", responses((status = 200), (status = "4XX", body = Problem)))]
async fn revoke(State(shared): Known, ConnectInfo(peer): From_) -> Result<Json<()>, ControlError> {
    let tokens = shared.tokens.clone();
    let revoked = done(shared.clone(), move |_| tokens.revoke(peer.uid)).await?;
    shared.entrance.close_connections_of(&[(peer.uid, false), (peer.uid, true)]);
    Ok(revoked)
}

/// The routes of the local socket alone.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/v1/network", put(open).delete(close)).route("/v1/token", post(token).delete(revoke))
}
