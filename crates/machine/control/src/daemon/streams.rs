// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that go on: the output of a job, and events as they happen.

use std::convert::Infallible;
use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use http_body_util::channel::{Channel, Sender};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::Shared;
use super::control::Told;
use super::peer::Peer;
use crate::ControlError;
use crate::api::JobState;

/// Period of looks for more output.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of one part of an answer.
const PART: usize = 64 << 10;
/// Parts that wait for a slow reader.
const WAITING: usize = 16;
/// Period of comments in an event stream that keep its connection open.
const KEEP_OPEN: Duration = Duration::from_secs(15);

/// The part of an output that is asked for.
#[derive(Deserialize, IntoParams)]
pub(super) struct Output {
    /// The first byte.
    #[serde(default)]
    from: u64,
    /// Wait for more until the job has ended.
    #[serde(default = "yes")]
    follow: bool,
}

const fn yes() -> bool {
    true
}

/// The output of a job.
pub(super) async fn output(
    shared: Arc<Shared>,
    peer: Peer,
    (id, stream): (u64, String),
    asked: Output,
) -> Result<Response, ControlError> {
    let owner = shared.control.store().owner_of(id)?;
    shared.control.job(id)?;
    peer.check_owner(owner, id)?;
    let [stdout, stderr] = shared.control.output_files(id);
    let path = match stream.as_str() {
        "stdout" => stdout,
        "stderr" => stderr,
        _ => {
            return Err(ControlError::Unknown(format!(
                "a job has no stream {stream}: it has stdout and stderr"
            )));
        }
    };
    let (sender, body) = Channel::<Bytes, Infallible>::new(WAITING);
    // a reader that hangs up ends this
    tokio::spawn(async move { copy(&shared, id, path, asked, sender).await });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::new(body)).into_response())
}

/// Copies the output of a job, until the job has ended or the reader hangs up.
async fn copy(
    shared: &Shared,
    id: u64,
    path: PathBuf,
    Output { from, follow }: Output,
    mut sender: Sender<Bytes, Infallible>,
) -> Option<()> {
    let mut file = None;
    loop {
        // before the last look: nothing is printed after the end
        let is_last = !follow || shared.control.job(id).ok()?.state == JobState::Ended;
        if file.is_none()
            && let Ok(mut opened) = tokio::fs::File::open(&path).await
        {
            opened.seek(SeekFrom::Start(from)).await.ok()?;
            file = Some(opened);
        }
        if let Some(file) = &mut file {
            loop {
                let mut part = vec![0; PART];
                let read = file.read(&mut part).await.ok()?;
                if read == 0 {
                    break;
                }
                part.truncate(read);
                sender.send_data(part.into()).await.ok()?;
            }
        }
        if is_last {
            return Some(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Events as they happen.
pub(super) fn events(shared: &Arc<Shared>) -> Response {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(WAITING);
    let mut told = shared.control.listen();
    tokio::spawn(async move {
        // from here on nothing is missed
        if sender.send_data(Bytes::from_static(b":\n\n")).await.is_err() {
            return;
        }
        loop {
            let text = match tokio::time::timeout(KEEP_OPEN, told.recv()).await {
                Err(_) => ":\n\n".to_owned(),
                Ok(Ok(told)) => text_of(&told),
                Ok(Err(RecvError::Lagged(missed))) => format!("event: missed\ndata: {missed}\n\n"),
                Ok(Err(RecvError::Closed)) => return,
            };
            if sender.send_data(text.into()).await.is_err() {
                return;
            }
        }
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], Body::new(body)).into_response()
}

/// A server-sent event: its kind, and JSON in one line.
fn text_of(told: &Told) -> String {
    let (kind, value) = match told {
        Told::Ras(event) => ("ras", serde_json::to_string(event)),
        Told::Partition { name, state } => {
            ("partition", serde_json::to_string(&serde_json::json!({ "name": name, "state": state })))
        }
        Told::Job { id, state } => {
            ("job", serde_json::to_string(&serde_json::json!({ "id": id, "state": state })))
        }
        Told::Nodes { partition, nodes } => {
            ("nodes", serde_json::to_string(&serde_json::json!({ "partition": partition, "nodes": nodes })))
        }
    };
    format!("event: {kind}\ndata: {}\n\n", value.unwrap_or_default())
}
