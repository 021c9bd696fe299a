// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU of the tests' jobs, for one test at a time, whichever test program and user it is of.

use colony_testing::machine::{JOB_CPU, MachineLock};

/// The CPU, until the lock is dropped.
pub(crate) fn job_cpu() -> MachineLock {
    MachineLock::wait(JOB_CPU, |_| ()).expect("nobody keeps the CPU of the tests' jobs for an hour")
}
