// SPDX-License-Identifier: MIT OR Apache-2.0
//! How well this node keeps the windows that all nodes share: by its own clock as its kernel judges it, or by an
//! estimate of a cluster's clock (`colony clock sync`).
//!
//! Windows get guards as wide as the clock may be off. Where it may be off by more than is allowed, or nobody
//! knows by how much, coordination is given up, and says so; the node then keeps its windows by its own clock
//! as it is, or keeps none.

mod bound;
mod guards;
mod held;
mod judge;
mod rules;

pub use judge::StaleFeed;
pub use rules::{ClockRules, Fallback};

pub(crate) use bound::ask;
pub(crate) use judge::{ClockJudge, EVERY};
