// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon on synthetic nodes, which the tests play.

mod calls;
mod common;
mod fuzz;
mod identity;
mod jobs;
mod network;
mod psets;
mod scale;
mod serve;
mod streams;
mod stuck;
mod trouble;
