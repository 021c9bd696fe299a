// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all handlers share: parts of requests, answers for errors, and work that waits.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::Shared;
use super::control::Control;
use super::peer::Peer;
use crate::ControlError;
use crate::api::Problem;

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Wrong(_) => StatusCode::BAD_REQUEST,
            Self::NoToken(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Service { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(Problem { error: self.to_string() })).into_response()
    }
}

/// Parts of a request, which are refused with a [`Problem`].
pub(super) struct Body<T>(pub(super) T);
pub(super) struct Path<T>(pub(super) T);
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ControlError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ControlError> {
        Ok(Self(Json::from_request(request, state).await?.0))
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ControlError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ControlError> {
        Ok(Self(axum::extract::Path::from_request_parts(parts, state).await?.0))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ControlError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ControlError> {
        Ok(Self(axum::extract::Query::from_request_parts(parts, state).await?.0))
    }
}

impl From<JsonRejection> for ControlError {
    fn from(rejection: JsonRejection) -> Self {
        Self::Wrong(rejection.body_text())
    }
}

impl From<PathRejection> for ControlError {
    fn from(rejection: PathRejection) -> Self {
        Self::Wrong(rejection.body_text())
    }
}

impl From<QueryRejection> for ControlError {
    fn from(rejection: QueryRejection) -> Self {
        Self::Wrong(rejection.body_text())
    }
}

/// Does `work`, which waits for the database or for services, in a thread of its own.
pub(super) async fn done<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(&Arc<Control>) -> Result<T, ControlError> + Send + 'static,
) -> Result<Json<T>, ControlError> {
    let done = tokio::task::spawn_blocking(move || work(&shared.control)).await;
    done.map_err(|e| ControlError::Fault(format!("the control daemon has a fault: {e}")))?.map(Json)
}

pub(super) type Known = State<Arc<Shared>>;
pub(super) type From_ = ConnectInfo<Peer>;
