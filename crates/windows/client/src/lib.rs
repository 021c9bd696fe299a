// SPDX-License-Identifier: MIT OR Apache-2.0
//! Talking to `colonyd`, the node daemon: the names of its files, its reports, and a [`Client`].
//!
//! The crate is for programs that use the daemon, such as a plugin of a job manager: it holds types and `serde`, and links
//! neither the daemon's servers nor the scheduler.

mod agent;
mod backend;
mod client;
mod clock;
mod ext;
mod files;
mod keeper;
mod stats;

pub use agent::AgentStats;
pub use backend::Backend;
pub use client::{Client, ClientError, DEFAULT_MOUNT, MOUNT_VARIABLE};
pub use clock::{ClockReport, Cluster, Coordination, Mode};
pub use ext::{CpuStats, CpuTimes, ExtStats, RtTask, Waited};
pub use files::File;
pub use keeper::KeeperStats;
pub use stats::{JobReport, StatsReport};
