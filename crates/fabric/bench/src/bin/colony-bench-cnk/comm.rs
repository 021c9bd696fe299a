// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window of compute nodes as the network of the programs.

use std::time::Duration;

use colony_bench::programs::{Combine, Comm, Op};
use colony_torus::{Error, Group};

/// The first ranks of a window, up to all of them.
pub(crate) struct Nodes<'a>(pub(crate) Group<'a>);

/// The longest message of unknown length: a rank's measurements.
const LONGEST: usize = 1 << 30;

impl Comm for Nodes<'_> {
    type Error = Error;
    type Own = fn(f64, f64) -> f64;

    fn rank(&self) -> u32 {
        self.0.rank() as u32
    }

    fn size(&self) -> u32 {
        self.0.size() as u32
    }

    #[inline]
    fn barrier(&self) -> Result<(), Error> {
        self.0.barrier()
    }

    fn wait_for_all(&self) -> Result<(), Error> {
        // the others may measure for longer than a rank waits otherwise
        self.0.barrier_within(Duration::MAX)
    }

    #[inline]
    fn allreduce(&self, from: &[f64], into: &mut [f64], op: Op) -> Result<(), Error> {
        let op = match op {
            Op::Max => colony_torus::Op::Max,
            Op::Min => colony_torus::Op::Min,
            Op::Sum => colony_torus::Op::Sum,
        };
        into.copy_from_slice(from);
        self.0.allreduce(into, op)
    }

    fn largest(&self, mine: u64) -> Result<u64, Error> {
        let mut all = [mine];
        self.0.allreduce(&mut all, colony_torus::Op::Max)?;
        Ok(all[0])
    }

    fn own<F: Combine>(&self) -> Self::Own {
        F::combine
    }

    #[inline]
    fn allreduce_own(&self, from: &[f64], into: &mut [f64], op: &Self::Own) -> Result<(), Error> {
        into.copy_from_slice(from);
        self.0.allreduce_with(into, op)
    }

    #[inline]
    fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<(), Error> {
        self.0.alltoall(from, into)
    }

    fn broadcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.broadcast(root as usize, bytes)
    }

    #[inline]
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error> {
        self.0.torus().send(to as usize, bytes)
    }

    #[inline]
    fn recv(&self, from: u32, bytes: &mut [u8]) -> Result<(), Error> {
        match self.0.torus().recv(from as usize, bytes)? {
            length if length == bytes.len() => Ok(()),
            _ => Err(Error::Mismatch { rank: from as usize }),
        }
    }

    fn recv_vec(&self, from: u32) -> Result<Vec<u8>, Error> {
        self.0.torus().recv_vec(from as usize, LONGEST)
    }

    fn first(&self, size: u32) -> Result<Option<Self>, Error> {
        if self.rank() >= size {
            return Ok(None);
        }
        self.0.torus().first(size as usize).map(|group| Some(Self(group)))
    }
}
