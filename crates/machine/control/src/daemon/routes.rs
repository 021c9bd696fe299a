// SPDX-License-Identifier: MIT OR Apache-2.0
//! The HTTP interface. Handlers only translate: what is done is in `requests`.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::response::Response;
use axum::routing::{delete, get, post, put};
use serde::Deserialize;
use utoipa::{IntoParams, OpenApi};

use super::extract::{Body, From_, Known, Path, Query, done};
use super::{Shared, access, input, operate, streams};
use crate::ControlError;
use crate::api::{
    Caller, Event, Job, JobRequest, Machine, MachineRequest, Node, NodeDetail, Partition, PartitionRequest,
    Problem, Severity, SignalRequest,
};
use crate::store::RasFilter;

/// Bytes of a request at most: a job has its environment.
const REQUEST: usize = 4 << 20;
/// Jobs and events of an answer, unless more are asked for.
const LIST: u32 = 100;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Control system of a Colony machine",
        description = "Partitions, jobs and events of a machine of compute nodes."
    ),
    paths(
        caller,
        machine,
        set_up,
        down,
        partitions,
        add_partition,
        partition,
        remove_partition,
        nodes,
        node,
        boot,
        free,
        jobs,
        submit,
        job,
        signal,
        output,
        input::input,
        ras,
        events,
        operate::drains,
        operate::drain,
        operate::undrain,
        operate::rates,
        operate::thresholds,
        operate::set_threshold,
        operate::rights
    )
)]
struct Documentation;

/// The caller, and whether its token may only look.
#[utoipa::path(get, path = "/v1/caller", responses((status = 200, body = Caller), (status = "4XX", body = Problem)))]
async fn caller(ConnectInfo(peer): From_) -> Json<Caller> {
    Json(Caller { user: peer.name(), read_only: peer.is_read_only })
}

/// The machine: its partitions, and the jobs that wait or run, without their environments.
#[utoipa::path(get, path = "/v1/machine", responses((status = 200, body = Machine), (status = "4XX", body = Problem)))]
async fn machine(State(shared): Known) -> Result<Json<Machine>, ControlError> {
    done(shared, |control| control.machine()).await
}

/// Sets up the machine, and boots a partition of all its nodes if that is asked for.
#[utoipa::path(post, path = "/v1/machine", request_body = MachineRequest, responses((status = 200, body = Machine), (status = "4XX", body = Problem)))]
async fn set_up(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(request): Body<MachineRequest>,
) -> Result<Json<Machine>, ControlError> {
    done(shared, move |control| control.set_up(peer, &request)).await
}

/// Switches all partitions off. Answers when their nodes have ended; then the daemon ends.
#[utoipa::path(delete, path = "/v1/machine", responses((status = 200), (status = "4XX", body = Problem)))]
async fn down(State(shared): Known, ConnectInfo(peer): From_) -> Result<Json<()>, ControlError> {
    let ended = done(shared.clone(), move |control| control.down(peer)).await;
    if ended.is_ok() {
        shared.over.notify_one();
    }
    ended
}

/// The partitions.
#[utoipa::path(get, path = "/v1/partitions", responses((status = 200, body = Vec<Partition>), (status = "4XX", body = Problem)))]
async fn partitions(State(shared): Known) -> Result<Json<Vec<Partition>>, ControlError> {
    done(shared, |control| Ok(control.machine()?.partitions)).await
}

/// Makes a partition of nodes that no other has. Its nodes are switched off.
#[utoipa::path(post, path = "/v1/partitions", request_body = PartitionRequest, responses((status = 200, body = Partition), (status = "4XX", body = Problem)))]
async fn add_partition(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(request): Body<PartitionRequest>,
) -> Result<Json<Partition>, ControlError> {
    done(shared, move |control| control.add_partition(peer, &request)).await
}

/// A partition.
#[utoipa::path(get, path = "/v1/partitions/{name}", params(("name" = String, Path)), responses((status = 200, body = Partition), (status = "4XX", body = Problem)))]
async fn partition(State(shared): Known, Path(name): Path<String>) -> Result<Json<Partition>, ControlError> {
    done(shared, move |control| control.partition(&name)).await
}

/// Removes a partition whose nodes are switched off.
#[utoipa::path(delete, path = "/v1/partitions/{name}", params(("name" = String, Path)), responses((status = 200), (status = "4XX", body = Problem)))]
async fn remove_partition(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(name): Path<String>,
) -> Result<Json<()>, ControlError> {
    done(shared, move |control| control.remove_partition(peer, &name)).await
}

/// The compute nodes of a partition.
#[utoipa::path(get, path = "/v1/partitions/{name}/nodes", params(("name" = String, Path)), responses((status = 200, body = Vec<Node>), (status = "4XX", body = Problem)))]
async fn nodes(State(shared): Known, Path(name): Path<String>) -> Result<Json<Vec<Node>>, ControlError> {
    done(shared, move |control| control.nodes(&name)).await
}

/// A compute node of a partition, with its personality.
#[utoipa::path(get, path = "/v1/partitions/{name}/nodes/{number}", params(("name" = String, Path), ("number" = u32, Path)), responses((status = 200, body = NodeDetail), (status = "4XX", body = Problem)))]
async fn node(
    State(shared): Known,
    Path((name, number)): Path<(String, u32)>,
) -> Result<Json<NodeDetail>, ControlError> {
    done(shared, move |control| control.node(&name, number)).await
}

/// Begins to boot the nodes of a partition.
#[utoipa::path(post, path = "/v1/partitions/{name}/boot", params(("name" = String, Path)), responses((status = 200, body = Partition), (status = "4XX", body = Problem)))]
async fn boot(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(name): Path<String>,
) -> Result<Json<Partition>, ControlError> {
    done(shared, move |control| control.boot(peer, &name).and_then(|()| control.partition(&name))).await
}

/// Begins to switch the nodes of a partition off.
#[utoipa::path(post, path = "/v1/partitions/{name}/free", params(("name" = String, Path)), responses((status = 200, body = Partition), (status = "4XX", body = Problem)))]
async fn free(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(name): Path<String>,
) -> Result<Json<Partition>, ControlError> {
    done(shared, move |control| control.free(peer, &name).and_then(|()| control.partition(&name))).await
}

#[derive(Deserialize, IntoParams)]
struct JobsQuery {
    /// The most jobs of the answer; 100 by default, 1000 at most. There may be fewer although older ones exist: ask again with
    /// `before` until none is left.
    limit: Option<u32>,
    /// Jobs before the one with this number; without it, the last ones.
    before: Option<u64>,
}

/// The last jobs, the newest first, without their environments.
#[utoipa::path(get, path = "/v1/jobs", params(JobsQuery), responses((status = 200, body = Vec<Job>), (status = "4XX", body = Problem)))]
async fn jobs(State(shared): Known, Query(asked): Query<JobsQuery>) -> Result<Json<Vec<Job>>, ControlError> {
    done(shared, move |control| control.store().jobs(asked.before, asked.limit.unwrap_or(LIST))).await
}

/// Adds a job to the queue of its partition.
#[utoipa::path(post, path = "/v1/jobs", request_body = JobRequest, responses((status = 200, body = Job), (status = "4XX", body = Problem)))]
async fn submit(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Body(request): Body<JobRequest>,
) -> Result<Json<Job>, ControlError> {
    done(shared, move |control| control.submit(peer, request)).await
}

/// A job.
#[utoipa::path(get, path = "/v1/jobs/{id}", params(("id" = u64, Path)), responses((status = 200, body = Job), (status = "4XX", body = Problem)))]
async fn job(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(id): Path<u64>,
) -> Result<Json<Job>, ControlError> {
    done(shared, move |control| control.explained(id).map(|job| peer.shown(job))).await
}

/// Sends a signal to all processes of a job. A job in the queue ends.
#[utoipa::path(post, path = "/v1/jobs/{id}/signal", params(("id" = u64, Path)), request_body = SignalRequest, responses((status = 200), (status = "4XX", body = Problem)))]
async fn signal(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(id): Path<u64>,
    Body(request): Body<SignalRequest>,
) -> Result<Json<()>, ControlError> {
    done(shared, move |control| control.signal(peer, id, request.signal)).await
}

/// What a job has printed. Ends when the job has ended; with `follow=false` at the end of what is there.
#[utoipa::path(get, path = "/v1/jobs/{id}/{stream}", params(("id" = u64, Path), ("stream" = String, Path, description = "`stdout` or `stderr`"), streams::Output), responses((status = 200, body = Vec<u8>), (status = "4XX", body = Problem)))]
async fn output(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path((id, stream)): Path<(u64, String)>,
    Query(asked): Query<streams::Output>,
) -> Result<Response, ControlError> {
    streams::output(shared, peer, (id, stream), asked).await
}

#[derive(Deserialize, IntoParams)]
struct RasQuery {
    /// Events after the one with this number; without it, the last ones.
    after: Option<u64>,
    /// Events of this severity, or worse.
    severity: Option<Severity>,
    /// Events of locations that begin so.
    location: Option<String>,
    /// The most events of the answer; 100 by default.
    limit: Option<u32>,
}

/// Events of reliability, availability and serviceability, the oldest first.
#[utoipa::path(get, path = "/v1/ras", params(RasQuery), responses((status = 200, body = Vec<Event>), (status = "4XX", body = Problem)))]
async fn ras(State(shared): Known, Query(asked): Query<RasQuery>) -> Result<Json<Vec<Event>>, ControlError> {
    let RasQuery { after, severity, location, limit } = asked;
    let filter = RasFilter { after, severity, location, limit: limit.unwrap_or(LIST) };
    done(shared, move |control| control.store().events(&filter)).await
}

/// Events (`ras`), states of partitions (`partition`), of jobs (`job`) and of nodes (`nodes`) as they change, as server-sent
/// events. `nodes` has the numbers of nodes by their new state, at first those of all nodes.
#[utoipa::path(get, path = "/v1/events", responses((status = 200, content_type = "text/event-stream")))]
async fn events(State(shared): Known) -> Response {
    streams::events(&shared)
}

async fn documentation() -> Json<utoipa::openapi::OpenApi> {
    let mut all = Documentation::openapi();
    all.merge(access::Documentation::openapi());
    Json(all)
}

async fn nothing() -> ControlError {
    ControlError::Unknown("there is nothing here: /v1/openapi.json describes what there is".to_owned())
}

/// The routes of the interface, for all who are let in.
pub(super) fn all() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/openapi.json", get(documentation))
        .route("/v1/caller", get(caller))
        .route("/v1/machine", get(machine).post(set_up).delete(down))
        .route("/v1/partitions", get(partitions).post(add_partition))
        .route("/v1/partitions/{name}", get(partition).merge(delete(remove_partition)))
        .route("/v1/partitions/{name}/nodes", get(nodes))
        .route("/v1/partitions/{name}/nodes/{number}", get(node))
        .route("/v1/partitions/{name}/boot", post(boot))
        .route("/v1/partitions/{name}/free", post(free))
        .route("/v1/jobs", get(jobs).post(submit))
        .route("/v1/jobs/{id}", get(job))
        .route("/v1/jobs/{id}/signal", post(signal))
        .route("/v1/jobs/{id}/stdin", put(input::input))
        .route("/v1/jobs/{id}/{stream}", get(output))
        .route("/v1/ras", get(ras))
        .route("/v1/events", get(events))
        .route("/v1/partitions/{name}/rights", post(operate::rights))
        .route("/v1/drains", get(operate::drains).post(operate::drain))
        .route("/v1/drains/{location}", delete(operate::undrain))
        .route("/v1/ras/rates", get(operate::rates))
        .route("/v1/ras/thresholds", get(operate::thresholds).post(operate::set_threshold))
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(REQUEST))
}
