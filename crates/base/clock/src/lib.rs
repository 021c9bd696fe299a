// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks of nodes, as coordinated windows need them.
//!
//! Windows that open at one instant everywhere are as good as the nodes' clocks ("a software solution that
//! obviates the need for the hardware heartbeat" is what the HPC-Colony progress report 2006 asks for):
//!
//! * [`quality`]: how far this node's clock may be from true time, as the kernel knows it;
//! * [`source`]: the same, as the programs know it that discipline the clock;
//! * [`fit`] and [`estimate`]: the offset and drift between two clocks from round trips, with a bound that is
//!   sure to hold, and what a chain of such estimates says;
//! * [`tree`], [`wire`], [`hosts`], [`key`], [`sync`]: the same for all nodes of a cluster in log₂ n rounds over UDP;
//! * [`simulate`]: the same code on simulated nodes, to tens of thousands.

pub mod anchor;
pub mod estimate;
pub mod fit;
pub mod hosts;
pub mod key;
pub mod quality;
pub mod simulate;
pub mod source;
pub mod sync;
pub mod tree;
pub mod wire;

pub use estimate::Estimate;
pub use quality::ClockQuality;
