// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of an injection: their names, how they start and end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use super::InjectError;

pub(super) const INJECTOR: &str = "colony-inject";
pub(super) const VICTIM: &str = "colony-victim";
pub(super) const WATCHDOG: &str = "colony-watchdog";
/// Daemons of the Leibniz sum.
pub(super) const DAEMON: &str = "colony-leibniz";
/// Names of all threads that make noise or meet it for an injection.
pub const THREADS: [&str; 4] = [INJECTOR, VICTIM, WATCHDOG, DAEMON];

/// The reasons for threads to end early: the stop flag is set, or one of the threads failed.
#[derive(Clone, Copy)]
pub(super) struct Stop<'a> {
    pub(super) asked: &'a AtomicBool,
    pub(super) failed: &'a AtomicBool,
}

impl Stop<'_> {
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Passes a result on; where it is an error, all threads of the run are to end.
    pub(super) fn unless_failed<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Starts a thread of a run; where that fails the others are told to end.
pub(super) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stop: Stop<'_>,
    name: &'static str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, InjectError> {
    let thread = Builder::new().name(name.into());
    let started =
        thread.spawn_scoped(scope, run).map_err(|source| InjectError::Thread { thread: name, source });
    stop.unless_failed(started)
}

pub(super) fn join<T>(thread: ScopedJoinHandle<'_, T>, name: &'static str) -> Result<T, InjectError> {
    thread.join().map_err(|_| InjectError::Panicked { thread: name })
}
