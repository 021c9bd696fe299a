// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI as the network of the programs.

use std::convert::Infallible;
use std::os::raw::{c_int, c_void};
use std::time::Duration;

use colony_bench::programs::{Combine, Comm, Op};
use mpi::collective::{SystemOperation, UnsafeUserOperation};
use mpi::ffi::MPI_Datatype;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Root, Source};

/// A communicator. MPI ends the process where something goes wrong.
pub(crate) struct Mpi(pub(crate) SimpleCommunicator);

/// [`Combine::combine`] as MPI calls it.
unsafe extern "C" fn combine<F: Combine>(
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
            std::slice::from_raw_parts_mut(into.cast::<f64>(), count),
        )
    };
    for (&a, b) in from.iter().zip(into) {
        *b = F::combine(a, *b);
    }
}

impl Comm for Mpi {
    type Error = Infallible;
    type Own = UnsafeUserOperation;

    fn rank(&self) -> u32 {
        self.0.rank() as u32
    }

    fn size(&self) -> u32 {
        self.0.size() as u32
    }

    #[inline]
    fn barrier(&self) -> Result<(), Infallible> {
        self.0.barrier();
        Ok(())
    }

    fn wait_for_all(&self) -> Result<(), Infallible> {
        let mut request = self.0.immediate_barrier();
        while let Err(pending) = request.test() {
            request = pending;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    #[inline]
    fn allreduce(&self, from: &[f64], into: &mut [f64], op: Op) -> Result<(), Infallible> {
        let op = match op {
            Op::Max => SystemOperation::max(),
            Op::Min => SystemOperation::min(),
            Op::Sum => SystemOperation::sum(),
        };
        self.0.all_reduce_into(from, into, op);
        Ok(())
    }

    fn largest(&self, mine: u64) -> Result<u64, Infallible> {
        // the crate `mpi` does not compare the two types: an integer of another size would be overrun
        let mut all: u64 = 0;
        self.0.all_reduce_into(&mine, &mut all, SystemOperation::max());
        Ok(all)
    }

    fn own<F: Combine>(&self) -> UnsafeUserOperation {
        // SAFETY: the function treats what it is given as doubles, and reduces nothing else. A `Combine` is
        // associative and commutative.
        unsafe { UnsafeUserOperation::commutative(combine::<F>) }
    }

    #[inline]
    fn allreduce_own(
        &self,
        from: &[f64],
        into: &mut [f64],
        op: &UnsafeUserOperation,
    ) -> Result<(), Infallible> {
        self.0.all_reduce_into(from, into, op);
        Ok(())
    }

    #[inline]
    fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<(), Infallible> {
        self.0.all_to_all_into(from, into);
        Ok(())
    }

    fn broadcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.process_at_rank(root as i32).broadcast_into(bytes);
        Ok(())
    }

    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Infallible> {
        self.0.process_at_rank(to as i32).send(bytes);
        Ok(())
    }

    fn recv(&self, from: u32, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.process_at_rank(from as i32).receive_into(bytes);
        Ok(())
    }

    fn recv_vec(&self, from: u32) -> Result<Vec<u8>, Infallible> {
        Ok(self.0.process_at_rank(from as i32).receive_vec::<u8>().0)
    }

    fn first(&self, size: u32) -> Result<Option<Self>, Infallible> {
        let color = if self.rank() < size { Color::with_value(0) } else { Color::undefined() };
        Ok(self.0.split_by_color(color).map(Self))
    }
}
