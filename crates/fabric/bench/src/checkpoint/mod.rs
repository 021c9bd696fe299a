// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of a checkpoint in memory, beside the least time that its bytes take, and beside the published times.
//!
//! [`Params::run`] starts this program again for each rank, over sockets: its `main` calls [`main_if_asked`]. The ranks
//! run a program of objects that makes a checkpoint at every round. Then the same ranks copy and exchange the same number
//! of bytes without the runtime: the *floor*. A [`Network`] extends the measured time to the published numbers of PEs.

mod block;
mod error;
mod floor;
mod launch;
mod options;
mod params;
mod published;
mod rank;
mod result;
mod simulate;
mod size;
mod table;
mod told;

pub use error::CheckpointError;
pub use options::CheckpointOptions;
pub use params::Params;
pub use rank::main_if_asked;
pub use result::{CheckpointBench, Run, Spread};
pub use simulate::{Network, Simulated};
