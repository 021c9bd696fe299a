// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions of compute nodes: virtual machines that run the compute node kernel, with the I/O daemon that loads
//! their programs and does their calls. The nodes of a pset share an I/O node: a process of the daemon that serves only them.
//!
//! ```no_run
//! use colony_ciod::{Config, JobSpec, Streams};
//! use colony_nodes::{Machine, Partition};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut partition = Partition::boot(Machine::default(), 8, Config::new("/usr/libexec/colony/ciod"))?;
//! let outcome = partition.run(JobSpec::new("/usr/bin/hello"), Streams::inherit()?)?;
//! assert!(outcome.success());
//! # Ok(())
//! # }
//! ```
//!
//! The kernel is part of this library ([`KERNEL`]). A node is one QEMU process of the `microvm` machine. A process of its
//! own, the program `colony-boot` beside `ciod`, starts and ends the nodes of a partition. Who waits for a job watches its nodes: one that dies ends the job, and is started anew
//! before the next, as is a node that a job leaves in the middle.

mod boot;
mod capture;
mod counters;
mod death;
mod emulator;
mod error;
mod hang;
mod io_node;
mod io_nodes;
mod life;
mod look;
mod machine;
mod monitor;
mod node;
mod partition;
mod places;
pub mod programs;
pub mod report;
mod running;
mod shared;
#[doc(hidden)]
pub mod testing;
mod torus;

pub use boot::boot_main;
pub use capture::{Captured, Capturing};
pub use colony_ciod as ciod;
pub use colony_tlb as tlb;
pub use colony_vm::Accel;
pub use counters::{NodeCounters, RunCounters};
pub use death::{Cause, Death};
pub use error::CnkError;
pub use hang::Hang;
pub use machine::{IoNodes, Link, Machine};
pub use node::Node;
pub use partition::Partition;
pub use places::Places;
pub use running::Running;

/// The compute node kernel: an ELF file with a PVH entry.
pub static KERNEL: &[u8] = include_bytes!(env!("COLONY_CNK"));
