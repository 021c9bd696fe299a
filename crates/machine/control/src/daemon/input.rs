// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard input of a job, as its user sends it. The daemon keeps nothing of it: the partition has the place up to which
//! it has been taken, so a daemon that is killed goes on there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::control::{Control, wrong};
use super::extract::{From_, Known, Path, Query, done};
use super::keeper::connect;
use super::peer::Peer;
use crate::ControlError;
use crate::api::{InputTaken, JobState, Problem};
use crate::service::protocol::{Answer, PART, give};

/// Longest wait for a job that has not begun, and the period of looks at it.
const BEGIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

/// The place of a part in the whole.
#[derive(Deserialize, IntoParams)]
pub(super) struct Part {
    /// The number of its first byte.
    from: u64,
    /// Whether the end comes after it.
    #[serde(default)]
    end: bool,
}

/// Takes a part of the standard input of a job, as far as its program has room. A part that comes again is taken once. If no
/// part, not even an empty one, comes for 60 s, the input ends.
#[utoipa::path(put, path = "/v1/jobs/{id}/stdin", params(("id" = u64, Path), Part), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = InputTaken), (status = "4XX", body = Problem)))]
pub(super) async fn input(
    State(shared): Known,
    ConnectInfo(peer): From_,
    Path(id): Path<u64>,
    Query(part): Query<Part>,
    bytes: Bytes,
) -> Result<Json<InputTaken>, ControlError> {
    done(shared, move |control| control.input(peer, id, &part, &bytes)).await
}

impl Control {
    fn input(
        self: &Arc<Self>,
        peer: Peer,
        id: u64,
        part: &Part,
        bytes: &[u8],
    ) -> Result<InputTaken, ControlError> {
        peer.check_owner(self.store().owner_of(id)?, id)?;
        let request = self.job(id)?.request;
        if !request.sends_stdin {
            return Err(ControlError::Conflict(format!("the standard input of job {id} is not sent")));
        }
        if bytes.len() > PART {
            return Err(wrong(format!("a part has at most {} KiB", PART >> 10)));
        }
        let began = Instant::now();
        loop {
            match self.job(id)?.state {
                JobState::Running => break,
                JobState::Ended => return Ok(InputTaken { bytes: part.from, is_open: false }),
                _ if began.elapsed() > BEGIN => return Ok(InputTaken { bytes: part.from, is_open: true }),
                _ => std::thread::sleep(LOOK),
            }
        }
        let name = request.partition;
        self.check_responsive(&name)?;
        let service = |source| ControlError::Service { name: name.clone(), source };
        let mut lines = connect(&self.socket(&name), None).map_err(service)?;
        match give(&mut lines, id, part.from, bytes, part.end).map_err(service)? {
            Answer::Input(taken) => Ok(taken),
            Answer::Refused(why) => Err(ControlError::Conflict(why)),
            _ => Err(ControlError::Fault("the partition does not understand input".to_owned())),
        }
    }
}
