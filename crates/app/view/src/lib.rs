// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person sees on a terminal: tables, progress, the live view.
//!
//! Results come from the other crates and leave as text; nothing is measured or decided here.

pub mod clock;
pub mod cnk;
pub mod injection;
mod keeper;
pub mod machine;
pub mod measurement;
pub mod progress;
pub mod run;
pub mod sim;
pub mod study;
pub mod table;
pub mod top;
pub mod trace;
pub mod units;
pub mod vm;
