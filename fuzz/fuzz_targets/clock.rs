// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a datagram of `colony clock sync`, an answer of chronyd or ptp4l, an estimate for colonyd, a host list.
#![no_main]

use colony_clock::hosts;
use colony_clock::source::{chrony::Tracking, ptp4l};
use colony_clock::wire::Datagram;
use colony_time::estimate::Feed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(datagram) = Datagram::decode(bytes) {
        assert_eq!(Datagram::decode(&datagram.encode()), Ok(datagram));
    }
    if let Ok(Some(tracking)) = Tracking::parse(bytes, 0) {
        let _ = tracking.reading(0).bound_at(i64::MAX);
    }
    let data = ptp4l::response(bytes, 0xc000, 0).ok().flatten().unwrap_or(bytes);
    let _ = ptp4l::Status::parse_time(data).and_then(|s| s.with_current(data));
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(feed) = text.parse::<Feed>() {
            assert_eq!(feed.to_string().parse(), Ok(feed));
        }
        let _ = (hosts::parse(text, 1), hosts::parse_slurm(text, 1));
    }
});
