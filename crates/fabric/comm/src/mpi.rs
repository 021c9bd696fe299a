// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network MPI, through the crate `mpi`.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::time::Duration;

use ::mpi::collective::{SystemOperation, UnsafeUserOperation};
use ::mpi::environment::{self, Universe};
use ::mpi::ffi::MPI_Datatype;
use ::mpi::topology::{Color, SimpleCommunicator};
use ::mpi::traits::{AsRaw, Communicator, CommunicatorCollectives, Destination, Equivalence, Root, Source};

use crate::comm::check_parts;
use crate::{Combine, Comm, Number, Op};

/// A communicator's handle in C.
pub use ::mpi::ffi::MPI_Comm;

/// A failure that MPI does not end the job for.
#[derive(Debug, thiserror::Error)]
pub enum MpiError {
    /// This process has initialized MPI before.
    #[error("MPI cannot be initialized")]
    Initialize,
    /// The name of the node is not UTF-8.
    #[error("asking MPI for the node: {0}")]
    ProcessorName(std::string::FromUtf8Error),
    /// A message has another length than the buffer.
    #[error("rank {from} sent {length} bytes, and this rank expects {expected}")]
    Length {
        /// The sender.
        from: u32,
        /// Bytes of the message.
        length: usize,
        /// Bytes of the buffer.
        expected: usize,
    },
}

/// MPI, initialized: one value a process, which finalizes MPI when it is dropped.
pub struct Mpi(Universe);

impl Mpi {
    /// Initializes MPI. The calling thread is the one that may use it.
    ///
    /// # Errors
    /// [`MpiError::Initialize`] if MPI is or was initialized.
    pub fn initialize() -> Result<Self, MpiError> {
        ::mpi::initialize().map(Self).ok_or(MpiError::Initialize)
    }

    /// All ranks of the job, `MPI_COMM_WORLD`.
    #[must_use]
    pub fn world(&self) -> MpiComm<'_> {
        MpiComm { inner: self.0.world(), mpi: PhantomData }
    }

    /// The name of this node, `MPI_Get_processor_name`.
    ///
    /// # Errors
    /// [`MpiError::ProcessorName`].
    pub fn processor_name(&self) -> Result<String, MpiError> {
        environment::processor_name().map_err(MpiError::ProcessorName)
    }

    /// Name and version of the library: the first line of `MPI_Get_library_version`, empty if that is not UTF-8.
    #[must_use]
    pub fn library(&self) -> String {
        let text = environment::library_version().unwrap_or_default();
        let first = text.lines().next().unwrap_or_default().trim_end_matches('\0');
        first.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Version of the standard that the library implements, such as `3.1`.
    #[must_use]
    pub fn standard(&self) -> String {
        let (major, minor) = environment::version();
        format!("{major}.{minor}")
    }
}

/// A communicator. It cannot outlive the initialized MPI.
pub struct MpiComm<'a> {
    inner: SimpleCommunicator,
    mpi: PhantomData<&'a Mpi>,
}

impl MpiComm<'_> {
    /// The handle for calls of MPI in C, valid as long as this communicator.
    #[must_use]
    pub fn as_raw(&self) -> MPI_Comm {
        self.inner.as_raw()
    }
}

/// A [`Combine`] as an `MPI_Op`.
pub struct MpiOp<'a> {
    inner: UnsafeUserOperation,
    mpi: PhantomData<&'a Mpi>,
}

/// [`Combine::combine`] with the signature of `MPI_User_function`.
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

/// MPI writes as many elements into the second buffer as the first has; the crate `mpi` does not compare them.
#[inline]
fn check_lengths<T>(from: &[T], into: &[T]) {
    assert_eq!(from.len(), into.len(), "the buffers of a reduction have one length");
}

/// Returns `true` if MPI may take the address for `MPI_IN_PLACE`: that of empty bytes is 1, and so is Open MPI's constant.
#[inline]
fn is_in_place(bytes: &[u8]) -> bool {
    bytes.is_empty()
}

impl<'a> Comm for MpiComm<'a> {
    type Error = MpiError;
    type UserOp = MpiOp<'a>;

    fn rank(&self) -> u32 {
        self.inner.rank() as u32
    }

    fn size(&self) -> u32 {
        self.inner.size() as u32
    }

    #[inline]
    fn barrier(&self) -> Result<(), MpiError> {
        self.inner.barrier();
        Ok(())
    }

    fn wait_for_all(&self) -> Result<(), MpiError> {
        let mut request = self.inner.immediate_barrier();
        while let Err(pending) = request.test() {
            request = pending;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    #[inline]
    fn allreduce<T: Number>(&self, from: &[T], into: &mut [T], op: Op) -> Result<(), MpiError> {
        check_lengths(from, into);
        let op = match op {
            Op::Max => SystemOperation::max(),
            Op::Min => SystemOperation::min(),
            Op::Sum => SystemOperation::sum(),
        };
        self.inner.all_reduce_into(from, into, op);
        Ok(())
    }

    fn create_op<F: Combine>(&self) -> MpiOp<'a> {
        // SAFETY: the function treats its buffers as doubles, and `allreduce_with` reduces nothing else. A
        // `Combine` is associative and commutative.
        let inner = unsafe { UnsafeUserOperation::commutative(combine::<F>) };
        MpiOp { inner, mpi: PhantomData }
    }

    #[inline]
    fn allreduce_with(&self, from: &[f64], into: &mut [f64], op: &MpiOp<'a>) -> Result<(), MpiError> {
        check_lengths(from, into);
        self.inner.all_reduce_into(from, into, &op.inner);
        Ok(())
    }

    #[inline]
    fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<(), MpiError> {
        check_parts(from, into, self.size() as usize);
        if !is_in_place(from) {
            self.inner.all_to_all_into(from, into);
        }
        Ok(())
    }

    fn broadcast(&self, root: u32, bytes: &mut [u8]) -> Result<(), MpiError> {
        if !is_in_place(bytes) {
            self.inner.process_at_rank(root as i32).broadcast_into(bytes);
        }
        Ok(())
    }

    #[inline]
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), MpiError> {
        self.inner.process_at_rank(to as i32).send(bytes);
        Ok(())
    }

    #[inline]
    fn recv(&self, from: u32, bytes: &mut [u8]) -> Result<(), MpiError> {
        let status = self.inner.process_at_rank(from as i32).receive_into(bytes);
        let (length, expected) = (status.count(u8::equivalent_datatype()) as usize, bytes.len());
        if length == expected { Ok(()) } else { Err(MpiError::Length { from, length, expected }) }
    }

    fn recv_vec(&self, from: u32) -> Result<Vec<u8>, MpiError> {
        Ok(self.inner.process_at_rank(from as i32).receive_vec::<u8>().0)
    }

    fn first_ranks(&self, size: u32) -> Result<Option<Self>, MpiError> {
        let color = if self.rank() < size { Color::with_value(0) } else { Color::undefined() };
        Ok(self.inner.split_by_color(color).map(|inner| Self { inner, mpi: PhantomData }))
    }

    fn abort(&self) {
        self.inner.abort(1)
    }
}
