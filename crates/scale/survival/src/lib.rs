// SPDX-License-Identifier: MIT OR Apache-2.0
//! What failures cost a job on many nodes, under each scheme of fault tolerance.
//!
//! ```
//! use colony_survival::costs::Costs;
//! use colony_survival::optimum::search;
//! use colony_survival::runs::Runs;
//! use colony_survival::scenario::Scenario;
//! use colony_survival::scheme::Scheme;
//!
//! let scenario = Scenario::default(); // 131,072 PEs for a week; a node fails each five years
//! let costs = Costs::of(&scenario, Scheme::Double)?;
//! let daly_s = costs.daly_s(&scenario).expect("it has checkpoints");
//! let mut runs = Runs::new(&scenario, 20, 1);
//! let optimum = search(&mut runs, &costs, daly_s)?;
//! let lives = runs.lives(&costs, optimum.interval_s)?;
//! let estimate = runs.estimate(&lives, Some(optimum.interval_s));
//! assert!(estimate.time.mean > 0.0 && estimate.time.mean < 0.05);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`scenario`]: machine, job, and how nodes fail; [`scheme`]: what is done about it,
//! * [`costs`]: what a checkpoint, a recovery and an evacuation cost,
//! * [`formula`]: Young, Daly, expected times, the risk of a double checkpoint,
//! * [`failures`]: the failures of all nodes in order; [`life`]: one job among them, event by event,
//! * [`runs`]: many lives, with confidence intervals; [`optimum`]: the best interval,
//! * [`study`]: all schemes on many sizes, and which to choose when.
//!
//! The runtime's own schemes are not run: their costs are computed from bytes and bandwidths.

pub mod costs;
mod error;
pub mod failures;
pub mod formula;
pub mod life;
pub mod optimum;
mod residual;
pub mod runs;
pub mod scenario;
mod schedule;
pub mod scheme;
pub mod study;

pub use error::SurvivalError;
