// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link of an I/O node: data passes it no faster than a rate, whichever sockets carry the data.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Data of a frame: 1500 bytes of an Ethernet frame less the headers of IP (20) and TCP with time stamps (32).
const FRAME_DATA: f64 = 1448.0;
/// Bytes that the frame takes of the link, with its own header, preamble and gap.
const FRAME_BYTES: f64 = 1538.0;
/// An idle link keeps its room for so long: a thread of the server that the host wakes late catches up.
const CATCH_UP: Duration = Duration::from_millis(10);

/// Data that a link of this rate can carry, bytes a second.
#[must_use]
pub fn most_data(link_bytes_per_s: f64) -> f64 {
    link_bytes_per_s * FRAME_DATA / FRAME_BYTES
}

/// A link that several threads use.
#[derive(Debug)]
pub(super) struct Link {
    bytes_per_s: Option<f64>,
    /// Time from which on it is free.
    free: Mutex<Instant>,
}

impl Link {
    /// A link that is free from now on; `None`: without a limit.
    pub(super) fn new(bytes_per_s: Option<f64>) -> Self {
        Self { bytes_per_s, free: Mutex::new(Instant::now()) }
    }

    /// Waits until the link has carried so many bytes of data.
    pub(super) fn carry(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_s else { return };
        let took = Duration::from_secs_f64(bytes as f64 / most_data(rate));
        let done = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = Instant::now().checked_sub(CATCH_UP).unwrap_or(*free);
            *free = (*free).max(earliest) + took;
            *free
        };
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_together_are_never_faster_than_the_link() {
        let began = Instant::now();
        let link = Link::new(Some(100e6));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..25).for_each(|_| link.carry(10_000)));
            }
        });
        let least_s = 1e6 / most_data(100e6);
        assert!(began.elapsed().as_secs_f64() >= least_s, "{:?}", began.elapsed());
        assert!((most_data(125e6) / 1e6 - 117.7).abs() < 0.05);
        let (open, began) = (Link::new(None), Instant::now());
        (0..1000).for_each(|_| open.carry(usize::MAX));
        assert!(began.elapsed() < Duration::from_secs(10), "no limit, no time");
    }
}
