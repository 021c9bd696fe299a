// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark programs, as users run them.

mod nas;
mod nodes;
mod programs;

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Ranks poll while they wait: if two programs run at once, the ranks of one wait for those of the other. A test over MPI has
/// the CPUs for itself.
static CPUS: RwLock<()> = RwLock::new(());

/// The CPUs, together with other tests that call this.
fn share_cpus() -> RwLockReadGuard<'static, ()> {
    CPUS.read().unwrap_or_else(PoisonError::into_inner)
}
