// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terminal output for people: tables, progress, the live view.
//!
//! Results come from the other crates and leave as text; nothing is measured or decided here.

pub mod card;
pub mod choose;
pub mod clock;
pub mod cnk;
mod command;
pub mod control;
pub mod counters;
pub mod das_boot;
pub mod doctor;
pub mod health;
pub mod injection;
pub mod io_scaling;
pub mod io_sockets;
mod ipi;
mod keeper;
pub mod layout;
pub mod lb;
pub mod machine;
pub mod measurement;
pub mod pages;
pub mod plan;
pub mod progress;
pub mod run;
pub mod sim;
mod spare;
pub mod study;
pub mod survival;
pub mod table;
pub mod timeline;
pub mod tlb;
pub mod top;
pub mod trace;
pub mod tune;
pub mod units;
mod until;
pub mod vm;
pub mod wakeups;
