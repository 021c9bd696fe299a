// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function shipping: the contract between the compute node kernel and the I/O daemon (CIOD).
//!
//! A compute node has no files. A system call that needs one is *shipped*: its number and arguments go as a
//! [`Request`] through a ring in a window of shared memory to the daemon, which does the call in the user's name and
//! answers with a [`Reply`] (Designing a Highly-Scalable Operating System: The Blue Gene/L Story, SC06, 3.2 and 4.1).
//!
//! * [`calls`] is the one table of system calls: what is done on the node, what is shipped, what is refused;
//! * [`layout`] says what lies where in the window, and what a job's start looks like;
//! * [`message`] has the two messages, [`ring`] the rings they go through, with the rule for sleeping and waking;
//! * [`frame`] is for nodes without shared memory;
//! * [`spans`] says which memory a call's arguments name. Both sides check it with this same code.
//!
//! The user's memory lies in the window itself, so that no data is copied on the way: an address in a request is an
//! offset in the memory of its process. The daemon trusts nothing it reads here.
//!
//! `no_std`, without allocation: the kernel uses it as it is.
#![cfg_attr(not(test), no_std)]

pub mod calls;
pub mod errno;
pub mod frame;
pub mod layout;
pub mod message;
pub mod ring;
pub mod spans;

pub use calls::{Arg, Call, Class};
pub use errno::Errno;
pub use message::{Reply, Request};

/// Version of everything in this crate that both sides must agree on; another one is refused at the start.
pub const VERSION: u32 = 2;
