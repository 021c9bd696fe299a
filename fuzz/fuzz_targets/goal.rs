// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a schedule in GOAL, text and binary.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| colony_sim::goal::fuzz_read(bytes));
