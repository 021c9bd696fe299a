// SPDX-License-Identifier: MIT OR Apache-2.0
//! How programs talk to the control daemon of a machine of compute nodes: the types of its HTTP interface, and a client. The
//! daemon itself is `colony-control`.
//!
//! ```no_run
//! use colony_control_api::{Client, default_folder};
//!
//! # fn main() -> Result<(), colony_control_api::ClientError> {
//! let client = Client::new(&default_folder()?, "/usr/libexec/colony/colony-control".as_ref())?;
//! for partition in client.machine()?.partitions {
//!     println!("{} {:?}", partition.name, partition.state);
//! }
//! # Ok(())
//! # }
//! ```

mod access;
mod allocation;
pub mod api;
mod client;
pub mod digits;
mod error;
pub mod folder;
mod health;
mod job;
mod network;
mod operate;
mod place;
mod requests;
mod rights;
mod server;

pub use client::Client;
pub use error::ClientError;
pub use folder::default_folder;
pub use server::{Server, Trust};
