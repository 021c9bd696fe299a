// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of the host that the programs on a Linux I/O node use: the kernel there asks by the FUSE protocol, and the job's
//! relay on the host, which is the user, does what it asks for.
//!
//! So the I/O node is trusted in nothing here, too: whatever it asks for is done with the rights of the job's user, and only
//! below the folders that the owner of the partition has named.

#[cfg(test)]
mod asks;
mod files;
mod folder;
#[cfg(feature = "testing")]
mod fuzz;
mod given;
mod handles;
mod message;
mod mount;
mod nodes;

pub(super) use files::{Files, open};
#[cfg(feature = "testing")]
pub use fuzz::fuzz_files;
pub(super) use mount::{Mount, is_seen, pass_reply, pass_requests};
