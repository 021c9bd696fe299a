// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the launcher: the ranks' processes, their connections, their heartbeats.

pub(crate) mod connections;
pub(crate) mod error;
pub(crate) mod heartbeat;
pub(crate) mod hosts;
pub(crate) mod mpi;
pub(crate) mod ranks;
pub(crate) mod requests;
pub(crate) mod session;
pub(crate) mod watch;
