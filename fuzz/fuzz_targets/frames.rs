// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a frame of a node or its proxy: refused, or in bounds. The first byte says for whom.
#![no_main]

use colony_fship::frame::{Content, Side, read};
use colony_fship::layout::CHANNELS;
use libfuzzer_sys::fuzz_target;

const WINDOW: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, frame)) = bytes.split_first() else { return };
    let side = if first & 1 == 0 { Side::Node } else { Side::Proxy };
    match read(frame, side, WINDOW) {
        Some((_, Content::Put { place, bytes })) => assert!(place + bytes.len() as u64 <= WINDOW),
        Some((_, Content::Clear { place, length })) => assert!(place + length <= WINDOW),
        Some((_, Content::Request(c, _) | Content::Reply(c, _) | Content::Signals(c, _))) => {
            assert!(c < CHANNELS)
        }
        _ => {}
    }
});
