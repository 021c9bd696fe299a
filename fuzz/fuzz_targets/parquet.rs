// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a trace in the format `parquet`.
#![no_main]

use colony_trace::convert::{Format, fuzz_parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_parse(bytes, Format::Parquet));
