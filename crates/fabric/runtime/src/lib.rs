// SPDX-License-Identifier: MIT OR Apache-2.0
//! draft
mod address;
mod balancer;
mod broadcasts;
mod build;
mod bulk;
mod class;
mod core;
mod element;
mod handle;
mod index;
pub mod launch;
mod load;
pub mod location;
mod main_function;
mod message;
#[cfg(test)]
mod model;
mod object;
mod options;
pub mod order;
mod parcel;
mod port;
mod program;
mod quiescence;
pub mod reduction;
mod run;
mod scheduler;
mod shape;
mod task;
pub mod transport;

pub use crate::core::{Counts, Quiet, Reduced};
pub use address::{Address, ArrayId};
pub use balancer::{BalanceOptions, BalanceReport};
pub use bulk::Bulk;
pub use handle::Handle;
pub use main_function::{main, main_with};
pub use index::{ArrayIndex, Index};
pub use message::{Malformed, Message};
pub use object::{Array, Context, Element, Entry, Object, Respond, Section};
pub use options::Options;
pub use program::{Class, Program};
pub use reduction::{Callback, Op, Values};
pub use run::{Main, Outcome, RunError, run_and_report, run_on};
pub use shape::{Map, Shape};
