// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a load file, ours and DARMA/vt's.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| colony_balance::file::fuzz_read(bytes));
