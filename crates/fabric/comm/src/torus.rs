// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of compute nodes: a window of memory that all ranks share, see [`colony_torus`].

use std::time::Duration;

use colony_torus::{Error, Group, Torus};

use crate::comm::check_parts;
use crate::{Combine, Comm, Number, Op};

/// The first ranks of a window, up to all of them.
#[derive(Clone, Copy, Debug)]
pub struct TorusComm<'a>(Group<'a>);

impl<'a> TorusComm<'a> {
    /// All ranks of the window.
    #[must_use]
    pub fn world(torus: &'a Torus) -> Self {
        Self(torus.world())
    }
}

impl Comm for TorusComm<'_> {
    type Error = Error;
    type UserOp = fn(f64, f64) -> f64;

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
        self.0.barrier_within(Duration::MAX)
    }

    #[inline]
    fn allreduce<T: Number>(&self, from: &[T], into: &mut [T], op: Op) -> Result<(), Error> {
        into.copy_from_slice(from);
        self.0.allreduce(into, op)
    }

    fn create_op<F: Combine>(&self) -> Self::UserOp {
        F::combine
    }

    #[inline]
    fn allreduce_with(&self, from: &[f64], into: &mut [f64], op: &Self::UserOp) -> Result<(), Error> {
        into.copy_from_slice(from);
        self.0.allreduce_with(into, op)
    }

    #[inline]
    fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<(), Error> {
        check_parts(from, into, self.0.size());
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
        self.0.torus().recv_vec(from as usize, Self::MAX_MESSAGE_BYTES)
    }

    fn first_ranks(&self, size: u32) -> Result<Option<Self>, Error> {
        if self.rank() >= size {
            return Ok(None);
        }
        self.0.torus().first(size as usize).map(|group| Some(Self(group)))
    }

    fn abort(&self) {
        self.0.torus().abort();
    }
}
