// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any requests of the kernel of an I/O node about an exported folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| colony_ciod::testing::fuzz_files(bytes));
