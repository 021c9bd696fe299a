// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers that are a function of a key: the same on every machine, in whatever order they are asked for.

/// Finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2⁶⁴ over the golden ratio, the step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of a stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(STEP)))
    }

    /// A key for part `number` of the thing that this key is for.
    pub(crate) const fn part(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number.wrapping_mul(STEP).wrapping_add(STEP))))
    }

    /// Random bits number `index`.
    pub(crate) const fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// Uniform number `index`, above 0 and below 1.
    pub(crate) const fn uniform(self, index: u64) -> f64 {
        ((self.bits(index) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// A uniform number below `bound`, which must not be 0.
    pub(crate) const fn below(self, index: u64, bound: u32) -> u32 {
        (((self.bits(index) >> 32) * bound as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_in_range() {
        let key = Key::new(7).part(3);
        let mean = (0..100_000).map(|i| key.uniform(i)).sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let mut counts = [0; 10];
        (0..100_000).for_each(|i| counts[key.below(i, 10) as usize] += 1);
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    }
}
