// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes of calls: a result, a wait, or another image.

use std::time::Duration;

use colony_fship::Errno;

use crate::worker::image::Start;
use crate::worker::start::Opened;
use crate::worker::waits::Wait;

/// The outcome of making a call once.
pub(crate) enum Step {
    /// It has this result.
    Done(i64),
    /// It goes on later.
    Wait(Wait),
    /// The process is to have another image.
    Exec(Box<Exec>),
}

/// The new image of a process that calls `execve`.
pub(crate) struct Exec {
    pub(in crate::worker) opened: Opened,
    pub(in crate::worker) start: Start,
}

/// Result of a call's own code.
pub(super) type Made = Result<Step, Errno>;

pub(super) fn done(result: u64) -> Made {
    Ok(Step::Done(result as i64))
}

/// Others have their turn, then the call goes on.
pub(super) fn next_turn() -> Made {
    Ok(Step::Wait(Wait { now: true, ..Wait::default() }))
}

/// Nothing tells when the call can go on: it is tried again now and then.
pub(super) fn later() -> Made {
    const EVERY: Duration = Duration::from_millis(5);
    Ok(Step::Wait(Wait { every: Some(EVERY), ..Wait::default() }))
}
