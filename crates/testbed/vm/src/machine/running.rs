// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use nix::sys::eventfd::EventFd;

use super::Outcome;
use crate::VmError;

/// A machine that runs. Dropping it without waiting lets it run to its end.
#[derive(Debug)]
pub struct Running {
    pub(super) stop: Arc<EventFd>,
    pub(super) thread: JoinHandle<Result<Outcome, VmError>>,
    pub(super) pid: Arc<AtomicU32>,
}

impl Running {
    /// Switches the machine off as if its plug were pulled; [`Running::wait`] then fails with
    /// [`Cause::Stopped`](crate::Cause::Stopped).
    pub fn stop(&self) {
        self.stopper().stop();
    }

    /// Switches the machine off while another thread [waits](Running::wait).
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Process id of its emulator, once it was started.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Returns `true` if its program has ended, or the machine: [`Running::wait`] returns at once.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    /// As [`run`](super::Vm::run).
    pub fn wait(self) -> Result<Outcome, VmError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// See [`Running::stopper`].
#[derive(Debug, Clone)]
pub struct Stopper(Arc<EventFd>);

impl Stopper {
    /// As [`Running::stop`].
    pub fn stop(&self) {
        // it can only fail where it has been stopped already
        let _ = self.0.write(1);
    }
}
