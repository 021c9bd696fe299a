// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the launcher: the ranks' processes, their connections, their heartbeats, and the agents that `mpirun` starts.

pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod connections;
pub(crate) mod deaths;
pub(crate) mod ending;
pub(crate) mod error;
pub(crate) mod heartbeat;
pub(crate) mod hosts;
pub(crate) mod orders;
pub(crate) mod process;
pub(crate) mod ranks;
pub(crate) mod requests;
pub(crate) mod session;
mod vitals;
pub(crate) mod watch;
