// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that are measured, each with a check of the values it left.

use colony_comm::{Combine, Comm, Op};

use super::work::Work;

/// One operation, over and over.
pub trait Operation<C: Comm> {
    /// Makes it once; all ranks do.
    ///
    /// # Errors
    /// Errors of the network.
    fn once(&mut self) -> Result<(), C::Error>;

    /// True if the last operation left the right values.
    fn is_right(&self) -> bool {
        true
    }
}

/// `MPI_Barrier`.
pub(crate) struct Barrier<'a, C>(pub(crate) &'a C);

impl<C: Comm> Operation<C> for Barrier<'_, C> {
    #[inline]
    fn once(&mut self) -> Result<(), C::Error> {
        self.0.barrier()
    }
}

/// `MPI_Allreduce`: the maximum, and of the negated other half the minimum, of as many doubles; with 32
/// bytes "the min or max for two double-precision objects" (Colony Linux kernel technical report, 3.1.3).
#[derive(Debug)]
pub struct Allreduce<'a, C> {
    comm: &'a C,
    /// The values that this rank gives.
    pub send: Vec<f64>,
    /// The values that it gets.
    pub recv: Vec<f64>,
}

impl<'a, C: Comm> Allreduce<'a, C> {
    /// Of as many doubles as fit `bytes`.
    #[must_use]
    pub fn new(comm: &'a C, bytes: u64) -> Self {
        let half = bytes as usize / 16;
        let mine = |i: usize| f64::from(comm.rank()) + i as f64;
        let send: Vec<f64> = (0..half).map(mine).chain((0..half).map(|i| -mine(i))).collect();
        Self { comm, recv: vec![f64::NAN; send.len()], send }
    }
}

impl<C: Comm> Operation<C> for Allreduce<'_, C> {
    #[inline]
    fn once(&mut self) -> Result<(), C::Error> {
        self.comm.allreduce(&self.send, &mut self.recv, Op::Max)
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
pub(crate) struct MyAllreduce<'a, C: Comm> {
    comm: &'a C,
    operation: C::UserOp,
    send: Vec<f64>,
    recv: Vec<f64>,
}

/// The value of larger magnitude, the positive one of two equal.
struct LargerMagnitude;

impl Combine for LargerMagnitude {
    #[inline]
    fn combine(a: f64, b: f64) -> f64 {
        if (a.abs(), a) > (b.abs(), b) { a } else { b }
    }
}

impl<'a, C: Comm> MyAllreduce<'a, C> {
    pub(crate) fn new(comm: &'a C, bytes: u64) -> Self {
        let operation = comm.create_op::<LargerMagnitude>();
        let send: Vec<f64> = (0..bytes / 8).map(|i| Self::value(comm.rank(), i as usize)).collect();
        Self { comm, operation, recv: vec![f64::NAN; send.len()], send }
    }

    /// Rank 0 has the largest magnitude of the even elements, the last rank of the odd ones; signs alternate.
    fn value(rank: u32, i: usize) -> f64 {
        let magnitude = if i.is_multiple_of(2) { 1.0 / f64::from(1 + rank) } else { f64::from(1 + rank) };
        if rank.is_multiple_of(2) { magnitude + i as f64 } else { -magnitude - i as f64 }
    }
}

impl<C: Comm> Operation<C> for MyAllreduce<'_, C> {
    #[inline]
    fn once(&mut self) -> Result<(), C::Error> {
        self.comm.allreduce_with(&self.send, &mut self.recv, &self.operation)
    }

    fn is_right(&self) -> bool {
        let winner = |i: usize| if i.is_multiple_of(2) { 0 } else { self.comm.size() - 1 };
        self.recv.iter().enumerate().all(|(i, &v)| v == Self::value(winner(i), i))
    }
}

/// `MPI_Alltoall`.
pub(crate) struct Alltoall<'a, C> {
    comm: &'a C,
    each: usize,
    send: Vec<u8>,
    recv: Vec<u8>,
}

impl<'a, C: Comm> Alltoall<'a, C> {
    pub(crate) fn new(comm: &'a C, bytes: u64) -> Self {
        let (each, size) = (bytes as usize, comm.size());
        let to = |other| vec![Self::letter(comm.rank(), other); each];
        let send: Vec<u8> = (0..size).flat_map(to).collect();
        Self { comm, each, recv: vec![0; send.len()], send }
    }

    /// The value of each byte that `from` sends to `to`.
    fn letter(from: u32, to: u32) -> u8 {
        ((1 + u64::from(from) * 31 + u64::from(to) * 7) % 251) as u8
    }
}

impl<C: Comm> Operation<C> for Alltoall<'_, C> {
    #[inline]
    fn once(&mut self) -> Result<(), C::Error> {
        self.comm.alltoall(&self.send, &mut self.recv)
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
pub(crate) struct Ring<'a, C> {
    comm: &'a C,
    token: Vec<u8>,
    rounds: u64,
}

impl<'a, C: Comm> Ring<'a, C> {
    pub(crate) fn new(comm: &'a C, bytes: u64) -> Self {
        Self { comm, token: vec![0; bytes as usize], rounds: 0 }
    }

    /// Number of times that the token was passed on, in its first bytes.
    fn count(&self) -> u64 {
        self.token.first_chunk().map_or(0, |first| u64::from_ne_bytes(*first))
    }

    fn send(&mut self) -> Result<(), C::Error> {
        let count = self.count() + 1;
        if let Some(first) = self.token.first_chunk_mut() {
            *first = count.to_ne_bytes();
        }
        self.comm.send((self.comm.rank() + 1) % self.comm.size(), &self.token)
    }

    fn receive(&mut self) -> Result<(), C::Error> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        self.comm.recv((rank + size - 1) % size, &mut self.token)
    }
}

impl<C: Comm> Operation<C> for Ring<'_, C> {
    fn once(&mut self) -> Result<(), C::Error> {
        if self.comm.rank() == 0 {
            self.send()?;
            self.receive()?;
        } else {
            self.receive()?;
            self.send()?;
        }
        self.rounds += 1;
        Ok(())
    }

    fn is_right(&self) -> bool {
        let (rank, size) = (u64::from(self.comm.rank()), u64::from(self.comm.size()));
        // rank 0 has the token back at a round's end; the others have passed it on
        let touched = if rank == 0 { self.rounds * size } else { (self.rounds - 1) * size + rank + 1 };
        self.rounds == 0 || self.count() == touched
    }
}

/// A fixed amount of work, then a barrier (HPC-Colony progress report 2006, Fig. 3).
pub(crate) struct Bsp<'a, C> {
    pub(crate) comm: &'a C,
    pub(crate) work: Work,
}

impl<C: Comm> Operation<C> for Bsp<'_, C> {
    #[inline]
    fn once(&mut self) -> Result<(), C::Error> {
        self.work.once();
        self.comm.barrier()
    }
}
