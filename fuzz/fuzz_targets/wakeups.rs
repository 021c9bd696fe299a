// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a result of cyclictest or of rtla timerlat.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| colony_trace::wakeups::fuzz_parse(bytes));
