// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers of a seed, so that a test that failed can be repeated.

use std::time::Duration;

/// The generator SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if the limit is 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        match self.number().checked_rem(limit) {
            Some(number) => number,
            None => 0,
        }
    }

    /// A time below `limit`.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        limit.mul_f64(self.below(1 << 20) as f64 / f64::from(1 << 20))
    }

    /// One of these; `None` if there are none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(usize::try_from(self.below(all.len() as u64)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_within_their_limits() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!((0..10).all(|n| numbers(7).contains(&n)) && numbers(7).iter().all(|n| *n < 10));
        let mut random = Random::new(1);
        assert_eq!(random.below(0), 0);
        assert!((0..100).all(|_| random.up_to(Duration::from_secs(1)) < Duration::from_secs(1)));
        assert_eq!(random.one_of::<u8>(&[]), None);
        assert_eq!(random.one_of(&[5]), Some(&5));
    }
}
