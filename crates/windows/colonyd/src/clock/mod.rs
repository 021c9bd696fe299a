// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agreement of this node's windows with those of other nodes: by the node's own clock, as its kernel judges it, or
//! by an estimate of the cluster's clock (`colony clock sync`).
//!
//! Windows get guards as wide as the clock error may be. If the error may exceed the limit, or is not known, colonyd stops
//! coordinating and reports this in `clock`. The node then enforces its windows on its own clock without guards, or enforces
//! none.

mod bound;
mod guards;
mod held;
mod judge;
mod rules;

pub use judge::StaleFeed;
pub use rules::{ClockRules, Fallback};

pub(crate) use bound::ask;
pub(crate) use judge::{ClockJudge, EVERY};
