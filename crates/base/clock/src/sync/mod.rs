// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparing the clocks of all nodes, along the [tree](mod@crate::tree), over UDP.
//!
//! A node first compares its clock with its parent's, then serves its children one after the other, then passes
//! what came out to its parent, so that rank 0 knows of all. A node that is not yet ready says that it is there;
//! a node that is silent for [`Config::silence_timeout`] is named in the error, on every node.

mod config;
mod error;
mod link;
mod node;
mod report;

pub use config::{Config, LocalClock, SystemClock};
pub use error::SyncError;
pub use node::Node;
pub use report::{Dropped, NodeResult, SyncReport};
