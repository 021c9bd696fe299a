// SPDX-License-Identifier: MIT OR Apache-2.0
//! *Selfish*: a user-space loop per CPU that sees every detour the CPU takes (ANL 2005).
//!
//! The loop itself and its recorder are the package `colony-selfish`; here it runs on many CPUs at once.
//!
//! * [`hot`]: the loop itself, and how long a bare one takes,
//! * [`recorder`]: where its detours go,
//! * [`observers`]: a pinned thread per CPU, real-time if asked, with a watchdog.

mod config;
pub mod observers;

pub use colony_selfish::{hot, recorder};
pub use config::{Config, SelfishError};
pub use observers::{Gaps, ObservedCpu, Observers};
pub use recorder::Gap;
