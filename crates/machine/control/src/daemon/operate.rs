// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes of operators: nodes that get no more jobs, rates of events.

use axum::Json;
use axum::extract::{ConnectInfo, State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{Body, From_, Known, Path, Query, done};
use crate::ControlError;
use crate::api::{Drain, DrainRequest, Partition, Problem, Rate, RightsRequest, Threshold};

/// The window of rates, unless another is asked for, seconds.
const WITHIN: f64 = 3600.0;

/// The parts of the machine whose nodes get no new jobs.
#[utoipa::path(get, path = "/v1/drains", responses((status = 200, body = Vec<Drain>), (status = "4XX", body = Problem)))]
pub(super) async fn drains(State(shared): Known) -> Result<Json<Vec<Drain>>, ControlError> {
    done(shared, |control| control.store().drains()).await
}

/// Drains parts of the machine: their nodes get no new jobs. Jobs that run go on.
#[utoipa::path(post, path = "/v1/drains", request_body = DrainRequest, responses((status = 200, body = Vec<Drain>), (status = "4XX", body = Problem)))]
pub(super) async fn drain(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(request): Body<DrainRequest>,
) -> Result<Json<Vec<Drain>>, ControlError> {
    done(shared, move |control| control.drain(peer, &request)).await
}

/// Gives jobs again to a part of the machine and to all of its parts that are drained, or to several, separated by commas.
/// Answers with the locations that were drained. Events before are not counted any more.
#[utoipa::path(delete, path = "/v1/drains/{location}", params(("location" = String, Path)), responses((status = 200, body = Vec<String>), (status = "4XX", body = Problem)))]
pub(super) async fn undrain(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(location): Path<String>,
) -> Result<Json<Vec<String>>, ControlError> {
    done(shared, move |control| control.undrain(peer, &location)).await
}

/// Changes who may run jobs on a partition.
#[utoipa::path(post, path = "/v1/partitions/{name}/rights", params(("name" = String, Path)), request_body = RightsRequest, responses((status = 200, body = Partition), (status = "4XX", body = Problem)))]
pub(super) async fn rights(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(name): Path<String>,
    Body(request): Body<RightsRequest>,
) -> Result<Json<Partition>, ControlError> {
    done(shared, move |control| control.set_rights(peer, &name, &request)).await
}

#[derive(Deserialize, IntoParams)]
pub(super) struct RateQuery {
    /// The window up to now, seconds; 3600 by default.
    within_s: Option<f64>,
    /// Events of locations that begin so.
    location: Option<String>,
}

/// Events by location and code, the most frequent first.
#[utoipa::path(get, path = "/v1/ras/rates", params(RateQuery), responses((status = 200, body = Vec<Rate>), (status = "4XX", body = Problem)))]
pub(super) async fn rates(
    State(shared): Known,
    Query(asked): Query<RateQuery>,
) -> Result<Json<Vec<Rate>>, ControlError> {
    let (within_s, location) = (asked.within_s.unwrap_or(WITHIN), asked.location.unwrap_or_default());
    done(shared, move |control| control.rates(within_s, &location)).await
}

/// The numbers of events that drain a node, by code.
#[utoipa::path(get, path = "/v1/ras/thresholds", responses((status = 200, body = Vec<Threshold>), (status = "4XX", body = Problem)))]
pub(super) async fn thresholds(State(shared): Known) -> Result<Json<Vec<Threshold>>, ControlError> {
    done(shared, |control| control.store().thresholds()).await
}

/// Sets the number of events of one code that drains a node.
#[utoipa::path(post, path = "/v1/ras/thresholds", request_body = Threshold, responses((status = 200, body = Vec<Threshold>), (status = "4XX", body = Problem)))]
pub(super) async fn set_threshold(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(threshold): Body<Threshold>,
) -> Result<Json<Vec<Threshold>>, ControlError> {
    done(shared, move |control| control.set_threshold(peer, &threshold)).await
}
