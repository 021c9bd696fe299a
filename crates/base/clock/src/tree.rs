// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree along which clocks are compared: the parent of a rank is the rank without its highest bit.
//!
//! In round `k` ranks `2^k … 2^(k+1) − 1` are compared with ranks `0 … 2^k − 1`, each with another one: no node
//! has two partners at once, and `n` nodes take `⌈log₂ n⌉` rounds. A rank is as many steps from rank 0 as it
//! has bits set.

/// The rank that `rank` is compared with; none for 0, whose clock is the reference.
#[must_use]
pub const fn parent(rank: u32) -> Option<u32> {
    match rank.checked_ilog2() {
        None => None,
        Some(bit) => Some(rank ^ (1 << bit)),
    }
}

/// The round in which `rank` is compared with its parent, from 0.
#[must_use]
pub const fn round(rank: u32) -> Option<u32> {
    rank.checked_ilog2()
}

/// Ranks compared with `rank` among `nodes`, in the order of their rounds.
#[must_use]
pub fn children(rank: u32, nodes: u32) -> Vec<u32> {
    let first = rank.checked_ilog2().map_or(0, |bit| bit + 1);
    (first..u32::BITS).map(|bit| rank | 1 << bit).take_while(|&child| child < nodes).collect()
}

/// Rounds that `nodes` nodes take: `⌈log₂ n⌉`.
#[must_use]
pub const fn rounds(nodes: u32) -> u32 {
    match nodes {
        0 | 1 => 0,
        n => (n - 1).ilog2() + 1,
    }
}

/// Steps from `rank` to rank 0.
#[must_use]
pub const fn depth(rank: u32) -> u32 {
    rank.count_ones()
}

/// `rank` and all below it among `nodes`, ascending.
#[must_use]
pub fn subtree(rank: u32, nodes: u32) -> Vec<u32> {
    let mut all = vec![rank];
    let mut next = 0;
    while let Some(&r) = all.get(next) {
        all.extend(children(r, nodes));
        next += 1;
    }
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_partner_a_round_and_log2_rounds_reach_all() {
        for nodes in 1..200 {
            let mut reached = vec![0];
            for k in 0..rounds(nodes) {
                let now: Vec<u32> = (1..nodes).filter(|&r| round(r) == Some(k)).collect();
                let parents: Vec<u32> = now.iter().filter_map(|&r| parent(r)).collect();
                assert!(parents.iter().all(|p| reached.contains(p)), "a parent knows its own clock first");
                let mut apart = parents.clone();
                apart.dedup();
                assert_eq!(apart.len(), now.len(), "no parent has two children in a round");
                for (&r, &p) in now.iter().zip(&parents) {
                    assert!(children(p, nodes).contains(&r));
                    assert_eq!(depth(r), depth(p) + 1);
                }
                reached.extend(now);
            }
            assert_eq!(reached.len() as u32, nodes);
            assert_eq!(subtree(0, nodes), (0..nodes).collect::<Vec<_>>());
        }
        assert_eq!((rounds(1), rounds(2), rounds(5), rounds(16_384)), (0, 1, 3, 14));
        assert_eq!(parent(0), None);
        assert_eq!(subtree(1, 8), [1, 3, 5, 7]);
        assert!(children(u32::MAX, u32::MAX).is_empty());
    }
}
