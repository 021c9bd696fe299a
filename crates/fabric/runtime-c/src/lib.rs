// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface of the runtime of objects, as `include/colony.h` documents it.
//!
//! A C class cannot be a Rust type of its own, because types are known when the library is built. So one Rust class of
//! each number of dimensions, `Foreign`, stands for all C classes: its messages and packed states carry
//! the number of the C class, and the table of classes has the callbacks. Nothing of C is called while the table is
//! locked, and no panic passes a C function.
//!
//! | module | contents |
//! |---|---|
//! | `abi` | the types of `colony.h` |
//! | `bytes` | messages and states: bytes at aligned addresses |
//! | `status` | error codes, the last error of a thread |
//! | `table` | classes of a program, the table of the program that runs |
//! | `calls` | functions that a callback can call, without types |
//! | `scope` | contexts: handles that are valid until their callback returns |
//! | `foreign` | the Rust class behind all C classes |
//! | `context` | `calls` for the contexts of the Rust interface |
//! | `launch` | the network and the PEs of this process |
//! | `run` | one run of a program |
//! | `exports` | the functions of `colony.h` |

mod abi;
mod bytes;
mod calls;
mod context;
mod exports;
mod foreign;
mod launch;
mod run;
mod scope;
mod status;
mod table;

pub use abi::{
    ColonyArray, ColonyClass, ColonyContext, ColonyElement, ColonyIndex, ColonyOptions, ColonyReduction,
    ColonyTarget,
};
pub use bytes::Buffer;
pub use exports::array::*;
pub use exports::buffer::*;
pub use exports::message::*;
pub use exports::object::*;
pub use exports::program::*;
pub use run::{Start, run_over};
pub use table::{Program, Table};
