// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that exchange messages, migrate between processes and balance themselves.
//!
//! A program is classes of [objects](Object) and their [entry methods](Entry). Objects are elements of
//! [arrays](Array), which have up to six dimensions. A message is sent to an element, wherever it is; its entry method
//! runs on the *PE* (processing element: a scheduler, one thread) that the element is on.
//!
//! ```
//! use colony_runtime::transport::Single;
//! use colony_runtime::{Context, Entry, Object, Options, Program, run_on};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greeter;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Hello(u32);
//!
//! impl Object for Greeter {
//!     type Index = i64;
//!     type Init = ();
//!     fn new((): (), _: &mut Context<'_, Self>) -> Self {
//!         Self
//!     }
//! }
//!
//! impl Entry<Hello> for Greeter {
//!     fn call(&mut self, Hello(times): Hello, cx: &mut Context<'_, Self>) {
//!         match times {
//!             0 => cx.exit(0),
//!             _ => cx.send(cx.array().at((cx.index() + 1) % 4), Hello(times - 1)),
//!         }
//!     }
//! }
//!
//! let program = Program::new().class::<Greeter>(|class| class.entry::<Hello>());
//! let outcome = run_on(program, &Options::default(), Box::new(Single), |cx| {
//!     let greeters = cx.create_array::<Greeter>(&[4], ());
//!     cx.send(greeters.at(0), Hello(10));
//! })?;
//! assert_eq!((outcome.code, outcome.counts[0].executed), (0, 11));
//! # Ok::<(), colony_runtime::RunError>(())
//! ```
//!
//! # Guarantees
//! * Every message is delivered once. Messages of one object to another run in the order in which they were sent,
//!   although either migrates at any time ([`order`], [`location`]; tests check the protocol exhaustively).
//! * Every element gets each broadcast of its array once and in one order, and counts once in each
//!   [reduction].
//! * An entry method runs alone: no other one of its PE runs meanwhile.
//! * A failure of one process (a panic in an entry method, a message that cannot be unpacked, a program that hangs) is
//!   one error on the process where it happened, and ends all of them.
//!
//! # Processes
//! [`main`] joins the job that a launcher has started: [sockets](transport::sockets) (see [`launch`]), MPI (feature
//! `mpi`), or the torus of compute nodes. [`Options::threads`] gives a process several PEs.

mod address;
mod balance_options;
mod balancer;
mod broadcasts;
mod build;
mod bulk;
mod checkpoint;
mod class;
mod core;
mod early_exit;
mod element;
mod generation;
mod handle;
mod health;
mod index;
mod job;
pub mod launch;
mod ledger;
mod load;
pub mod location;
mod logging;
mod main_function;
mod message;
#[cfg(test)]
mod model;
mod mpirun;
mod numbers;
mod object;
mod options;
pub mod order;
mod outcome;
mod parcel;
mod place;
mod port;
mod process;
mod program;
mod queued;
mod quiescence;
pub mod ranks;
pub mod reduction;
mod report;
mod run;
mod scheduler;
mod schema;
mod section;
mod shape;
mod signals;
mod starter;
mod sync;
mod task;
mod track;
mod tracked;
pub mod transport;

pub use crate::core::{CheckpointReport, Counts, Quiet, Reduced};
pub use address::{Address, ArrayId};
pub use balance_options::BalanceOptions;
pub use balancer::BalanceReport;
pub use bulk::Bulk;
pub use checkpoint::options::{CheckpointOptions, Period};
pub use generation::Main;
pub use handle::Handle;
pub use index::{ArrayIndex, Index};
pub use main_function::{main, main_with};
pub use message::{Malformed, Message};
pub use object::{Array, Context, Element, Entry, Object, Respond};
pub use options::Options;
pub use outcome::{Outcome, RunError};
pub use program::{Class, Program};
pub use reduction::{Callback, Op, Values};
pub use run::{run_and_report, run_on};
pub use schema::Schema;
pub use section::{Section, SectionKey};
pub use shape::{Map, Shape};
pub use track::TimelineOptions;
pub use tracked::Tracked;
