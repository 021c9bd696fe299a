// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node's memory: its size, and the bits of it that spare bits replace (SC06 paper, table 1).
//!
//! Each rank of the memory has one spare bit. When a bit of the rank fails, the memory controller steers it: reads and writes
//! of the failed bit go to the spare one. The personality tells the node which bits are steered.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::ModelError;

/// Ranks of a node's memory.
pub const MEMORY_RANKS: usize = 4;
/// Bits of a rank: 128 of data and 16 of check.
pub const RANK_BITS: u8 = 144;

/// Memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Bytes.
    pub bytes: u64,
    /// Failed bits of it.
    pub steering: BitSteering,
}

impl From<u64> for NodeMemory {
    fn from(bytes: u64) -> Self {
        Self { bytes, steering: BitSteering::default() }
    }
}

/// A failed bit of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailedBit {
    rank: u8,
    bit: u8,
}

impl FailedBit {
    /// Bit `bit` of rank `rank`; `None` if a node has no such bit.
    #[must_use]
    pub fn new(rank: u8, bit: u8) -> Option<Self> {
        (usize::from(rank) < MEMORY_RANKS && bit < RANK_BITS).then_some(Self { rank, bit })
    }
}

impl fmt::Display for FailedBit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bit {} of rank {}", self.bit, self.rank)
    }
}

impl FromStr for FailedBit {
    type Err = ModelError;

    /// Reads `RANK:BIT`.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        // `parse` alone would take a sign
        let number = |word: &str| {
            let digits = word.bytes().all(|b| b.is_ascii_digit());
            word.parse().ok().filter(|_| digits)
        };
        let pair = text.split_once(':').and_then(|(rank, bit)| Self::new(number(rank)?, number(bit)?));
        pair.ok_or_else(|| ModelError::FailedBit { found: text.chars().take(40).collect() })
    }
}

/// The bit of each rank that its spare bit replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct BitSteering([Option<u8>; MEMORY_RANKS]);

impl BitSteering {
    /// Steers one more bit.
    ///
    /// # Errors
    /// [`ModelError::SpareUsed`] if the spare bit of the rank replaces another bit already.
    pub fn with(mut self, failed: FailedBit) -> Result<Self, ModelError> {
        let spare = &mut self.0[usize::from(failed.rank)];
        match *spare {
            Some(other) if other != failed.bit => {
                Err(ModelError::SpareUsed { rank: failed.rank, bit: failed.bit, other })
            }
            _ => {
                *spare = Some(failed.bit);
                Ok(self)
            }
        }
    }

    /// The bits that are steered, by rank.
    pub fn bits(&self) -> impl Iterator<Item = FailedBit> + '_ {
        (0..).zip(self.0).filter_map(|(rank, bit)| Some(FailedBit { rank, bit: bit? }))
    }

    /// A byte for each rank: 0, or 1 and the number of the bit.
    pub(crate) fn encode(self) -> [u8; MEMORY_RANKS] {
        self.0.map(|bit| bit.map_or(0, |bit| bit + 1))
    }

    /// The inverse of [`BitSteering::encode`]; `None` for a bit that no rank has.
    pub(crate) fn decode(bytes: [u8; MEMORY_RANKS]) -> Option<Self> {
        let is_right = bytes.iter().all(|&byte| byte <= RANK_BITS);
        is_right.then(|| Self(bytes.map(|byte| byte.checked_sub(1))))
    }
}

impl fmt::Display for BitSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.bits().map(|bit| bit.to_string()).collect();
        f.write_str(if all.is_empty() { "none" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_one_spare_bit() {
        let bit = |text: &str| text.parse::<FailedBit>();
        let one = BitSteering::default().with(bit("1:17").expect("a bit")).expect("steered");
        let two = one.with(bit("3:0").expect("a bit")).expect("another rank");
        assert_eq!(two.to_string(), "bit 17 of rank 1, bit 0 of rank 3");
        assert_eq!(two.with(bit("1:17").expect("a bit")), Ok(two), "the same bit once more");
        let error = two.with(bit("1:18").expect("a bit")).expect_err("no spare bit is left");
        assert_eq!(
            error.to_string(),
            "bit 18 of rank 1 cannot be steered: the spare bit of the rank replaces bit 17; take the node out of service"
        );
        assert_eq!(BitSteering::default().to_string(), "none");
        for wrong in ["", "1", "4:0", "0:144", "-1:3", "+1:3", "1:2:3", "x:1"] {
            assert!(bit(wrong).is_err_and(|e| e.to_string().contains("RANK:BIT")), "{wrong}");
        }
    }

    #[test]
    fn each_steering_has_one_code() {
        let both = ["0:0", "2:143"].map(|text| text.parse().expect("a bit"));
        let steering = both.into_iter().try_fold(BitSteering::default(), BitSteering::with).expect("steered");
        assert_eq!(steering.encode(), [1, 0, 144, 0]);
        assert_eq!(BitSteering::decode([1, 0, 144, 0]), Some(steering));
        assert_eq!(BitSteering::decode([0, 145, 0, 0]), None);
    }
}
