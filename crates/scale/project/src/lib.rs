// SPDX-License-Identifier: MIT OR Apache-2.0
//! From measured noise to simulated noise.
//!
//! `colony sim`, `colony noise fit` and `colony study` all take their noise from traces through this crate, so that
//! they agree:
//!
//! * [`measured`] converts a trace into one timeline for each source and CPU, for simulations that replay it,
//! * [`node_noise`] merges all sources that count, for projections; [`favored_only`] cuts regular windows out,
//! * [`changes`] computes what changes of a node would give back, within a [`Budget`] of time,
//! * [`choose`] compares spare cores and coordinated windows,
//! * [`fit`] fits a model to each source, and writes the models as a scenario.

mod budget;
pub mod changes;
pub mod choose;
pub mod fit;
mod noise;

pub use budget::Budget;
pub use noise::{Steal, favored_only, measured, node_noise};
