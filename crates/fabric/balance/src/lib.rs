// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load balancing of migratable objects: pure functions over a load database.
//!
//! ```
//! use colony_balance::database::{Database, Object};
//! use colony_balance::quality::Quality;
//! use colony_balance::strategy::Strategies;
//! use colony_balance::topology::Topology;
//!
//! let mut database = Database::of_equal_pes(2)?;
//! for id in 0..4 {
//!     database.push_object(Object { id, pe: 0, load_s: 1.0, bytes: 512, migratable: true })?;
//! }
//! let outcome = Strategies::parse("greedy")?.assign(&database, &Topology::Flat)?;
//! let quality = Quality::of(&database, &outcome.placement, &Topology::Flat)?;
//! assert_eq!((quality.imbalance, quality.moved_objects), (1.0, 2));
//! # Ok::<(), colony_balance::BalanceError>(())
//! ```
//!
//! * [`database`]: PEs, objects, messages; [`topology`]: links between PEs,
//! * [`strategy`]: from a database to a new placement; [`quality`]: its imbalance, and the objects that move,
//! * [`trigger`], [`config`]: conditions under which a strategy runs, and the cost of its migrations,
//! * [`estimate`]: loads from measurements that contain the noise of the operating system,
//! * [`generate`]: databases of a seed, to try strategies on; [`mod@file`]: load files, ours and those of DARMA/vt.

pub mod config;
pub mod database;
mod error;
pub mod estimate;
pub mod file;
pub mod generate;
pub mod limits;
pub mod quality;
mod random;
pub mod strategy;
pub mod topology;
pub mod trigger;

pub use error::BalanceError;
