// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs ask of a network.

use std::fmt::Display;

/// How values of two ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
    /// The sum.
    Sum,
}

/// An operation of our own, associative and commutative.
pub trait Combine {
    /// The combination of two values.
    fn combine(a: f64, b: f64) -> f64;
}

/// Ranks that work together: MPI's communicator, or the compute nodes' window.
///
/// Collective operations are made by all ranks, the same ones in the same order. Between two ranks,
/// messages arrive in the order in which they were sent.
pub trait Comm: Sized {
    /// What can go wrong; uninhabited where the library ends the process instead.
    type Error: Display;
    /// A [`Combine`] as the library wants it, made once.
    type Own;

    /// This rank.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// Waits until all are here.
    ///
    /// # Errors
    /// Those of the network; so too for the other operations.
    fn barrier(&self) -> Result<(), Self::Error>;

    /// As [`barrier`](Self::barrier), for long waits: leaves the processor to others meanwhile.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn wait_for_all(&self) -> Result<(), Self::Error>;

    /// Combines the values of all ranks, element by element; both buffers are of one length, the same at
    /// all ranks.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn allreduce(&self, from: &[f64], into: &mut [f64], op: Op) -> Result<(), Self::Error>;

    /// The largest of all ranks' numbers; none goes on before all are here.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn largest(&self, mine: u64) -> Result<u64, Self::Error>;

    /// Makes an operation of our own known.
    fn own<F: Combine>(&self) -> Self::Own;

    /// As [`allreduce`](Self::allreduce), with an operation of our own.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn allreduce_own(&self, from: &[f64], into: &mut [f64], op: &Self::Own) -> Result<(), Self::Error>;

    /// Sends each rank its part of `from`, and gets one of each.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<(), Self::Error>;

    /// Gives all ranks what rank `root` has.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn broadcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Sends a message.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Receives a message of just this length.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn recv(&self, from: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Receives a message of any length.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn recv_vec(&self, from: u32) -> Result<Vec<u8>, Self::Error>;

    /// The first `size` ranks, a power of two; `None` at the others. All ranks ask for it.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    fn first(&self, size: u32) -> Result<Option<Self>, Self::Error>;
}
