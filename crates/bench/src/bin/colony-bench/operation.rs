//! The operations that are measured, each with a check of the values it left.

use std::os::raw::{c_int, c_void};

use mpi::collective::{SystemOperation, UnsafeUserOperation};
use mpi::ffi::MPI_Datatype;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};

use crate::work::Work;

/// One operation, over and over.
pub(crate) trait Operation {
    /// Makes it once; all ranks do.
    fn once(&mut self);

    /// Whether the last one left the values it should.
    fn is_right(&self) -> bool {
        true
    }
}

/// `MPI_Barrier`.
pub(crate) struct Barrier<'a>(pub(crate) &'a SimpleCommunicator);

impl Operation for Barrier<'_> {
    fn once(&mut self) {
        self.0.barrier();
    }
}

/// `MPI_Allreduce`: the maximum, and of the negated other half the minimum, of as many doubles; with 32
/// bytes "the min or max for two double-precision objects" (Colony Linux kernel technical report, 3.1.3).
pub(crate) struct Allreduce<'a> {
    comm: &'a SimpleCommunicator,
    pub(crate) send: Vec<f64>,
    pub(crate) recv: Vec<f64>,
}

impl<'a> Allreduce<'a> {
    pub(crate) fn new(comm: &'a SimpleCommunicator, bytes: u64) -> Self {
        let half = bytes as usize / 16;
        let mine = |i: usize| f64::from(comm.rank()) + i as f64;
        let send: Vec<f64> = (0..half).map(mine).chain((0..half).map(|i| -mine(i))).collect();
        Self { comm, recv: vec![f64::NAN; send.len()], send }
    }
}

impl Operation for Allreduce<'_> {
    #[inline]
    fn once(&mut self) {
        self.comm.all_reduce_into(&self.send[..], &mut self.recv[..], SystemOperation::max());
    }

    fn is_right(&self) -> bool {
        let half = self.recv.len() / 2;
        let last = f64::from(self.comm.size() - 1);
        let (max, min) = self.recv.split_at(half);
        max.iter().enumerate().all(|(i, &v)| v == last + i as f64)
            && min.iter().enumerate().all(|(i, &v)| v == -(i as f64))
    }
}

/// Allreduce with an operation of our own: the value of larger magnitude, the positive one of two equal.
pub(crate) struct MyAllreduce<'a> {
    comm: &'a SimpleCommunicator,
    operation: UnsafeUserOperation,
    send: Vec<f64>,
    recv: Vec<f64>,
}

/// The larger magnitude, element by element.
unsafe extern "C" fn larger_magnitude(
    from: *mut c_void,
    into: *mut c_void,
    count: *mut c_int,
    _datatype: *mut MPI_Datatype,
) {
    // SAFETY: MPI calls this with `*count` elements of the datatype of the reduction, which is a double,
    // in each of two buffers that do not overlap.
    let (from, into) = unsafe {
        let count = usize::try_from(*count).unwrap_or(0);
        (
            std::slice::from_raw_parts(from.cast::<f64>(), count),
            std::slice::from_raw_parts_mut(into.cast(), count),
        )
    };
    for (&a, b) in from.iter().zip(into) {
        let b: &mut f64 = b;
        if (a.abs(), a) > (b.abs(), *b) {
            *b = a;
        }
    }
}

impl<'a> MyAllreduce<'a> {
    pub(crate) fn new(comm: &'a SimpleCommunicator, bytes: u64) -> Self {
        // SAFETY: the function treats what it is given as doubles, and reduces nothing else below. The
        // larger magnitude is associative and commutative.
        let operation = unsafe { UnsafeUserOperation::commutative(larger_magnitude) };
        let send: Vec<f64> = (0..bytes / 8).map(|i| Self::value(comm.rank(), i as usize)).collect();
        Self { comm, operation, recv: vec![f64::NAN; send.len()], send }
    }

    /// Rank 0 has the largest magnitude of the even elements, the last rank of the odd ones; signs alternate.
    fn value(rank: i32, i: usize) -> f64 {
        let magnitude = if i.is_multiple_of(2) { 1.0 / f64::from(1 + rank) } else { f64::from(1 + rank) };
        if rank % 2 == 0 { magnitude + i as f64 } else { -magnitude - i as f64 }
    }
}

impl Operation for MyAllreduce<'_> {
    fn once(&mut self) {
        self.comm.all_reduce_into(&self.send[..], &mut self.recv[..], &self.operation);
    }

    fn is_right(&self) -> bool {
        let winner = |i: usize| if i.is_multiple_of(2) { 0 } else { self.comm.size() - 1 };
        self.recv.iter().enumerate().all(|(i, &v)| v == Self::value(winner(i), i))
    }
}

/// `MPI_Alltoall`.
pub(crate) struct Alltoall<'a> {
    comm: &'a SimpleCommunicator,
    each: usize,
    send: Vec<u8>,
    recv: Vec<u8>,
}

impl<'a> Alltoall<'a> {
    pub(crate) fn new(comm: &'a SimpleCommunicator, bytes: u64) -> Self {
        let (each, size) = (bytes as usize, comm.size());
        let to = |other| vec![Self::letter(comm.rank(), other); each];
        let send: Vec<u8> = (0..size).flat_map(to).collect();
        Self { comm, each, recv: vec![0; send.len()], send }
    }

    /// What `from` sends `to`, each byte of it.
    fn letter(from: i32, to: i32) -> u8 {
        (1 + from * 31 + to * 7).rem_euclid(251) as u8
    }
}

impl Operation for Alltoall<'_> {
    fn once(&mut self) {
        self.comm.all_to_all_into(&self.send[..], &mut self.recv[..]);
    }

    fn is_right(&self) -> bool {
        let me = self.comm.rank();
        (0..)
            .zip(self.recv.chunks(self.each))
            .all(|(from, got)| got.iter().all(|&b| b == Self::letter(from, me)))
    }
}

/// A token around all ranks, which each counts up: "each one simply waits for a message and then sends it
/// off to its neighbor" (Initial Results: Experiments on Watson BlueGene/L).
pub(crate) struct Ring<'a> {
    comm: &'a SimpleCommunicator,
    token: Vec<u64>,
    rounds: u64,
}

impl<'a> Ring<'a> {
    pub(crate) fn new(comm: &'a SimpleCommunicator, bytes: u64) -> Self {
        Self { comm, token: vec![0; bytes as usize / 8], rounds: 0 }
    }

    fn send(&mut self) {
        self.token[0] += 1;
        let next = (self.comm.rank() + 1) % self.comm.size();
        self.comm.process_at_rank(next).send(&self.token[..]);
    }

    fn receive(&mut self) {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        self.comm.process_at_rank((rank + size - 1) % size).receive_into(&mut self.token[..]);
    }
}

impl Operation for Ring<'_> {
    fn once(&mut self) {
        if self.comm.rank() == 0 {
            self.send();
            self.receive();
        } else {
            self.receive();
            self.send();
        }
        self.rounds += 1;
    }

    fn is_right(&self) -> bool {
        let (rank, size) = (self.comm.rank() as u64, self.comm.size() as u64);
        // rank 0 has the token back at a round's end; the others have passed it on
        let touched = if rank == 0 { self.rounds * size } else { (self.rounds - 1) * size + rank + 1 };
        self.rounds == 0 || self.token[0] == touched
    }
}

/// A fixed amount of work, then a barrier (HPC-Colony progress report 2006, Fig. 3).
pub(crate) struct Bsp<'a> {
    pub(crate) comm: &'a SimpleCommunicator,
    pub(crate) work: Work,
}

impl Operation for Bsp<'_> {
    fn once(&mut self) {
        self.work.once();
        self.comm.barrier();
    }
}
