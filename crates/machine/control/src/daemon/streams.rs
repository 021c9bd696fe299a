// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that go on: the output of a job, and events as they happen.

use std::convert::Infallible;
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use nix::fcntl::OFlag;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
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

/// A body whose parts are sent by a task. The task is notified when the reader has disconnected.
struct Parts(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

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
    if shared.control.job(id)?.is_output_removed {
        return Err(ControlError::Unknown(format!(
            "the output of job {id} is removed, because your later jobs had too much: `--output` and `--error` name files to \
             keep"
        )));
    }
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
    let (sender, parts) = mpsc::channel(WAITING);
    // a reader that hangs up ends this
    tokio::spawn(async move {
        tokio::select! {
            _ = copy(&shared, id, path, asked, &sender) => {}
            () = sender.closed() => {}
        }
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::new(Parts(parts))).into_response())
}

/// Opens kept output. It belongs to the job's user: links are not followed, and only a regular file is read.
async fn open(path: &Path) -> Option<tokio::fs::File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = tokio::fs::File::options().read(true).custom_flags(flags.bits()).open(path).await.ok()?;
    file.metadata().await.ok()?.is_file().then_some(file)
}

/// Copies the output of a job, until the job has ended or the reader hangs up.
async fn copy(
    shared: &Shared,
    id: u64,
    path: PathBuf,
    Output { from, follow }: Output,
    sender: &mpsc::Sender<Bytes>,
) -> Option<()> {
    let mut file = None;
    loop {
        // before the last look: nothing is printed after the end
        let is_last = !follow || shared.control.job(id).ok()?.state == JobState::Ended;
        if file.is_none()
            && let Some(mut opened) = open(&path).await
        {
            // no file has more bytes than the system can count
            opened.seek(SeekFrom::Start(from.min(i64::MAX.unsigned_abs()))).await.ok()?;
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
                sender.send(part.into()).await.ok()?;
            }
        }
        if is_last {
            return Some(());
        }
        sleep(LOOK).await;
    }
}

/// Events as they happen.
pub(super) fn events(shared: &Arc<Shared>) -> Response {
    let (sender, parts) = mpsc::channel(WAITING);
    let told = shared.control.listen();
    tokio::spawn(async move {
        tokio::select! {
            _ = tell(told, &sender) => {}
            () = sender.closed() => {}
        }
    });
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (head, Body::new(Parts(parts))).into_response()
}

/// Sends events to a listener until it disconnects.
async fn tell(mut told: Receiver<Told>, sender: &mpsc::Sender<Bytes>) -> Option<()> {
    // from here on nothing is missed
    sender.send(Bytes::from_static(b":\n\n")).await.ok()?;
    loop {
        let text = match timeout(KEEP_OPEN, told.recv()).await {
            Err(_) => ":\n\n".to_owned(),
            Ok(Ok(told)) => text_of(&told),
            Ok(Err(RecvError::Lagged(missed))) => format!("event: missed\ndata: {missed}\n\n"),
            Ok(Err(RecvError::Closed)) => return None,
        };
        sender.send(text.into()).await.ok()?;
    }
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
