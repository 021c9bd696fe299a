// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offset and drift between two clocks from round trips, with a bound that is sure to hold.
//!
//! A round trip of four instants tells the offset to half the time it took on the way, whatever the two ways
//! took alone (Cristian, "Probabilistic clock synchronization", 1989). The quickest trips tell it best, so of
//! each slice of time only the quickest counts. A straight line through those, the quicker the heavier, is
//! the estimate. Every trip bounds the offset at any instant: by half its time, and by what the drift may be wrong by
//! over the time between; the estimate is kept inside what all of them leave possible, and its bound is the
//! farther end of that.

use std::collections::VecDeque;

use colony_time::Estimate;
use colony_time::estimate::MAX_DRIFT_PPM;

/// A round trip: two instants of the asking clock and, between them, two of the answering one; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The question left (asking clock).
    pub sent_ns: i64,
    /// It arrived (answering clock).
    pub received_ns: i64,
    /// The answer left (answering clock).
    pub replied_ns: i64,
    /// It arrived (asking clock).
    pub returned_ns: i64,
}

/// The result of a round trip: at `at_ns` the other clock was ahead by `offset_ns`, give or take `half_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// An instant of the asking clock.
    pub at_ns: i64,
    /// Answering clock less asking clock.
    pub offset_ns: i64,
    /// Half of the time on the way, and what the clocks may drift apart meanwhile.
    pub half_ns: u64,
}

impl Probe {
    /// The longest round trip that says anything.
    const MAX_NS: i64 = 60_000_000_000;

    /// The result; `None` if the instants contradict each other (a clock was set meanwhile).
    #[must_use]
    pub fn sample(&self) -> Option<Sample> {
        let outside = self.returned_ns.checked_sub(self.sent_ns)?;
        let inside = self.replied_ns.checked_sub(self.received_ns)?;
        if !(0..=Self::MAX_NS).contains(&outside) || !(0..=Self::MAX_NS).contains(&inside) {
            return None;
        }
        let drifted = (outside as f64 * MAX_DRIFT_PPM * 1e-6).ceil() as i64;
        // no way takes less than no time: the offset is at most `upper` and at least `lower`
        let upper = i128::from(self.received_ns) - i128::from(self.sent_ns);
        let lower = i128::from(self.replied_ns) - i128::from(self.returned_ns);
        let twice = upper - lower;
        if twice < -i128::from(drifted) {
            return None;
        }
        Some(Sample {
            at_ns: self.sent_ns + outside / 2,
            offset_ns: i64::try_from((upper + lower).div_euclid(2)).ok()?,
            half_ns: (twice.max(0) as u64).div_ceil(2) + drifted.unsigned_abs() + 1,
        })
    }
}

/// A fit without a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// No round trip was completed.
    #[error("no round trip was completed")]
    Empty,
    /// No two clocks of steady rates give such trips.
    #[error("the round trips contradict each other: one of the two clocks was set, or its rate was changed")]
    Contradiction,
}

/// The quickest trips of the last minutes.
#[derive(Clone, Debug)]
pub struct History {
    kept: VecDeque<Sample>,
    wander_ppm: f64,
}

/// A line through a history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The other clock as the asking one tells it.
    pub estimate: Estimate,
    /// Time of the quickest trip, nanoseconds.
    pub round_trip_ns: u64,
    /// The line's distance from its samples, root of the mean square, nanoseconds.
    pub residual_ns: f64,
    /// Samples it goes through.
    pub samples: usize,
}

impl History {
    /// The assumed change of a drift within minutes: quartz in a room.
    pub const WANDER_PPM: f64 = 0.1;
    /// Slices of a round, from each of which the quickest trip is kept.
    const SLICES: usize = 16;
    /// Samples that are kept.
    const MOST: usize = 256;
    /// The age up to which they are kept, nanoseconds.
    const AGE_NS: i64 = 120_000_000_000;

    /// Nothing known; drifts change by `wander_ppm` at most within two minutes.
    #[must_use]
    pub const fn new(wander_ppm: f64) -> Self {
        Self { kept: VecDeque::new(), wander_ppm }
    }

    /// Forgets everything: a clock was set.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// Takes the trips of one round, in order of time; forgets those too old.
    pub fn add(&mut self, round: &[Sample]) {
        let (Some(first), Some(last)) = (round.first(), round.last()) else { return };
        let slice_ns =
            (last.at_ns.saturating_sub(first.at_ns) / Self::SLICES as i64).saturating_add(1).max(1);
        let slice = |s: &Sample| s.at_ns.saturating_sub(first.at_ns) / slice_ns;
        for trips in round.chunk_by(|a, b| slice(a) == slice(b)) {
            self.kept.extend(trips.iter().min_by_key(|s| s.half_ns));
        }
        let oldest = last.at_ns.saturating_sub(Self::AGE_NS);
        while self.kept.len() > Self::MOST || self.kept.front().is_some_and(|s| s.at_ns < oldest) {
            self.kept.pop_front();
        }
    }

    /// The line through what is kept, for the instant of the last sample.
    ///
    /// # Errors
    /// [`FitError`]: nothing is kept, or no line can be true.
    pub fn fit(&self) -> Result<Fit, FitError> {
        let last = self.kept.back().ok_or(FitError::Empty)?;
        let quickest = self.kept.iter().map(|s| s.half_ns).min().ok_or(FitError::Empty)?;
        // small numbers: exact in doubles
        let base = last.offset_ns;
        let points: Vec<Point> = self
            .kept
            .iter()
            .map(|s| Point {
                x: s.at_ns.saturating_sub(last.at_ns) as f64,
                y: s.offset_ns.saturating_sub(base) as f64,
                half: s.half_ns as f64,
            })
            .collect();
        let (least, most) = drifts(&points, self.wander_ppm * 1e-6)?;
        let line = Line::through(&points, quickest as f64, least, most);
        let unsure = (most - line.slope).max(line.slope - least) + self.wander_ppm * 1e-6;
        // what every single trip leaves possible now
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for p in &points {
            let (now, give) = (p.y - line.slope * p.x, p.half + unsure * p.x.abs());
            (low, high) = (low.max(now - give), high.min(now + give));
        }
        if low > high {
            return Err(FitError::Contradiction);
        }
        let offset = line.at(0.0).clamp(low, high);
        let bound = (high - offset).max(offset - low);
        let squares: f64 = points.iter().map(|p| (p.y - line.at(p.x)).powi(2)).sum();
        Ok(Fit {
            estimate: Estimate {
                at_ns: last.at_ns,
                offset_ns: base.saturating_add(offset.round() as i64),
                drift_ppm: line.slope * 1e6,
                bound_ns: bound.ceil() as u64 + 1,
                growth_ppm: unsure * 1e6,
            },
            round_trip_ns: quickest * 2,
            residual_ns: (squares / points.len() as f64).sqrt(),
            samples: points.len(),
        })
    }
}

/// A sample, nanoseconds from the last one.
#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    y: f64,
    half: f64,
}

/// The drifts that no pair of samples excludes.
fn drifts(points: &[Point], wander: f64) -> Result<(f64, f64), FitError> {
    let (mut least, mut most) = (-MAX_DRIFT_PPM * 1e-6, MAX_DRIFT_PPM * 1e-6);
    for (i, b) in points.iter().enumerate() {
        for a in points[..i].iter().filter(|a| b.x - a.x >= 1.0) {
            let (rise, give, run) = (b.y - a.y, a.half + b.half, b.x - a.x);
            least = least.max((rise - give) / run - wander);
            most = most.min((rise + give) / run + wander);
        }
    }
    if least > most { Err(FitError::Contradiction) } else { Ok((least, most)) }
}

#[derive(Clone, Copy, Debug)]
struct Line {
    slope: f64,
    start: f64,
}

impl Line {
    fn at(&self, x: f64) -> f64 {
        self.start + self.slope * x
    }

    /// Least squares, the quicker a trip the heavier; the slope is kept to what is possible.
    fn through(points: &[Point], quickest: f64, least: f64, most: f64) -> Self {
        // what a trip took longer than the quickest is how far it may be off the line
        let scale = (quickest * 0.05).max(50.0);
        let weight = |p: &Point| (p.half - quickest + scale).powi(-2);
        let sum = |f: &dyn Fn(&Point) -> f64| points.iter().map(|p| weight(p) * f(p)).sum::<f64>();
        let all = sum(&|_| 1.0);
        let (x, y) = (sum(&|p| p.x) / all, sum(&|p| p.y) / all);
        let spread = sum(&|p| (p.x - x).powi(2));
        let slope = if spread > 0.0 { sum(&|p| (p.x - x) * (p.y - y)) / spread } else { 0.0 };
        let slope = slope.clamp(least, most);
        Self { slope, start: y - slope * x }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Two clocks and the ways between them.
    #[derive(Clone, Copy, Debug)]
    struct Link {
        offset_ns: i64,
        drift_ppm: f64,
        /// The quickest ways there and back.
        ways_ns: [f64; 2],
        /// Mean of what a way takes longer.
        jitter_ns: f64,
        /// Share of trips that a heavy tail holds up.
        tail: f64,
    }

    impl Link {
        /// The other clock when this one reads `t`.
        fn truth(&self, t: i64) -> i64 {
            t + self.offset_ns + (self.drift_ppm * 1e-6 * t as f64).round() as i64
        }

        fn way(&self, rng: &mut ChaCha8Rng, which: usize) -> i64 {
            let mut way = self.ways_ns[which] - self.jitter_ns * rng.random::<f64>().max(1e-12).ln();
            if rng.random::<f64>() < self.tail {
                // Pareto: now and then a hundred times as long
                way += self.ways_ns[which] * rng.random::<f64>().max(1e-6).powf(-0.7);
            }
            way.round() as i64
        }

        fn round(&self, rng: &mut ChaCha8Rng, start: i64, trips: usize, apart: i64) -> Vec<Sample> {
            (0..trips)
                .filter_map(|i| {
                    let sent_ns = start + i as i64 * apart;
                    let there = sent_ns + self.way(rng, 0);
                    let back = there + 2_000;
                    let returned_ns = back + self.way(rng, 1);
                    let (received_ns, replied_ns) = (self.truth(there), self.truth(back));
                    Probe { sent_ns, received_ns, replied_ns, returned_ns }.sample()
                })
                .collect()
        }
    }

    fn a_link() -> impl Strategy<Value = Link> {
        let hours = 10 * 3_600_000_000_000i64;
        (-hours..hours, -500.0..500.0f64, 500.0..200_000.0f64, 0.2..5.0f64, 0.0..1.0f64, 0.0..0.3f64)
            .prop_map(|(offset_ns, drift_ppm, way, ratio, jitter, tail)| Link {
                offset_ns,
                drift_ppm,
                ways_ns: [way, way * ratio],
                jitter_ns: way * jitter,
                tail,
            })
    }

    proptest! {
        #[test]
        fn the_truth_is_always_inside_the_bound(link in a_link(), seed: u64, rounds in 1usize..5, later in -10i64..60) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut history = History::new(History::WANDER_PPM);
            for r in 0..rounds as i64 {
                history.add(&link.round(&mut rng, r * 10_000_000_000, 100, 5_000_000));
            }
            let e = history.fit().expect("steady clocks do not contradict themselves").estimate;
            for t in [e.at_ns, e.at_ns + later * 1_000_000_000] {
                let error = e.reference_at(t).abs_diff(link.truth(t));
                prop_assert!(error <= e.bound_at(t) + 2, "{error} > {} at {later}", e.bound_at(t));
            }
            prop_assert!((e.drift_ppm - link.drift_ppm).abs() <= e.growth_ppm + 1e-3);
        }

        #[test]
        fn no_instants_panic(t in prop::array::uniform4(any::<i64>()), more in prop::array::uniform4(0i64..1_000_000)) {
            let far = Probe { sent_ns: t[0], received_ns: t[1], replied_ns: t[2], returned_ns: t[3] };
            let near = Probe {
                sent_ns: t[0],
                received_ns: t[1],
                replied_ns: t[1].saturating_add(more[0]),
                returned_ns: t[0].saturating_add(more[1]),
            };
            let samples: Vec<Sample> = [far, near].iter().filter_map(Probe::sample).collect();
            let mut history = History::new(0.1);
            history.add(&samples);
            history.add(&samples);
            if let Ok(fit) = history.fit() {
                prop_assert!(fit.estimate.drift_ppm.abs() <= MAX_DRIFT_PPM + 1.0);
            }
        }
    }

    #[test]
    fn equal_ways_are_estimated_far_below_the_bound() {
        let link = Link {
            offset_ns: 3_600_000_000_000,
            drift_ppm: 123.4,
            ways_ns: [20_000.0, 20_000.0],
            jitter_ns: 10_000.0,
            tail: 0.2,
        };
        let mut worst = (0, 0);
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut history = History::new(History::WANDER_PPM);
            history.add(&link.round(&mut rng, 0, 200, 5_000_000));
            let e = history.fit().expect("a line").estimate;
            let error = e.reference_at(e.at_ns).abs_diff(link.truth(e.at_ns));
            worst = (worst.0.max(error), worst.1.max(e.bound_ns));
        }
        assert!(worst.0 * 4 < worst.1, "{worst:?}");
    }

    #[test]
    fn longer_histories_know_the_drift_better() {
        let link =
            Link { offset_ns: 5, drift_ppm: -50.0, ways_ns: [20_000.0; 2], jitter_ns: 5_000.0, tail: 0.0 };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut history = History::new(History::WANDER_PPM);
        let mut growths = Vec::new();
        for r in 0..30i64 {
            history.add(&link.round(&mut rng, r * 10_000_000_000, 50, 5_000_000));
            growths.push(history.fit().expect("a line").estimate.growth_ppm);
        }
        assert!(growths[29] * 20.0 < growths[0] && growths[29] < 1.5, "{growths:?}");
        assert!(history.kept.len() <= History::MOST, "what is too old is forgotten");
    }

    #[test]
    fn a_clock_that_is_set_meanwhile_is_noticed() {
        let before = Link { offset_ns: 0, drift_ppm: 0.0, ways_ns: [9_000.0; 2], jitter_ns: 0.0, tail: 0.0 };
        let after = Link { offset_ns: 50_000_000, ..before };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut history = History::new(History::WANDER_PPM);
        assert_eq!(history.fit(), Err(FitError::Empty));
        history.add(&before.round(&mut rng, 0, 20, 5_000_000));
        history.add(&after.round(&mut rng, 1_000_000_000, 20, 5_000_000));
        assert_eq!(history.fit(), Err(FitError::Contradiction));
        history.clear();
        history.add(&after.round(&mut rng, 1_000_000_000, 20, 5_000_000));
        assert!(history.fit().is_ok());
        let backwards = Probe { sent_ns: 10, received_ns: 0, replied_ns: 0, returned_ns: 9 };
        assert_eq!(backwards.sample(), None);
        // 1 ms on the way, 2 ms in between
        let impossible = Probe { sent_ns: 0, received_ns: 0, replied_ns: 2_000_000, returned_ns: 1_000_000 };
        assert_eq!(impossible.sample(), None);
    }
}
