// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as the file of a time line: what can be read has figures, and is written again as it was.
#![no_main]

use colony_timeline::Timeline;
use colony_timeline::analysis::summary::Summary;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(timeline) = Timeline::parse(bytes) else { return };
    let _ = Summary::of(&timeline, None, 50, 5);
    let mut again = Vec::new();
    timeline.write_to(&mut again).expect("memory");
    assert_eq!(Timeline::parse(&again).expect("own bytes"), timeline);
});
