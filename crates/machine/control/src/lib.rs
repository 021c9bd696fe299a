// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control system of a machine of compute nodes: the service node's software of Designing a Highly-Scalable Operating
//! System: The Blue Gene/L Story (SC06, 3.3).
//!
//! ```text
//! colony machine, colony job ── HTTP, local socket ──▶ colony-control ── SQLite
//!                                                       │ lines of JSON, local sockets
//!                                                       ▼
//!                                        colony-partition, one a partition ── nodes, ciod, the jobs' workers
//! ```
//!
//! - The [daemon](daemon_main) decides which partition boots, and which job runs next. Whatever it decides is in the database
//!   before it is done.
//! - A [partition service](service_main) owns the nodes of one partition. It outlives the daemon, which finds it again by its
//!   process id, its start time and its socket.

mod daemon;
mod error;
mod schedule;
mod service;
mod store;

use colony_control_api::api;

pub use daemon::daemon_main;
pub use error::ControlError;
pub use service::service_main;
