// SPDX-License-Identifier: MIT OR Apache-2.0
//! Studies of made-up machines, and their reports.

mod browser;
mod fake;
mod seeds;
mod settings;
mod whole;
