// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in windows, and what is left of them.

mod agent;
mod common;
mod harm;
mod lock;
mod run;
mod spare;
mod versions;
