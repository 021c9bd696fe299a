// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trait that networks implement.

use crate::{Combine, Number, Op};

/// Ranks that work together: MPI's communicator, or the compute nodes of a window.
///
/// # Guarantees
/// * Every rank gets the same result of a reduction. The order in which elements are combined is the network's, so a
///   sum of `f64` may differ in its last bits between networks and between numbers of ranks.
/// * Messages between two ranks arrive complete, unchanged and in the order in which they were sent.
/// * No operation is limited in time by this trait: whether a rank waits for a dead one depends on the
///   [network](crate#failures).
///
/// # Requirements
/// * All ranks make the same collective operations in the same order, with buffers of the same length. Collective are all
///   operations but [`send`](Self::send), [`recv`](Self::recv), [`recv_vec`](Self::recv_vec) and [`abort`](Self::abort).
/// * Each message is received before the ranks make an [`alltoall`](Self::alltoall), or use another communicator of
///   the same job: networks may carry all of them on the same links.
/// * A message has at most 1 GiB ([`MAX_MESSAGE_BYTES`](Self::MAX_MESSAGE_BYTES)).
/// * A rank's communicators stay on one thread.
///
/// # Errors
/// Each operation returns an error of the network, [`Self::Error`], or does not return because the network ends the
/// process: see [failures](crate#failures).
pub trait Comm: Sized {
    /// The longest message that every network carries, in bytes.
    const MAX_MESSAGE_BYTES: usize = 1 << 30;

    /// A failure of the network.
    type Error: std::error::Error + Send + Sync + 'static;

    /// A [`Combine`] in the network's own form.
    type UserOp;

    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// The number of ranks.
    fn size(&self) -> u32;

    /// Waits until every rank has called this. The wait is a poll: it has the lowest latency, and takes the CPU.
    fn barrier(&self) -> Result<(), Self::Error>;

    /// Waits until every rank has called this, for minutes if need be, and leaves the CPU to other processes
    /// meanwhile. The network's timeout does not apply.
    fn wait_for_all(&self) -> Result<(), Self::Error>;

    /// Combines the elements of all ranks by their position: `into[i]` becomes the combination of every rank's
    /// `from[i]`. No rank returns before every rank has called this.
    ///
    /// The result of `Max` and `Min` is unspecified if an element is NaN.
    ///
    /// # Panics
    /// If `from` and `into` differ in length.
    fn allreduce<T: Number>(&self, from: &[T], into: &mut [T], op: Op) -> Result<(), Self::Error>;

    /// Creates the network's form of `F`, for [`allreduce_with`](Self::allreduce_with). Not collective.
    fn create_op<F: Combine>(&self) -> Self::UserOp;

    /// Combines as [`allreduce`](Self::allreduce), by an operation that the program defines.
    ///
    /// # Panics
    /// If `from` and `into` differ in length.
    fn allreduce_with(&self, from: &[f64], into: &mut [f64], op: &Self::UserOp) -> Result<(), Self::Error>;

    /// Sends the i-th part of `from` to rank i, and receives into the i-th part of `into` from rank i. The buffers have
    /// one part a rank, all parts of the same length. Returns at once if the buffers are empty.
    ///
    /// # Panics
    /// If `from` and `into` differ in length, or cannot be divided into as many parts as there are ranks.
    fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<(), Self::Error>;

    /// Copies the bytes of rank `root` to every rank.
    fn broadcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Sends a message to another rank, and returns when `bytes` may be changed. The network may wait until the
    /// other rank receives, so two ranks must not send to each other at the same time.
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Receives the next message of another rank, which has the length of `bytes`.
    fn recv(&self, from: u32, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Receives the next message of another rank, of any length.
    fn recv_vec(&self, from: u32) -> Result<Vec<u8>, Self::Error>;

    /// The first `size` ranks as a communicator of their own; `None` at the other ranks. `size` is a power of two up to
    /// [`size`](Self::size), or that number itself. Collective.
    fn first_ranks(&self, size: u32) -> Result<Option<Self>, Self::Error>;

    /// Ends the job, because this rank cannot continue and the others would wait for it. May end this process too.
    fn abort(&self);
}

/// Checks the buffers of an all-to-all exchange, as [`Comm::alltoall`] says.
#[inline]
pub(crate) fn check_parts(from: &[u8], into: &[u8], ranks: usize) {
    assert_eq!(from.len(), into.len(), "the buffers of an all-to-all exchange have one length");
    assert!(from.len().is_multiple_of(ranks), "{} bytes are no equal parts for {ranks} ranks", from.len());
}
