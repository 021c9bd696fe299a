// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colonyd` as its users meet it: through a shell, through its files, through what is left when it dies.
//!
//! All of it needs root and `/dev/fuse`; where they are missing the tests say so and pass.

mod abuse;
mod access;
mod chrony;
mod clock;
mod command;
mod files;
mod health;
mod job;
mod life;
mod metrics;
mod support;
mod unit;
