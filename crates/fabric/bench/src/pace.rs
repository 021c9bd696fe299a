// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::Params;

/// The pace of a run: the number of operations in the next stretch, so that the run ends by count or by time.
///
/// Rank 0 asks; the ranks agree on its answer between stretches, so none waits for an operation that
/// another does not make.
#[derive(Clone, Debug)]
pub struct Pace {
    left: Option<u64>,
    seconds: Option<f64>,
    done: u64,
}

impl Pace {
    /// Operations of a stretch at most: their stamps fit a first-level cache.
    pub const MOST: usize = 4096;
    /// Operations of the first stretch, from which their length is learnt.
    pub const FIRST: usize = 16;
    /// A stretch's time, where its operations are long.
    const STRETCH_S: f64 = 0.020;

    /// The pace of a run with these parameters.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self { left: params.ops, seconds: params.seconds, done: 0 }
    }

    /// Operations of the next stretch, 0 when the run is done; `elapsed_s` is the time since the first
    /// stretch began, `timed_s` the part of it spent in operations.
    #[must_use]
    pub fn next(&mut self, elapsed_s: f64, timed_s: f64) -> usize {
        let time_left_s = self.seconds.map_or(f64::INFINITY, |s| s - elapsed_s);
        if time_left_s <= 0.0 || self.left == Some(0) {
            return 0;
        }
        let mut n = Self::FIRST;
        if self.done > 0 {
            let op_s = (timed_s / self.done as f64).max(1e-9);
            n = (Self::STRETCH_S.min(time_left_s) / op_s).clamp(1.0, Self::MOST as f64) as usize;
        }
        let n = self.left.map_or(n as u64, |left| left.min(n as u64));
        self.done += n;
        self.left = self.left.map(|left| left - n);
        n as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_by_count_makes_exactly_that_many(ops in 1u64..200_000, op_ns in 1u64..100_000_000) {
            let mut pace = Pace::new(&Params { ops: Some(ops), ..Params::new(Program::Barrier) });
            let mut done = 0;
            loop {
                let timed_s = done as f64 * op_ns as f64 / 1e9;
                match pace.next(timed_s, timed_s) {
                    0 => break,
                    n => done += n as u64,
                }
            }
            prop_assert_eq!(done, ops);
        }

        #[test]
        fn a_run_by_time_ends_within_a_stretch_of_it(seconds in 0.1f64..2.0, op_us in 1u64..5_000) {
            let op_s = op_us as f64 / 1e6;
            let params = Params { ops: None, seconds: Some(seconds), ..Params::new(Program::Barrier) };
            let (mut pace, mut t) = (Pace::new(&params), 0.0);
            loop {
                match pace.next(t, t) {
                    0 => break,
                    n => t += n as f64 * op_s,
                }
            }
            prop_assert!(t >= seconds && t <= seconds + 2.0 * op_s + Pace::FIRST as f64 * op_s, "{}", t);
        }
    }
}
