// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts of nodes that have died.

use std::collections::BTreeMap;

/// Starts of one node until it counts as broken.
pub(super) const TRIES: u32 = 3;

/// Starts of the nodes that have been started more than once.
#[derive(Debug, Default)]
pub(super) struct Tries(BTreeMap<u32, u32>);

impl Tries {
    /// Returns `true` if a node has died too often.
    pub(super) fn is_broken(&self, node: u32) -> bool {
        self.0.get(&node).is_some_and(|failures| *failures >= TRIES)
    }

    /// Forgets the failures of a node.
    pub(super) fn forget(&mut self, node: u32) {
        self.0.remove(&node);
    }

    /// Counts one more failure. Returns `true` if the node is to be started again.
    pub(super) fn again(&mut self, node: u32) -> bool {
        let failures = self.0.entry(node).or_default();
        *failures += 1;
        *failures < TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_broken_after_three_failures() {
        let mut tries = Tries::default();
        assert!(tries.again(4) && tries.again(4));
        assert!(!tries.is_broken(4));
        assert!(!tries.again(4));
        assert!(tries.is_broken(4) && !tries.is_broken(5));
        tries.forget(4);
        assert!(!tries.is_broken(4));
    }
}
