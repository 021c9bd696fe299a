// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of ranks that are threads or processes.

mod processes;
mod ranks;

use std::sync::RwLock;

/// Ranks poll while they wait. Up to 17 ranks that are threads share the CPUs; a test whose processes time out after a second
/// has them for itself.
static CPUS: RwLock<()> = RwLock::new(());
