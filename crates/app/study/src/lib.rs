// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments end to end, and the report they write.
//!
//! * [`study::run`] is the main job: measure this node's noise, suffer it with and without coordination,
//!   project it to many nodes;
//! * [`node::Node`] is what it asks of the machine, and the seam to measuring, benchmark and scheduler
//!   ([`this_node`] is the machine this runs on);
//! * [`card`] is the node's report card: what each source of its noise costs, and what to change;
//! * [`results`] is what comes out (`study/results.json`), [`report`] shows it (`study/report.html`);
//! * [`seeds`] lists every figure, table and sentence with a figure of the source documents that the
//!   project reproduces, and runs one of them.

pub mod advice;
pub mod card;
mod cell;
pub mod chart;
pub mod choice;
pub mod claims;
pub mod compute_node;
mod costing;
pub mod das_boot;
mod error;
pub mod failure;
pub mod format;
mod io_nodes;
pub mod io_scaling;
pub mod io_sockets;
pub mod measured;
pub mod neighbours;
pub mod node;
pub mod noise;
pub mod own;
pub mod pages;
pub mod params;
pub mod project;
mod quiet;
pub mod report;
pub mod results;
pub mod seeds;
pub mod simulated;
pub mod spare_here;
pub mod spare_node;
mod steps;
pub mod study;
pub mod table;
pub mod this_node;
pub mod three_kernels;
pub mod tlb;
pub mod virtual_node;
mod watch;

pub use error::StudyError;
pub use node::{Node, Progress};
pub use params::Params;
pub use results::Results;
pub use this_node::ThisNode;
