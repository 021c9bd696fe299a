// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers without a generator's state: number `index` of a stream is a function of its key.
//!
//! So every rank, source and repetition draws its own numbers, whatever the order they are asked for in,
//! on however many threads, and a million ranks keep no generators.

/// Finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014): every bit of the input changes every bit of the output with probability near a half.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2⁶⁴ over the golden ratio, the step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of a stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// The key of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(STEP)))
    }

    /// A key for part `number` of what this key stands for.
    #[must_use]
    pub const fn part(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number.wrapping_mul(STEP).wrapping_add(STEP))))
    }

    /// Random bits number `index`.
    #[must_use]
    pub const fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// Uniform number `index`, above 0 and below 1 (never an end, so that logarithms exist).
    #[must_use]
    pub const fn uniform(self, index: u64) -> f64 {
        ((self.bits(index) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_streams_apart() {
        let key = Key::new(7);
        let n = 100_000;
        let mean = (0..n).map(|i| key.uniform(i)).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        // neighbours: parts and indices that differ by one are not correlated
        let pairs = |f: &dyn Fn(u64) -> (f64, f64)| {
            (0..n)
                .map(|i| {
                    let (a, b) = f(i);
                    (a - 0.5) * (b - 0.5)
                })
                .sum::<f64>()
                / n as f64
                * 12.0
        };
        assert!(pairs(&|i| (key.part(i).uniform(0), key.part(i + 1).uniform(0))).abs() < 0.02);
        assert!(pairs(&|i| (key.uniform(i), key.uniform(i + 1))).abs() < 0.02);
        assert!(pairs(&|i| (key.part(i).uniform(0), key.part(i).uniform(1))).abs() < 0.02);
        assert_ne!(Key::new(0).bits(0), Key::new(1).bits(0));
    }
}
