// SPDX-License-Identifier: MIT OR Apache-2.0
//! An estimate of the cluster's clock in force: what it says on this node's clock as that is now, and what has been
//! added to its error since it was made.

use colony_clock::anchor::Anchor;
use colony_time::Estimate;
use colony_time::clock::Clock;
use colony_time::estimate::Feed;

/// Time for which a guard must hold: the next judgement may come late.
pub(super) const AHEAD_NS: i64 = 2_000_000_000;
/// Upper bound of the error from reading clocks, rounding periods and following the drift in steps.
pub(super) const SLACK_NS: u64 = 1_000;
/// The shortest time the clock's rate is measured over.
const MEASURE_NS: i64 = 500_000_000;

/// This node's clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) monotonic_ns: i64,
    pub(super) anchor: Anchor,
}

impl Now {
    pub(super) fn read() -> Self {
        Self { anchor: Anchor::now(), monotonic_ns: Clock::Monotonic.now_ns() }
    }

    pub(super) const fn tai_ns(&self) -> i64 {
        self.monotonic_ns.saturating_add(self.anchor.tai_less_monotonic_ns)
    }
}

/// An estimate in force.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) feed: Feed,
    /// The kernel's correction of the clock's rate when the estimate was made: another rate is another drift.
    frequency_ppm: f64,
    /// The error that a change of rate added until the estimate arrived.
    before_ns: f64,
    /// The clocks when it came.
    came: Now,
    /// The instant at which the rate was last measured, and the error added until then.
    measured: (i64, f64),
    /// The last rate of the clock relative to its rate when the estimate was made, parts per million.
    off_ppm: f64,
}

impl Held {
    /// An estimate that comes `now`, while the kernel corrects the clock's rate by `frequency_ppm`.
    pub(super) fn new(feed: Feed, frequency_ppm: f64, now: Now) -> Self {
        let made_ppm = feed.frequency_ppm.unwrap_or(frequency_ppm);
        let age_ns = now.monotonic_ns.saturating_sub(feed.monotonic_ns);
        // it may have changed at once
        let before_ns = ((frequency_ppm - made_ppm) * 1e-6 * age_ns as f64).abs();
        let off_ppm = frequency_ppm - made_ppm;
        Self {
            feed,
            frequency_ppm: made_ppm,
            before_ns,
            came: now,
            measured: (now.monotonic_ns, 0.0),
            off_ppm,
        }
    }

    /// Difference between the clock and the time it would show if its rate had not changed since the estimate arrived. Against the
    /// raw clock, since the kernel steers in more ways than by the frequency it tells of.
    fn astray_ns(&self, now: Now) -> f64 {
        let span_ns = now.monotonic_ns.saturating_sub(self.came.monotonic_ns);
        let steered_ns = now.anchor.steered_ns.saturating_sub(self.came.anchor.steered_ns);
        steered_ns as f64 - self.frequency_ppm * 1e-6 * span_ns.saturating_sub(steered_ns) as f64
    }

    /// The error that a change of rate since the estimate may add until the next judgement.
    fn extra_ns(&mut self, now: Now) -> u64 {
        let astray_ns = self.astray_ns(now);
        let span_ns = now.monotonic_ns.saturating_sub(self.measured.0);
        // over a shorter time the width of readings would be a rate
        if span_ns >= MEASURE_NS {
            self.off_ppm = (astray_ns - self.measured.1) / span_ns as f64 * 1e6;
            self.measured = (now.monotonic_ns, astray_ns);
        }
        let ahead_ns = (self.off_ppm * 1e-6 * AHEAD_NS as f64).abs();
        (self.before_ns + astray_ns.abs() + ahead_ns).ceil() as u64
    }

    /// The estimate on this node's TAI as it is now, and what changes of the clock's rate add to its error.
    pub(super) fn on_tai(&mut self, now: Now) -> (Estimate, u64) {
        let extra_ns = self.extra_ns(now);
        let made = &self.feed.estimate;
        let then = made.at_ns.saturating_sub(self.feed.monotonic_ns);
        // what the clock was set by since: small differences are the width of readings
        let set_by = match now.anchor.tai_less_monotonic_ns.saturating_sub(then) {
            small if small.unsigned_abs() < SLACK_NS / 2 => 0,
            step => step,
        };
        let estimate = Estimate {
            at_ns: made.at_ns.saturating_add(set_by),
            offset_ns: made.offset_ns.saturating_sub(set_by),
            ..*made
        };
        (estimate, extra_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, steered_ns: i64) -> Now {
        let anchor = Anchor { tai_less_monotonic_ns: 0, steered_ns, slept_ns: 0, error_ns: 20 };
        Now { monotonic_ns: seconds * 1_000_000_000, anchor }
    }

    fn feed(frequency_ppm: Option<f64>) -> Feed {
        Feed { estimate: Estimate::EXACT, monotonic_ns: 0, frequency_ppm, reference: "node0".into() }
    }

    #[test]
    fn a_rate_that_changed_until_the_estimate_came_widens_the_bound() {
        let mut extra = [None, Some(30.0), Some(20.0)].map(|f| Held::new(feed(f), 30.0, at(10, 0)));
        let [unknown, same, changed] = extra.each_mut().map(|h| h.extra_ns(at(10, 0)));
        assert_eq!((unknown, same), (0, 0));
        assert!((119_999..=120_001).contains(&changed), "10 ppm of 10 s, and of 2 s to come: {changed}");
    }

    #[test]
    fn only_another_rate_than_that_of_the_estimate_counts() {
        let mut same = Held::new(feed(Some(50.0)), 50.0, at(0, 7));
        assert!(same.extra_ns(at(100, 5_000_007)) < 1_000);
        let mut other = Held::new(feed(Some(50.0)), 50.0, at(0, 7));
        let extra = other.extra_ns(at(100, 4_000_007));
        assert!((1_019_000..1_021_000).contains(&extra), "10 ppm of 100 s, and of 2 s to come: {extra}");
    }
}
