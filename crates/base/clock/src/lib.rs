// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks of nodes, as coordinated windows need them.
//!
//! Windows that open at one instant everywhere are as good as the nodes' clocks ("a software solution that
//! obviates the need for the hardware heartbeat" is what the HPC-Colony progress report 2006 asks for):
//!
//! * [`source`]: how far this node's clock may be from true time, as the programs know it that discipline the clock;
//! * [`fit`]: the offset and drift between two clocks from round trips, with a bound that is sure to hold: an
//!   [`Estimate`](colony_time::Estimate);
//! * [`tree`], [`wire`], [`hosts`], [`key`], [`sync`]: the same for all nodes of a cluster in log₂ n rounds over UDP;
//! * [`simulate`]: the same code on simulated nodes, to tens of thousands.

pub mod anchor;
pub mod fit;
pub mod hosts;
pub mod key;
pub mod simulate;
pub mod source;
pub mod sync;
pub mod tree;
pub mod wire;
