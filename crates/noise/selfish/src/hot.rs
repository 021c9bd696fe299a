// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop itself.

use colony_time::tsc::Counter;

use super::recorder::Recorder;

/// The cost of a turn of the loop on this CPU, in counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopCost {
    /// The smallest gap between two readings: what the loop itself takes. Subtracted from every detour.
    pub smallest: u64,
    /// Mean turn of the measuring loop over its best undisturbed stretch.
    pub measuring: f64,
    /// Mean turn of a loop that only reads the counter, over its best undisturbed stretch.
    pub bare: f64,
}

/// The record of one stretch of looping, in counts.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Last reading; the next stretch goes on from here, so that nothing between two stretches is missed.
    pub last: u64,
    /// Turns made.
    pub turns: u64,
    /// Smallest gap seen.
    pub smallest: u64,
    /// Time spent recording, in which the loop was blind.
    pub blind: u64,
}

/// Loops from the reading `last` until the counter passes `deadline`, handing every gap of at least
/// `threshold` to `recorder`. Ends early after a gap that reaches the recorder's limit.
#[inline(never)]
pub fn stretch<C: Counter>(last: u64, deadline: u64, threshold: u64, recorder: &mut Recorder) -> Stretch {
    let mut done = Stretch { last, turns: 0, smallest: u64::MAX, blind: 0 };
    while done.last < deadline {
        let now = C::read();
        let gap = now.saturating_sub(done.last);
        done.turns += 1;
        if gap >= threshold {
            recorder.record(now, gap);
            // recording is not the system's noise: the loop starts afresh after it
            done.last = C::read();
            done.blind += done.last.saturating_sub(now);
            if recorder.over_limit().is_some() {
                break;
            }
        } else {
            done.smallest = done.smallest.min(gap);
            done.last = now;
        }
    }
    done
}

/// Turns of one timed stretch of [`cost`]; short enough that most stretches are undisturbed.
const TURNS: u64 = 512;
/// Stretches tried; about 5 ms in all.
const STRETCHES: usize = 1000;

/// Measures loop costs on the calling thread's CPU.
#[must_use]
pub fn cost<C: Counter>() -> LoopCost {
    let mut cost = LoopCost { smallest: u64::MAX, measuring: f64::INFINITY, bare: f64::INFINITY };
    let mut recorder = Recorder::discarding();
    let mut turn_counts = 64;
    for _ in 0..STRETCHES {
        let start = C::read();
        let mut end = start;
        for _ in 0..TURNS {
            end = std::hint::black_box(C::read());
        }
        cost.bare = cost.bare.min((end - start) as f64 / TURNS as f64);

        let start = C::read();
        let s = stretch::<C>(start, start + turn_counts * TURNS, u64::MAX, &mut recorder);
        cost.measuring = cost.measuring.min((s.last - start) as f64 / s.turns as f64);
        cost.smallest = cost.smallest.min(s.smallest);
        turn_counts = (cost.measuring as u64).max(1);
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_time::tsc::{Tsc, Vdso};

    #[test]
    fn the_loop_is_almost_as_fast_as_a_bare_one() {
        // the best of some tries: another program may share the core for all of one
        let ratio = (0..5).map(|_| cost::<Tsc>()).map(|c| c.measuring / c.bare).fold(f64::INFINITY, f64::min);
        assert!(ratio < 1.25, "{ratio}");
    }

    #[test]
    fn a_stretch_ends_at_its_deadline_and_reports_every_gap() {
        let (mut recorder, mut consumer) = Recorder::new(1 << 16, 1.0, 0);
        let start = Vdso::read();
        let s = stretch::<Vdso>(start, start + 2_000_000, 1, &mut recorder);
        assert!(s.last >= start + 2_000_000);
        // with a threshold of one count, every turn with a gap at all is a detour
        assert!(
            recorder.histogram().len() + 1 >= s.turns / 2,
            "{} of {}",
            recorder.histogram().len(),
            s.turns
        );
        let mut last = start;
        while let Ok(gap) = consumer.pop() {
            assert!(gap.end >= last && gap.length >= 1);
            last = gap.end;
        }
    }

    #[test]
    fn a_stretch_ends_at_the_first_gap_that_reaches_the_limit() {
        let (mut recorder, mut consumer) = Recorder::new(16, 1.0, 0);
        recorder.set_limit(1);
        let start = Vdso::read();
        let s = stretch::<Vdso>(start, start + 3_600_000_000_000, 1, &mut recorder);
        assert!(s.last < start + 3_600_000_000_000);
        assert_eq!(consumer.pop().ok(), recorder.over_limit(), "the gap is recorded as any other");
        assert!(consumer.pop().is_err(), "and is the last");
    }
}
