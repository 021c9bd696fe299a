// SPDX-License-Identifier: MIT OR Apache-2.0
//! A translation lookaside buffer (TLB) that software manages, as a model fed with the addresses of a program.
//!
//! A [`Tlb`] has entries of one page size. A [`Bank`] is one CPU's TLBs for several page sizes, all fed with the same
//! addresses. A plugin of the emulator feeds the banks and counts in [`Counters`], which live in memory that the emulator shares with
//! its starter. [`predict`] makes a time of the counts.

mod bank;
mod cost;
mod counters;
mod error;
mod index;
mod replacement;
mod setup;
mod tlb;

pub use bank::{Bank, Stream};
pub use cost::{Prediction, Processor, Row, predict};
pub use counters::{Counters, Counts, CpuCounters};
pub use error::{MOST_ENTRIES, MOST_SIZES, SetupError};
pub use replacement::Replacement;
pub use setup::Setup;
pub use tlb::Tlb;
