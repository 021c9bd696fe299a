// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as text of the kernel's tracers, as a histogram of its tools, and as a result of FTQ and FWQ.
#![no_main]

use colony_trace::convert::{Format, fuzz_parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Sched, Format::Hwlat, Format::Histogram, Format::Ftq, Format::Fwq] {
        fuzz_parse(bytes, format);
    }
});
