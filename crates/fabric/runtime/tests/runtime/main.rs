// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of objects: in this process, and the examples as processes that the tests start, kill and stop.
//!
//! With the feature `mpi`, `./x test` runs the modules whose tests start ranks over MPI.

mod common;
mod endings;
mod examples;
mod mortal;
mod mpirun;
mod objects;
mod processes;
mod recovery;
mod resize;
mod stand_in;
mod storm;
mod strangers;
mod warnings;
