// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of the job. The interpreter's lock is released while the PE waits.

use std::time::Duration;

use colony_runtime::transport::{Place, Transport, TransportError};
use pyo3::prelude::*;

use crate::session;

/// The transport that the environment describes.
pub(crate) fn from_environment() -> Result<Box<dyn Transport>, TransportError> {
    colony_runtime::launch::transport_from_environment()
}

/// A transport whose waits release the interpreter's lock.
pub(crate) struct Attached {
    inner: Box<dyn Transport>,
    /// The ranks are threads of this interpreter, which need its lock.
    is_shared: bool,
}

impl Attached {
    pub(crate) fn new(inner: Box<dyn Transport>, is_shared: bool) -> Self {
        Self { inner, is_shared }
    }
}

/// A value that a closure of `Python::detach` takes along.
struct OnThisThread<T>(T);

// SAFETY: `Python::detach` runs its closure on the calling thread. It asks for `Send` only to keep objects of Python out,
// and a transport has none.
unsafe impl<T> Send for OnThisThread<T> {}

/// Runs a function of the transport without the interpreter's lock.
fn detached<R: Send>(inner: &mut dyn Transport, function: impl FnOnce(&mut dyn Transport) -> R + Send) -> R {
    let inner = OnThisThread(inner);
    Python::attach(|py| {
        py.detach(move || {
            let inner = inner;
            let OnThisThread(inner) = inner;
            function(inner)
        })
    })
}

impl Transport for Attached {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        self.inner.send(to, frame)
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        let arrived = self.inner.poll(deliver)?;
        if !arrived && self.is_shared {
            Python::attach(|py| py.detach(std::thread::yield_now));
        }
        Ok(arrived)
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        let waited = detached(&mut *self.inner, |inner| inner.wait(limit));
        Python::attach(|py| py.check_signals()).map_err(|signal| {
            let text = format!("rank {} was interrupted", self.inner.rank());
            session::set_failure(signal);
            self.inner.abort(130);
            TransportError::Lost(text)
        })?;
        waited
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        detached(&mut *self.inner, |inner| inner.finish())
    }

    fn can_rejoin(&self) -> bool {
        self.inner.can_rejoin()
    }

    fn rejoin(&mut self) -> Result<(), TransportError> {
        detached(&mut *self.inner, |inner| inner.rejoin())
    }

    fn generation(&self) -> u32 {
        self.inner.generation()
    }

    fn places(&self) -> &[Place] {
        self.inner.places()
    }

    fn abort(&mut self, code: i32) {
        // the process may not return from this
        if self.inner.size() > 1 && !self.is_shared {
            Python::attach(session::print_failure);
        }
        self.inner.abort(code);
    }
}
