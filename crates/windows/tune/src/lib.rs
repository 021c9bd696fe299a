// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of a node's settings as one transaction.
//!
//! [`apply`] makes a list of [`Step`]s: values for files of `/proc` and `/sys`, CPUs for tasks, and commands that have an undo. Before
//! the first change, every present value is in a [journal](Transaction); after the last, every value has been read back; the
//! effects of commands are not. If a step fails, the steps before it are undone; an [optional](Step::optional) step is taken back and
//! left out instead. [`revert`] restores the values by the transaction's name, in the opposite order, and leaves a
//! value alone that somebody else has changed since.
//!
//! **Crashes.** The journal is written before the node is changed, so a killed [`apply`] or [`revert`] leaves a transaction that
//! [`recover`] undoes, whichever step it had reached. Every entry point that changes the node calls it first.
//!
//! **Several transactions** may change the same file. The second one keeps the first one's value as its own "before". If the first is
//! reverted earlier, the second inherits the original value, so the order of the reverts does not matter.
//!
//! **Reboots.** Settings in `/proc` and `/sys` end with the boot. A journal names its boot and means nothing after it.
//! [`Units`] are units of systemd that apply a transaction again at every boot.
//!
//! The steps come from a [`Profile`]: it selects remedies of the [doctor](colony_doctor)'s findings ([`Plan`]). Those that
//! need a boot are exported ([`kernel_command_line`], [`TunedProfile`]) as a kernel command line or a TuneD profile.
//!
//! All access to the machine goes through [`Node`]: [`Linux`] is the real one, and tests use one in memory that crashes at every
//! operation in turn.

mod apply;
mod error;
mod export;
mod linux;
mod node;
mod persist;
mod place;
mod plan;
mod profile;
mod recover;
mod revert;
mod transaction;
mod value;
mod verify;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod persist_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verify_tests;

pub use apply::{Applied, OnFailure, apply};
pub use error::TuneError;
pub use export::{TunedProfile, kernel_command_line, parameters_to_remove};
pub use linux::Linux;
pub use node::Node;
pub use persist::{Unit, Units};
pub use place::Place;
pub use plan::{LeftOut, Parameter, Plan};
pub use profile::{Profile, Setting};
pub use recover::{Recovered, recover};
pub use revert::{Kept, Reverted, revert};
pub use transaction::{Action, Phase, Progress, Standing, Step, Transaction, list, standing};
pub use value::same;
pub use verify::{Check, Verdict, Verified, verify};
