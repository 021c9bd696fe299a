// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics for monitors: OpenMetrics text over HTTP, on a unix socket or a TCP port.
//!
//! [`address`] says where, `socket` opens that place and takes it away again, `http` answers, `text` writes
//! [`StatsReport`](colony_client::StatsReport) as OpenMetrics 1.0, and `totals` adds up what the jobs before the
//! present one left: a counter that fell with each new job would lose what happened between two scrapes.

pub mod address;
#[cfg(test)]
mod check;
mod http;
mod socket;
mod text;
mod totals;

pub use socket::ListenError;

pub(crate) use http::answer;
pub(crate) use socket::Listening;
pub(crate) use text::open_metrics;
pub(crate) use totals::Totals;
