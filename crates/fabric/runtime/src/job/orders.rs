// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the launcher and its agents, which `mpirun` starts.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// The variable with the launcher's address for agents, `MACHINE/HOST:PORT`.
pub(crate) const AGENT: &str = "COLONY_JOB_AGENT";

/// An agent's first message to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentHello {
    pub(crate) rank: u32,
    /// The machine's boot id, and its name.
    pub(crate) machine: String,
    pub(crate) host: String,
}

/// An order to an agent. The end of the connection is one, too: to kill the rank, and to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the rank with these variables.
    Start(Vec<(String, String)>),
    /// Kill the rank.
    Kill,
}

/// Bytes of an [`Event`].
pub(crate) const EVENT: usize = 5;

/// An output of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Out,
    Error,
}

/// A message of an agent about its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The rank is this process.
    Started(i32),
    /// It has ended, with this status of the system.
    Ended(i32),
    /// The system refused to start it, with this error number.
    Refused(i32),
    /// So many bytes of its output follow.
    Printed(Output, i32),
}

impl Event {
    pub(crate) fn to_bytes(self) -> [u8; EVENT] {
        let (kind, value) = match self {
            Self::Started(pid) => (1, pid),
            Self::Ended(status) => (2, status),
            Self::Refused(error) => (3, error),
            Self::Printed(Output::Out, bytes) => (4, bytes),
            Self::Printed(Output::Error, bytes) => (5, bytes),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [kind, a, b, c, d]
    }

    pub(crate) fn from_bytes([kind, a, b, c, d]: [u8; EVENT]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            1 => Self::Started(value),
            2 => Self::Ended(value),
            3 => Self::Refused(value),
            4 => Self::Printed(Output::Out, value),
            5 => Self::Printed(Output::Error, value),
            _ => return None,
        })
    }

    pub(crate) fn ended(status: ExitStatus) -> Self {
        Self::Ended(status.into_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let printed = [Output::Out, Output::Error].map(|output| Event::Printed(output, 7));
        for event in [Event::Started(77), Event::Ended(9), Event::Refused(-2)].into_iter().chain(printed) {
            assert_eq!(Event::from_bytes(event.to_bytes()), Some(event));
        }
        assert_eq!(Event::from_bytes([0; EVENT]), None);
    }
}
