// SPDX-License-Identifier: MIT OR Apache-2.0
//! EP, embarrassingly parallel (RNR-94-007, 2.2.1): Gaussian deviates from pairs of uniform numbers by
//! Marsaglia's polar method, counted by square annuli.

use super::check::Check;
use super::class::Class;
use super::memory::OutOfMemory;
use super::outcome::Outcome;
use super::random::Random;
use super::timer::Timer;

const SEED: u64 = 271_828_183;
const TOLERANCE: f64 = 1e-8;

/// The logarithm (base 2) of the number of pairs, and the sums of the deviates that NPB 3 expects.
const fn problem(class: Class) -> (u32, [f64; 2]) {
    match class {
        Class::S => (24, [-3.247_834_652_034_74e3, -6.958_407_078_382_297e3]),
        Class::W => (25, [-2.863_319_731_645_753e3, -6.320_053_679_109_499e3]),
        Class::A => (28, [-4.295_875_165_629_892e3, -1.580_732_573_678_431e4]),
    }
}

/// Sums of the deviates, and how many pairs lie in each annulus.
#[derive(Clone, Copy, Default)]
struct Tally {
    sx: f64,
    sy: f64,
    annuli: [u64; 10],
}

/// Pairs of a batch: each finds its own place in the random sequence, as in the original.
const BATCH: u64 = 1 << 16;

pub(super) fn run(class: Class) -> Result<Outcome, OutOfMemory> {
    let (log_pairs, expected) = problem(class);
    let batches = (1u64 << log_pairs) / BATCH;
    // touches code and the library's tables
    std::hint::black_box(pairs(Random::new(SEED), 1000, Tally::default()));
    let timer = Timer::start();
    let mut tally = Tally::default();
    for batch in 0..batches {
        tally = pairs(Random::new(SEED).skipped(batch * 2 * BATCH), BATCH, tally);
    }
    let timed = timer.stop();
    let accepted: u64 = tally.annuli.iter().sum();
    Ok(Outcome {
        iterations: 1,
        operations: (2u64 << log_pairs) as f64,
        timed,
        checks: vec![
            Check::new("sum of x", tally.sx, expected[0], TOLERANCE),
            Check::new("sum of y", tally.sy, expected[1], TOLERANCE),
            // no pair is lost: about pi/4 of them are in the circle
            Check::new(
                "share in the circle",
                accepted as f64 / (1u64 << log_pairs) as f64,
                std::f64::consts::FRAC_PI_4,
                1e-3,
            ),
        ],
    })
}

/// Makes `n` pairs and adds the accepted ones to `tally`.
fn pairs(mut random: Random, n: u64, mut tally: Tally) -> Tally {
    for _ in 0..n {
        let x1 = 2.0 * random.next() - 1.0;
        let x2 = 2.0 * random.next() - 1.0;
        let t1 = x1 * x1 + x2 * x2;
        if t1 <= 1.0 {
            let t2 = (-2.0 * t1.ln() / t1).sqrt();
            let (x, y) = (x1 * t2, x2 * t2);
            let annulus = x.abs().max(y.abs()) as usize;
            // deviates of a 46-bit generator stay below 9
            tally.annuli[annulus.min(9)] += 1;
            tally.sx += x;
            tally.sy += y;
        }
    }
    tally
}
