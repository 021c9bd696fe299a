// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as data: racks, midplanes, node cards and nodes, the partitions and psets made of them, routes of both
//! networks, personalities, and the plan of a boot.
//!
//! The control daemon decides with these types, and hands each node its [`Personality`]. The functions are pure: none
//! opens a file, reads a clock or draws a random number.
//!
//! | part | extent | location |
//! |---|---|---|
//! | machine | whole midplanes, or one block inside a midplane | |
//! | rack | two midplanes | `R00` |
//! | midplane | 8x8x8 compute nodes | `R00-M0` |
//! | node card | 4x4x2 compute nodes | `R00-M0-N04` |
//! | compute node | | `R00-M0-N04-J12` |
//! | I/O node | one of four on a node card | `R00-M0-N04-I01` |
//! | service node | one a machine | `SN` |
//!
//! ```
//! use colony_model::{Block, FreeMap, Machine, Partition, PsetSize, Request};
//!
//! let machine = Machine::new("16x8x8".parse()?)?;
//! let mut free = FreeMap::new(machine);
//! let block = free.first_fit(Request::Nodes(512)).expect("an empty machine has room");
//! free.take(&block);
//! let partition = Partition::new(machine, &block.name(machine), block, PsetSize::new(64)?)?;
//! assert_eq!((partition.name(), partition.psets().count()), ("R00-M0", 8));
//! assert_eq!(partition.location(0).to_string(), "R00-M0-N00-J00");
//! # Ok::<(), colony_model::ModelError>(())
//! ```

mod block;
mod collective;
mod crc;
mod encoding;
mod error;
mod free;
mod location;
mod machine;
mod memory;
mod network;
mod partition;
mod personality;
pub mod plan;
mod pset;
mod push;
pub mod route;
mod shape;
mod transport;

pub use block::Block;
pub use collective::{Collective, CollectiveRoute, NodeRef};
pub use encoding::{DecodeError, ENCODED_BYTES, PERSONALITY_VERSION};
pub use error::ModelError;
pub use free::{Fragmentation, FreeMap, Request};
pub use location::{Kind, Location};
pub use machine::Machine;
pub use memory::{BitSteering, FailedBit, MEMORY_RANKS, NodeMemory, RANK_BITS};
pub use network::{IoNetwork, Mac, SecurityKey, Site};
pub use partition::Partition;
pub use personality::{Personality, Role};
pub use pset::{PsetSize, Psets};
pub use push::{PushTree, Sender};
pub use shape::{MAX_NODES, Shape};
