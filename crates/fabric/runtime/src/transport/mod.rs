// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks between the processes of a job.

pub mod memory;
#[cfg(feature = "mpi")]
pub(crate) mod mixed;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod sockets;
pub mod torus;

use std::time::Duration;

pub use crate::place::Place;

/// A failure of a transport. The job cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Another rank has ended, or called for the end.
    #[error("{0}")]
    Lost(String),
    /// The network failed.
    #[error("{doing}: {reason}")]
    Failed {
        /// The operation.
        doing: String,
        /// The system's answer.
        reason: String,
    },
    /// A rank has died without a word, or is not reached any more. Ranks that [can be
    /// replaced](Transport::can_rejoin) join the job again.
    #[error("{0}")]
    Died(String),
    /// The environment does not describe a job, or this host does not reach it.
    #[error("{0}")]
    Environment(String),
}

/// A network between the processes of a job.
///
/// # Guarantees
/// Frames from one rank to another arrive complete, once, and in the order in which they were sent.
///
/// A transport is polled by one thread. It never waits in [`send`](Self::send): what the network does not take at once
/// is kept, and goes on in the next call of any method.
pub trait Transport {
    /// This process, from 0.
    fn rank(&self) -> u32;

    /// The number of processes.
    fn size(&self) -> u32;

    /// The name of the network, for reports.
    fn name(&self) -> &'static str;

    /// Sends a frame and leaves `frame` empty, for the next one.
    ///
    /// # Errors
    /// [`TransportError`].
    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError>;

    /// Passes frames that have arrived to `deliver`, with their sender. Returns `true` if there were any.
    ///
    /// # Errors
    /// [`TransportError`].
    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError>;

    /// Waits until a frame may have arrived, at most for `limit`. May return earlier.
    ///
    /// # Errors
    /// [`TransportError`].
    fn wait(&mut self, limit: Duration) -> Result<(), TransportError>;

    /// Leaves the job in agreement with all other ranks, which call it too.
    ///
    /// # Errors
    /// [`TransportError`].
    fn finish(&mut self) -> Result<(), TransportError>;

    /// Returns `true` if a launcher replaces ranks that die. Then a death is [`TransportError::Died`].
    fn can_rejoin(&self) -> bool {
        false
    }

    /// Joins the job again, with the replacements of ranks that have died. All ranks do. No frame sent before arrives
    /// after.
    ///
    /// # Errors
    /// [`TransportError`]; the job cannot go on.
    fn rejoin(&mut self) -> Result<(), TransportError> {
        Err(TransportError::Lost("this network cannot replace ranks".to_owned()))
    }

    /// How many times the ranks have joined the job again.
    fn generation(&self) -> u32 {
        0
    }

    /// Returns `true` once if the launcher wants the job to go on with another number of ranks.
    fn is_to_leave(&mut self) -> bool {
        false
    }

    /// Where each rank runs. Empty if unknown.
    fn places(&self) -> &[Place] {
        &[]
    }

    /// Ends all processes of the job with an exit code. Returns if it has told the others, or cannot.
    fn abort(&mut self, code: i32);
}

/// A job of one process.
#[derive(Debug, Default)]
pub struct Single;

impl Transport for Single {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn name(&self) -> &'static str {
        "single process"
    }

    fn send(&mut self, _to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        frame.clear();
        Ok(())
    }

    fn poll(&mut self, _deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        Ok(false)
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        std::thread::sleep(limit);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn abort(&mut self, _code: i32) {}
}
