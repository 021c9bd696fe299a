// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between compute nodes in user mode, over one window of memory that all of them share.
//!
//! "The torus and tree networks … are memory-mapped in the address space of a user process" (Designing a
//! Highly-Scalable Operating System: The Blue Gene/L Story): a message is a matter of loads and stores,
//! and the operating system has no part in it. Here the window stands in for the wires:
//!
//! * packets of 256 bytes between any two ranks, first in, first out, as on the torus ([`Torus::send`]), through one inbox
//!   a rank, as a node of Blue Gene/L has reception FIFOs for all that comes;
//!   neighbours and distances are those of a torus ([`Dims`]);
//! * one tree that combines values on the way up and hands the result down to all, as the collective
//!   network does; with no values it is the barrier ([`Group`]).
//!
//! A launcher makes the window ([`Window::create`]); every rank joins it by its environment
//! ([`Torus::join`]): on the compute node kernel it is memory that the kernel has mapped, on Linux a file.
//!
//! # What a rank may rely on
//! Only atomic accesses touch the window. A rank checks whatever another one wrote before it acts on it;
//! what cannot be is [`Error::Insane`]. A rank that fails or leaves while others wait for it makes them
//! fail too ([`Error::Left`], [`Error::Aborted`]); one that dies without a word, after a time
//! ([`Error::Timeout`]). Ranks are not protected from a peer that writes wrong values of the right form.
//!
//! * [`layout`]: where things are in the window, and its version;
//! * `inbox`: the packets on their way to one rank; `tree`: collectives; both over a trait for atomic words, so that
//!   their tests check all interleavings of a model.

mod arrivals;
mod atomic;
mod dims;
mod environment;
mod error;
mod group;
mod inbox;
pub mod layout;
mod links;
mod number;
mod packet;
mod torus;
mod tree;
mod wait;
mod window;

pub use dims::{Dims, Direction};
pub use environment::is_node;
pub use error::Error;
pub use group::Group;
pub use number::{Number, Op};
pub use torus::Torus;
pub use window::{RankState, Window};
