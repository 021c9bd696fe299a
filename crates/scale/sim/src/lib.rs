// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise at scale: what the noise of a node costs a bulk-synchronous program on many nodes.
//!
//! A [`Simulation`](simulate::Simulation) is a [`Program`](program::Program) on a
//! [`Machine`](machine::Machine) whose [`Node`](node::Node)s have noise and a scheduler:
//!
//! ```
//! use colony_sim::node::Node;
//! use colony_sim::machine::Machine;
//! use colony_sim::program::{Operation, Program};
//! use colony_sim::scheduler::Preempt;
//! use colony_sim::simulate::{Simulation, simulate};
//! use colony_sim::source::{Model, Source};
//!
//! let detours = Source::new("detours", Model::periodic(1_000_000, 16_000)); // 16 µs each millisecond
//! let outcome = simulate(&Simulation {
//!     program: Program::collective(Operation::Barrier, 0, 1000),
//!     machine: Machine::named("bgl")?,
//!     node: Node::new(vec![detours], Preempt),
//!     nodes: 16_384,
//!     begin_ns: None,
//!     repetitions: 2,
//!     seed: 1,
//! })?;
//! assert!(outcome.quiet_ns < 1_400.0 && outcome.mean_ns > 15_000.0);
//! # Ok::<(), colony_sim::SimError>(())
//! ```
//!
//! From the noise inwards:
//!
//! * [`source`]: what wants a CPU's time, models and traces; [`fit`] makes models of traces ([`noise`]),
//! * [`scheduler`]: what of it reaches the job's CPUs, and when; [`spare`] has the rest,
//! * [`cpus`]: work goes in, the instant it is done comes out; [`detours`] lists the detours of some ranks,
//! * [`network`], [`machine`]: LogGOPS, topologies, collectives in hardware, profiles; [`local`] fits one,
//! * [`program`]: what all ranks do; [`simulate`] runs it level by level, without a queue of events,
//! * [`goal`], [`event`]: any schedule of sends, receives and calculations, on the same CPUs and network,
//! * [`spec`], [`sweep`], [`what_if`]: scenarios as TOML, many at once, and what each source costs.

mod base_time;
pub mod cpus;
pub mod detours;
mod error;
pub mod event;
pub mod fit;
pub mod goal;
mod kernels;
mod large;
pub mod layout;
mod level;
pub mod local;
mod loggops;
pub mod machine;
pub mod network;
pub mod node;
pub mod noise;
mod profile;
pub mod program;
mod replay;
pub mod ring;
pub mod rng;
pub mod scheduler;
pub mod simulate;
mod simulation;
pub mod source;
pub mod spare;
pub mod spec;
pub mod stats;
pub mod sweep;
pub mod what_if;
mod windowed;
pub mod words;

pub use base_time::BaseTime;
pub use error::SimError;
pub use layout::Layout;
pub use loggops::{LogGops, MessageCost};
pub use noise::{CpuNoise, NodeNoise};
