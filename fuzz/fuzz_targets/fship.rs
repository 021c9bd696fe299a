// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any requests of a node on any memory, against the I/O daemon.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| colony_ciod::testing::fuzz_calls(bytes));
