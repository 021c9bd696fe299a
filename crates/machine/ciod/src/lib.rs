// SPDX-License-Identifier: MIT OR Apache-2.0
//! CIOD, the control and I/O daemon of an I/O node: starts jobs on compute nodes and does their system calls in the
//! user's name (Designing a Highly-Scalable Operating System: The Blue Gene/L Story, SC06, 3.2 and 4.1).
//!
//! ```no_run
//! use colony_ciod::{Ciod, Config, JobSpec, Streams};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ciod = Ciod::new(Config::new("/usr/libexec/colony/ciod"))?;
//! let node = ciod.attach(0, 64 << 20)?;
//! let _socket = node.connect()?; // goes to QEMU: -chardev socket,id=c,fd=N
//! let job = ciod.launch(JobSpec::new("/bin/program"), &[0], Streams::inherit()?)?;
//! print!("{}", job.wait());
//! # Ok(())
//! # }
//! ```
//!
//! # Who does what
//! * The **supervisor** ([`Ciod`], maybe root) makes windows and bells ([`NodeLink`]), looks up users, starts a worker
//!   for each pset of a job and merges their reports ([`Job`]). It never maps a window.
//! * A **worker** ([`worker_main`]) is a process that takes the user's identity for good, and only then maps the
//!   windows of the job's nodes in one pset: it loads the programs and makes the calls. It is the pset's I/O node, and
//!   ends with the supervisor.
//! * A **node** is trusted in nothing: rings keep their places to themselves, addresses are checked against the
//!   process's bank, paths and structures copied once and checked, and what breaks a rule ([`Rule`]) is cut off.
//!
//! # How a call is made
//! The worker is one thread. It looks at the channels of nodes that asked lately, sleeps in `epoll` over the bells of the
//! others, and gives each channel a few requests a round. Most calls are replayed as they are, with descriptors
//! translated and addresses led into the window, so that data is never copied by the worker. What would wait is
//! non-blocking to the operating system, and waits in a queue with an `epoll` of its own.
//!
//! `io_uring` was measured beside plain calls (`benches/fship.rs`): 5.8 µs against 0.6 µs for a write of 4 KiB,
//! 22.9 against 17.0 for 256 KiB, since a call that ends at once gains nothing from a queue. Files on slow storage
//! would: there, a slow read does stall the job's other nodes, though not other jobs'.
#![warn(missing_docs)]

mod card;
mod check;
pub mod client;
mod config;
mod control;
mod elf;
mod error;
mod export;
mod given;
mod helper;
pub mod io_node;
mod job;
mod merge;
mod node;
mod outcome;
mod part;
mod personality;
mod proxy;
pub mod serve;
mod spec;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;
mod users;
mod worker;

pub use check::check;
pub use config::{Config, Streams};
pub use error::{CiodError, JobError, ProgramError, Rule};
pub use export::{Export, ExportError, MOST_EXPORTS};
pub use io_node::relay::relay_main;
pub use io_node::{IoLink, IoNode, IoNodeError};
pub use job::Job;
pub use node::{Listener, NodeLink, NodeState};
pub use outcome::{Counters, End, JobOutcome, LOST, ProcessOutcome};
pub use personality::Place;
pub use proxy::{Network, PROXY_ADDRESS, Proxy, proxy_main};
pub use spec::{Bind, Files, JobSpec, Mode, Program};
pub use supervisor::Ciod;
pub use worker::worker_main;
