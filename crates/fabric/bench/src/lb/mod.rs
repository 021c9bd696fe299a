// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Lb test, and a stencil whose load moves: objects of the runtime that really migrate, once with each strategy of
//! load balancing.
//!
//! [`Params::run`] starts this program again for each rank, over sockets: its `main` calls [`main_if_asked`]. Every PE
//! records when its objects end each iteration and what CPU time that took (`record`); from these records comes the
//! [`Comparison`]. All runs have the same objects, and must have the same checksum.

mod cell;
mod compare;
mod error;
mod figures;
mod kernel;
mod mesh;
mod options;
mod params;
mod rank;
mod record;
mod result;
mod stencil;
mod table;

pub use error::LbError;
pub use options::LbOptions;
pub use params::{NONE, Params, Program};
pub use rank::main_if_asked;
pub use result::{Balancing, Comparison, Run, Stretch, Summary};
