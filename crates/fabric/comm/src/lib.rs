// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks and their collective operations behind one trait, [`Comm`], whatever the network.
//!
//! A program is written once, for any `impl Comm`, and compiled for each network. Calls are dispatched statically, so
//! an operation costs as much as the network's own function.
//!
//! | network | implementation | available |
//! |---|---|---|
//! | MPI | `mpi::MpiComm` | with the feature `mpi`, which needs an MPI installation and libclang |
//! | the shared window of compute nodes | [`torus::TorusComm`] | always |
//!
//! ```
//! use colony_comm::{Comm, Op};
//!
//! /// The mean of all ranks' values, at every rank.
//! fn mean<C: Comm>(comm: &C, value: f64) -> Result<f64, C::Error> {
//!     let mut sum = [0.0];
//!     comm.allreduce(&[value], &mut sum, Op::Sum)?;
//!     Ok(sum[0] / f64::from(comm.size()))
//! }
//! ```
//!
//! # Failures
//! After an error, no rank can continue with this communicator. The networks differ in how the other ranks learn of
//! it:
//!
//! | failure | MPI | torus |
//! |---|---|---|
//! | the library or a peer reports an error | MPI ends every process of the job (`MPI_ERRORS_ARE_FATAL`) | the operation returns an error, at every rank that waits |
//! | a rank calls [`Comm::abort`] | MPI ends every process of the job with exit code 1 | the next wait of every other rank returns `Aborted` |
//! | a process ends without a word | the launcher ends the job | a waiting rank returns `Timeout` (60 s by default) |
//! | a message has another length than [`Comm::recv`] expects | longer: MPI ends the job; shorter: an error | an error |

mod comm;
#[cfg(feature = "mpi")]
pub mod mpi;
mod number;
pub mod torus;

pub use comm::Comm;
pub use number::{Combine, Number, Op};
