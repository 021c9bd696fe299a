// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all handlers share: parts of requests, answers for errors, and work that waits.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Json, RequestExt as _};
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

/// Requests of one user at most whose bodies are being read: each may take some MiB of the daemon's memory.
pub(super) const READ_AT_A_TIME: usize = 32;
/// Timeout for a body.
const READ: Duration = Duration::from_secs(20);

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Body<T> {
    type Rejection = ControlError;

    async fn from_request(mut request: Request, shared: &Arc<Shared>) -> Result<Self, ControlError> {
        let ConnectInfo(peer) = request
            .extract_parts::<From_>()
            .await
            .map_err(|e| ControlError::Fault(format!("the control daemon has a fault: {e}")))?;
        let too_many = || {
            let text =
                format!("more than {READ_AT_A_TIME} requests of user {} are being sent at once", peer.uid);
            ControlError::TooMany(text)
        };
        let _counted = shared.bodies.count(peer.uid, READ_AT_A_TIME).ok_or_else(too_many)?;
        Ok(Self(in_time(READ, Json::from_request(request, shared)).await??.0))
    }
}

/// Waits for a body.
async fn in_time<T>(limit: Duration, body: impl Future<Output = T>) -> Result<T, ControlError> {
    let late = |_| ControlError::Wrong(format!("the request was not there after {} s", limit.as_secs()));
    tokio::time::timeout(limit, body).await.map_err(late)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_come_is_an_error_after_the_timeout() {
        let limit = Duration::from_millis(10);
        let since = std::time::Instant::now();
        let error = in_time(limit, std::future::pending::<()>()).await.expect_err("too late").to_string();
        assert!(since.elapsed() >= limit && error.starts_with("the request was not there"), "{error}");
        assert!(in_time(READ, async { 7 }).await.is_ok_and(|number| number == 7));
    }
}
