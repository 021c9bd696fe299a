// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks: daemons of the system, nodes on the loopback interface, and virtual nodes.

mod chrony;
mod loopback;
mod ptp4l;
mod vm;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until the tests that have called this before have ended. The tests compare times, which other load disturbs, and use
/// ports that are free when a test looks for one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
