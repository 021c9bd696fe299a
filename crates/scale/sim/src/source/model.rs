// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise made by a model.

use serde::{Deserialize, Serialize};

use super::{Burst, Dist, Done, Noise, Stream};
use crate::SimError;

/// Arrivals of bursts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// From arrival to arrival, whatever became of the burst: timers, packets. `fixed` is periodic noise,
    /// `exponential` a Poisson process.
    Every(Dist),
    /// From the end of a burst to the next arrival: a daemon that sleeps between two pieces of work, as
    /// the noise daemon of the Colony report (appendix A.1). It never has more than one burst waiting.
    AfterSleep(Dist),
}

/// Noise made by a model: when bursts arrive, and how long they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The arrivals.
    pub arrivals: Arrivals,
    /// The lengths.
    pub length: Dist,
}

/// Numbers of a burst: its gap from 0 on, its length from 2 on.
const GAP: u64 = 0;
const LENGTH: u64 = 2;

/// Numbers of a stream that begins anywhere in its cycle: what is left of the part it is in, and which part
/// that is.
const REST: u64 = 0;
const WHERE: u64 = 3;

/// A stream begins with no burst waiting. After this many mean rests of a busy period that is forgotten.
const FORGET: f64 = 8.0;
/// Most cycles to wait for that.
const MOST_CYCLES: f64 = 1000.0;

impl Model {
    /// A detour of `length_ns` every `every_ns` (the injected detours of ANL 2005).
    #[must_use]
    pub const fn periodic(every_ns: u64, length_ns: u64) -> Self {
        Self { arrivals: Arrivals::Every(Dist::Fixed(every_ns)), length: Dist::Fixed(length_ns) }
    }

    /// Arrivals at any instant with equal probability, on average every `mean_ns`.
    #[must_use]
    pub const fn poisson(mean_ns: f64, length: Dist) -> Self {
        Self { arrivals: Arrivals::Every(Dist::Exponential { mean_ns }), length }
    }

    /// The noise daemon of the Colony report (section 3.1.7): calculations of random length, on average
    /// `mean_ns` and at most twice that, and `sleep_ns` after each.
    #[must_use]
    pub const fn leibniz(mean_ns: u64, sleep_ns: u64) -> Self {
        Self {
            arrivals: Arrivals::AfterSleep(Dist::Fixed(sleep_ns)),
            length: Dist::Uniform { from_ns: 0, to_ns: 2 * mean_ns },
        }
    }
}

impl Noise for Model {
    fn first(&self, stream: &Stream) -> Option<Burst> {
        let whole_ns = || self.length.draw(stream.burst_key(0), LENGTH);
        let Some(key) = stream.anywhere() else {
            let arrival_ns = stream.from_ns().checked_add(stream.phase_ns(self.cycle_ns() as u64))?;
            return Some(Burst { index: 0, arrival_ns, length_ns: whole_ns() });
        };
        let (after_ns, length_ns) = match &self.arrivals {
            Arrivals::Every(gap) => (gap.rest(key, REST).saturating_sub(1), whole_ns()),
            Arrivals::AfterSleep(_) if key.uniform(WHERE) < self.load() => (0, self.length.rest(key, REST)),
            Arrivals::AfterSleep(sleep) => (sleep.rest(key, REST), whole_ns()),
        };
        let arrival_ns = stream.from_ns().checked_add(stream.late_ns())?.checked_add(after_ns)?;
        Some(Burst { index: 0, arrival_ns, length_ns })
    }

    fn next(&self, stream: &Stream, last: Done) -> Option<Burst> {
        let index = last.index + 1;
        let key = stream.burst_key(index);
        let (from, gap) = match &self.arrivals {
            Arrivals::Every(gap) => (last.arrival_ns, gap),
            Arrivals::AfterSleep(sleep) => (last.done_ns, sleep),
        };
        let arrival_ns = from.checked_add(gap.draw(key, GAP))?;
        Some(Burst { index, arrival_ns, length_ns: self.length.draw(key, LENGTH) })
    }

    fn cycle_ns(&self) -> f64 {
        match &self.arrivals {
            Arrivals::Every(gap) => gap.mean_ns(),
            Arrivals::AfterSleep(sleep) => sleep.mean_ns() + self.length.mean_ns(),
        }
    }

    fn load(&self) -> f64 {
        self.length.mean_ns() / self.cycle_ns()
    }

    fn lengths(&self) -> Option<&Dist> {
        Some(&self.length)
    }

    fn sleeps(&self) -> bool {
        matches!(self.arrivals, Arrivals::AfterSleep(_))
    }

    fn settle_ns(&self) -> u64 {
        match &self.arrivals {
            // where it begins in a burst, its first is what is left of that
            Arrivals::AfterSleep(_) => 0,
            // arrivals are as ever at once; what is missing is bursts from before, until they would be done:
            // the rest of a busy period (its mean: Kleinrock, "Queueing Systems" 1, 1975, section 5.8)
            Arrivals::Every(_) => {
                let idle = 1.0 - self.load();
                let busy_ns = self.length.mean_met_ns() / 2.0 / (idle * idle);
                (FORGET * busy_ns).min(MOST_CYCLES * self.cycle_ns()) as u64
            }
        }
    }

    fn check(&self) -> Result<(), SimError> {
        let (Arrivals::Every(gap) | Arrivals::AfterSleep(gap)) = &self.arrivals;
        gap.check()?;
        self.length.check()?;
        match self.load() {
            load if load < 1.0 => Ok(()),
            load => Err(SimError::Load { load }),
        }
    }
}
