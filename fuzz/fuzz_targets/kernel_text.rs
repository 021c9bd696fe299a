// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as text of the kernel's tracers and as a histogram of its tools.
#![no_main]

use colony_trace::convert::{Format, fuzz_parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Sched, Format::Hwlat, Format::Histogram] {
        fuzz_parse(bytes, format);
    }
});
