// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status of a partition, asked of its process. Requests about the machine report a partition whose process is stopped or hangs, and
//! do not wait for that process.

use std::io;

use super::control::Control;
use super::unresponsive::{STATUS_TIMEOUT, connect_within, is_timeout, stopped_reason};
use crate::ControlError;
use crate::api::NodeState;
use crate::service::protocol::{Answer, Ask, Lines, Status, ask};
use crate::store::Row;

/// The answer of a partition about its state.
pub(super) enum StatusAnswer {
    /// Its nodes are switched off.
    Off,
    /// Its process does not answer; the text says why.
    Unresponsive(String),
    Status(Status),
}

impl StatusAnswer {
    /// The states of the nodes of a partition that has so many.
    pub(super) fn nodes(self, nodes: u32) -> Vec<NodeState> {
        match self {
            Self::Status(status) => status.nodes,
            Self::Off => vec![NodeState::Off; nodes as usize],
            Self::Unresponsive(_) => vec![NodeState::Lost; nodes as usize],
        }
    }
}

impl Control {
    /// Asks the process of a partition for its status, unless it is known not to answer.
    pub(super) fn query_status(&self, row: &Row) -> StatusAnswer {
        let Some(owner) = row.owner.filter(|owner| owner.lives()) else { return StatusAnswer::Off };
        if let Some(why) = self.unresponsive_reason(row) {
            return StatusAnswer::Unresponsive(why);
        }
        let asked = connect_within(&self.socket(&row.name), STATUS_TIMEOUT)
            .and_then(|stream| ask(&mut Lines::new(stream), &Ask::Status));
        match asked {
            Ok(Answer::Status(status)) => {
                self.unresponsive.remove(&row.name);
                StatusAnswer::Status(status)
            }
            Err(e) if is_timeout(&e) => StatusAnswer::Unresponsive(self.unresponsive.add(&row.name, owner)),
            // it is about to begin, or has just ended
            _ => StatusAnswer::Off,
        }
    }

    /// Returns why the process of a partition would not answer now, as far as this is known without asking it.
    pub(super) fn unresponsive_reason(&self, row: &Row) -> Option<String> {
        let owner = row.owner?;
        stopped_reason(owner).or_else(|| self.unresponsive.recent_reason(&row.name, owner))
    }

    /// Refuses a request that the process of a partition has to carry out if that process does not answer.
    pub(super) fn check_responsive(&self, name: &str) -> Result<(), ControlError> {
        match self.unresponsive_reason(&self.row(name)?) {
            Some(why) => Err(ControlError::Service { name: name.to_owned(), source: io::Error::other(why) }),
            None => Ok(()),
        }
    }
}
