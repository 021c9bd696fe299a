// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fixed amount of work: turns of a loop, not time, so that lost processor time shows.

use std::hint::black_box;

use colony_comm::{Comm, Op};
use colony_time::tsc::Calibration;

/// Turns of a loop in which each waits for the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Turns.
    pub(crate) loops: u64,
    /// Nanoseconds of a turn on an undisturbed CPU.
    pub(crate) turn_ns: f64,
}

impl Work {
    /// Work that takes `ns` on the fastest rank's CPU, the same on every rank.
    pub(crate) fn of<C: Comm>(ns: u64, calibration: &Calibration, comm: &C) -> Result<Self, C::Error> {
        let mine = turn_ns(calibration);
        let mut least = [mine];
        comm.allreduce(&[mine], &mut least, Op::Min)?;
        let [turn_ns] = least;
        Ok(Self { loops: ((ns as f64 / turn_ns) as u64).max(1), turn_ns })
    }

    pub(crate) fn once(&self) {
        turns(self.loops);
    }
}

#[inline(never)]
fn turns(n: u64) {
    let mut x = black_box(1u64);
    for _ in 0..n {
        // a linear congruence (Knuth's MMIX): a multiplication and an addition, one after the other
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

/// The shortest of many short measurements: noise only makes them longer.
fn turn_ns(calibration: &Calibration) -> f64 {
    const TURNS: u64 = 50_000;
    let once = || {
        let start = calibration.kind.read();
        turns(TURNS);
        calibration.to_ns(calibration.kind.read().saturating_sub(start)) / TURNS as f64
    };
    (0..200).map(|_| once()).fold(f64::INFINITY, f64::min)
}
