// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns: the pairs of senders and receivers in one round.

/// The messages of one round: at most one from each rank, and at most one to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pattern {
    /// To the rank `by` above, around `ranks` ranks.
    Shift { by: u32, ranks: u32 },
    /// With the rank that differs in `bit`; `ranks` is a power of two.
    Flip { bit: u32, ranks: u32 },
    /// One level up a binomial tree: who has `bit` as lowest bit sends to the rank without it.
    Up { bit: u32, ranks: u32 },
    /// One level down: the reverse of `Up`.
    Down { bit: u32, ranks: u32 },
    /// Ranks from `whole` on send to those `whole` below.
    Fold { whole: u32, ranks: u32 },
    /// The reverse of `Fold`.
    Unfold { whole: u32, ranks: u32 },
    /// To the rank `by` further along one dimension of a periodic grid: `len` ranks, each `stride` from the
    /// next.
    Grid { stride: u32, len: u32, by: u32 },
}

impl Pattern {
    /// Whom `rank` sends to.
    #[inline]
    pub(crate) const fn to(self, rank: u32) -> Option<u32> {
        match self {
            Self::Shift { by, ranks } if rank < ranks => Some(around(rank, by, ranks)),
            Self::Flip { bit, ranks } if rank < ranks => Some(rank ^ bit),
            Self::Up { bit, ranks } if rank < ranks && rank & (2 * bit - 1) == bit => Some(rank - bit),
            Self::Down { bit, ranks } if rank & (2 * bit - 1) == 0 && below(rank, bit, ranks) => {
                Some(rank + bit)
            }
            Self::Fold { whole, ranks } if rank >= whole && rank < ranks => Some(rank - whole),
            Self::Unfold { whole, ranks } if below(rank, whole, ranks) => Some(rank + whole),
            Self::Grid { stride, len, by } => Some(along(rank, stride, len, by)),
            _ => None,
        }
    }

    /// Whom it receives from.
    #[inline]
    pub(crate) const fn from(self, rank: u32) -> Option<u32> {
        match self {
            Self::Shift { by, ranks } => Self::Shift { by: ranks - by, ranks }.to(rank),
            Self::Flip { .. } => self.to(rank),
            Self::Up { bit, ranks } => Self::Down { bit, ranks }.to(rank),
            Self::Down { bit, ranks } => Self::Up { bit, ranks }.to(rank),
            Self::Fold { whole, ranks } => Self::Unfold { whole, ranks }.to(rank),
            Self::Unfold { whole, ranks } => Self::Fold { whole, ranks }.to(rank),
            Self::Grid { stride, len, by } => Self::Grid { stride, len, by: len - by }.to(rank),
        }
    }

    /// The pattern of round `k` of a series: each goes one further.
    pub(crate) const fn round(self, k: u32) -> Self {
        match self {
            Self::Shift { by, ranks } => Self::Shift { by: by + k, ranks },
            Self::Grid { stride, len, by } => Self::Grid { stride, len, by: by + k },
            other => other,
        }
    }
}

const fn around(rank: u32, by: u32, ranks: u32) -> u32 {
    let to = rank as u64 + by as u64;
    (if to >= ranks as u64 { to - ranks as u64 } else { to }) as u32
}

const fn below(rank: u32, by: u32, ranks: u32) -> bool {
    (rank as u64 + by as u64) < ranks as u64 && rank < ranks
}

const fn along(rank: u32, stride: u32, len: u32, by: u32) -> u32 {
    let at = rank / stride % len;
    if by < len - at { rank + by * stride } else { rank - (len - by) * stride }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_message_has_a_sender_and_a_receiver(ranks in 1u32..300, raw in 0u32..300, k in 0u32..9) {
            let whole = 1u32 << ranks.ilog2();
            let patterns = [
                Pattern::Shift { by: raw % ranks, ranks },
                Pattern::Flip { bit: (1 << k) % whole, ranks: whole },
                Pattern::Up { bit: 1 << k, ranks },
                Pattern::Down { bit: 1 << k, ranks },
                Pattern::Fold { whole, ranks },
                Pattern::Unfold { whole, ranks },
            ];
            for p in patterns {
                for r in 0..ranks + 3 {
                    if let Some(to) = p.to(r) {
                        prop_assert!(to < ranks && p.from(to) == Some(r), "{p:?} {r}");
                    }
                    if let Some(from) = p.from(r) {
                        prop_assert_eq!(p.to(from), Some(r), "{:?}", p);
                    }
                }
            }
        }
    }

    #[test]
    fn a_grid_is_periodic() {
        // 3 × 2: ranks 0 1 2 / 3 4 5
        let x = Pattern::Grid { stride: 1, len: 3, by: 1 };
        let y = Pattern::Grid { stride: 3, len: 2, by: 1 };
        assert_eq!((0..6).filter_map(|r| x.to(r)).collect::<Vec<_>>(), [1, 2, 0, 4, 5, 3]);
        assert_eq!((0..6).filter_map(|r| y.to(r)).collect::<Vec<_>>(), [3, 4, 5, 0, 1, 2]);
        assert!((0..6).all(|r| x.to(r).and_then(|to| x.from(to)) == Some(r)));
        // rounds of an alltoall along a dimension: everybody meets everybody else of the line once
        let met: Vec<_> = (0..2).map(|k| x.round(k).to(4)).collect();
        assert_eq!((met, x.round(1).from(4)), (vec![Some(5), Some(3)], Some(5)));
    }
}
