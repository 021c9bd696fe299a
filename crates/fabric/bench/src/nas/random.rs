// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks' random numbers: x' = a x mod 2^46 (NAS Parallel Benchmarks report RNR-94-007, 2.3).
//!
//! The originals do this in halves of 23 bits in double precision, which gives the exact product. Whole
//! numbers give the same with one multiplication.

/// Numbers are below 2^46.
const MASK: u64 = (1 << 46) - 1;
/// 2^-46: products with it are exact.
const SCALE: f64 = 1.0 / (1u64 << 46) as f64;

/// The multiplier of all kernels, 5^13.
pub(crate) const MULTIPLIER: u64 = 1_220_703_125;

/// A place in the sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed & MASK)
    }

    /// The place `steps` further on, in time that grows with the logarithm of `steps`.
    pub(crate) const fn skipped(self, steps: u64) -> Self {
        let (mut x, mut a, mut left) = (self.0, MULTIPLIER, steps);
        while left > 0 {
            if left & 1 == 1 {
                x = x.wrapping_mul(a) & MASK;
            }
            a = a.wrapping_mul(a) & MASK;
            left >>= 1;
        }
        Self(x)
    }

    /// The next number, uniform in 0..1; the function `randlc` of the originals.
    #[inline(always)]
    pub(crate) const fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER) & MASK;
        self.0 as f64 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `randlc` as the report gives it, in halves of 23 bits.
    fn randlc(x: &mut f64, a: f64) -> f64 {
        let (r23, t23) = (0.5f64.powi(23), 2f64.powi(23));
        let (r46, t46) = (r23 * r23, t23 * t23);
        let a1 = (r23 * a).trunc();
        let a2 = a - t23 * a1;
        let x1 = (r23 * *x).trunc();
        let x2 = *x - t23 * x1;
        let t1 = a1 * x2 + a2 * x1;
        let z = t1 - t23 * (r23 * t1).trunc();
        let t3 = t23 * z + a2 * x2;
        *x = t3 - t46 * (r46 * t3).trunc();
        r46 * *x
    }

    #[test]
    fn the_numbers_are_those_of_the_report() {
        let (mut ours, mut theirs) = (Random::new(314_159_265), 314_159_265.0);
        for _ in 0..10_000 {
            assert_eq!(ours.next(), randlc(&mut theirs, MULTIPLIER as f64));
        }
    }

    #[test]
    fn skipping_is_drawing() {
        let start = Random::new(271_828_183);
        let mut drawn = start;
        for steps in 0..300 {
            assert_eq!(start.skipped(steps).0, drawn.0);
            drawn.next();
        }
    }
}
