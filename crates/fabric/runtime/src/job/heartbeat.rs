// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of ranks that do not respond, from the intervals between their heartbeats.
//!
//! The timeout follows the intervals that were seen (mean and deviation, as Jacobson's for TCP, SIGCOMM 1988), so a noisy
//! machine is given more time, within bounds. A rank on another host that is silent for longer counts as dead. A rank on the
//! launcher's host is judged by its state, too ([`vitals`](super::vitals)).

use std::time::Duration;

use crate::transport::sockets::entry::HEARTBEAT;

/// The shortest and the longest timeout, unless the user has chosen one.
const TIMEOUT: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// Weights of a new interval in the mean and in the deviation.
const GAIN: [f64; 2] = [0.125, 0.25];
/// Deviations above the mean that are no death.
const DEVIATIONS: f64 = 8.0;

/// The heartbeats of one rank. Times are since any fixed moment.
#[derive(Clone, Debug)]
pub(crate) struct Heart {
    last: Duration,
    mean: f64,
    deviation: f64,
    bounds: [Duration; 2],
}

impl Heart {
    /// Of a rank that has connected at `now`, with a timeout that the user has chosen.
    pub(crate) fn new(now: Duration, timeout: Option<Duration>) -> Self {
        let mean = HEARTBEAT.as_secs_f64();
        Self {
            last: now,
            mean,
            deviation: mean / 2.0,
            bounds: timeout.map_or(TIMEOUT, |timeout| [timeout; 2]),
        }
    }

    /// Heartbeats have arrived.
    pub(crate) fn beat(&mut self, now: Duration) {
        let error = now.saturating_sub(self.last).as_secs_f64() - self.mean;
        self.mean += GAIN[0] * error;
        self.deviation += GAIN[1] * (error.abs() - self.deviation);
        self.last = now;
    }

    /// The launcher itself could not run for this long.
    pub(crate) fn excuse(&mut self, pause: Duration) {
        self.last += pause;
    }

    /// The silence after which the rank counts as dead.
    pub(crate) fn timeout(&self) -> Duration {
        let [shortest, longest] = self.bounds;
        let seconds = (self.mean + DEVIATIONS * self.deviation).max(0.0);
        Duration::from_secs_f64(seconds.min(longest.as_secs_f64())).max(shortest)
    }

    /// The silence so far, if it is longer than the timeout.
    pub(crate) fn silence(&self, now: Duration) -> Option<Duration> {
        let silence = now.saturating_sub(self.last);
        (silence > self.timeout()).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_rank_that_stops_is_silent_after_half_a_second() {
        let mut heart = Heart::new(ms(0), None);
        (1..100).for_each(|beat| heart.beat(ms(50 * beat)));
        assert_eq!(heart.silence(ms(50 * 99 + 490)), None);
        assert!(heart.silence(ms(50 * 99 + 510)).is_some());
    }

    proptest! {
        #[test]
        fn heartbeats_late_by_up_to_440_ms_are_no_death(late in prop::collection::vec(0u64..440, 1..200)) {
            let (mut heart, mut now) = (Heart::new(ms(0), None), 0);
            for late in late {
                now += 50 + late;
                prop_assert_eq!(heart.silence(ms(now)), None);
                heart.beat(ms(now));
                prop_assert!(heart.timeout() <= ms(2000));
            }
            prop_assert!(heart.silence(ms(now + 2001)).is_some());
        }
    }

    #[test]
    fn a_host_that_delays_heartbeats_is_given_more_time() {
        let mut heart = Heart::new(ms(0), None);
        (1..20).for_each(|beat| heart.beat(ms(if beat % 2 == 0 { 450 * beat } else { 450 * beat - 400 })));
        assert_eq!(heart.timeout(), ms(2000));
    }

    #[test]
    fn a_chosen_timeout_holds_whatever_the_intervals_are() {
        let mut heart = Heart::new(ms(0), Some(ms(5000)));
        (1..100).for_each(|beat| heart.beat(ms(50 * beat)));
        assert_eq!((heart.silence(ms(4950 + 5000)), heart.timeout()), (None, ms(5000)));
        assert!(heart.silence(ms(4950 + 5001)).is_some());
    }

    #[test]
    fn a_pause_of_the_launcher_is_no_silence_of_the_ranks() {
        let mut heart = Heart::new(ms(0), None);
        heart.excuse(ms(2000));
        assert_eq!(heart.silence(ms(2100)), None);
    }
}
