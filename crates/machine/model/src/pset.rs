// SPDX-License-Identifier: MIT OR Apache-2.0
//! Psets: the compute nodes that share an I/O node.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ModelError, Shape};

/// Compute nodes of a pset: 8, 16, 32, 64 or 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct PsetSize(u32);

impl PsetSize {
    /// All sizes, from the smallest.
    pub const ALL: [Self; 5] = [Self(8), Self(16), Self(32), Self(64), Self(128)];

    /// A size.
    ///
    /// # Errors
    /// [`ModelError::PsetSize`] for any other number.
    pub fn new(nodes: u32) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|size| size.0 == nodes).ok_or(ModelError::PsetSize { found: nodes })
    }

    /// Compute nodes of a pset.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.0
    }

    /// The largest size up to 64 of which a partition of `nodes` compute nodes has at least one.
    #[must_use]
    pub fn default_for(nodes: u32) -> Self {
        Self::ALL.into_iter().rev().find(|size| size.0 <= nodes.min(64)).unwrap_or(Self(8))
    }
}

impl fmt::Display for PsetSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<PsetSize> for u32 {
    fn from(size: PsetSize) -> Self {
        size.0
    }
}

impl TryFrom<u32> for PsetSize {
    type Error = ModelError;

    fn try_from(nodes: u32) -> Result<Self, ModelError> {
        Self::new(nodes)
    }
}

/// The psets of a block: boxes of one shape that cover it.
///
/// The shape is the box of the pset size with the smallest sum of torus hops over all pairs of its nodes
/// ([`Psets::pair_hops`]); of boxes that are equal in that, the one whose sides differ least, then the one that is
/// longest along x. Its sides are 2, 4 or 8, so a pset of 32 nodes is usually a node card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Psets {
    size: PsetSize,
    block: Shape,
    shape: Shape,
}

impl Psets {
    /// The psets of a block of this shape.
    ///
    /// # Errors
    /// [`ModelError::Block`] for a shape that no block has; [`ModelError::PsetTooLarge`] if the block has fewer nodes.
    pub fn new(block: Shape, size: PsetSize) -> Result<Self, ModelError> {
        if !block.is_midplanes() && !block.is_within_midplane() {
            return Err(ModelError::Block { shape: block.to_string() });
        }
        let shape = boxes(block, size.nodes())
            .min_by_key(|&shape| (pair_hops(block, shape), shape.sorted(), std::cmp::Reverse(shape.sides())));
        let too_large = || ModelError::PsetTooLarge {
            pset: size.nodes(),
            shape: block.to_string(),
            nodes: block.nodes(),
        };
        Ok(Self { size, block, shape: shape.ok_or_else(too_large)? })
    }

    /// Compute nodes of each pset.
    #[must_use]
    pub const fn size(self) -> PsetSize {
        self.size
    }

    /// Extent of each pset.
    #[must_use]
    pub const fn shape(self) -> Shape {
        self.shape
    }

    /// The number of psets, which is the number of I/O nodes.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.block.nodes() / self.size.0
    }

    /// Pset of compute node `node` of the block, and the node's rank in the pset. Psets, and nodes in a pset, are
    /// numbered along x first, then y, then z. `node` is taken modulo the number of nodes.
    #[must_use]
    pub fn place(self, node: u32) -> (u32, u32) {
        let at = self.block.coords(node);
        let side = self.shape.sides();
        let ([px, py, pz], [nx, ny, _]) = ([0, 1, 2].map(|a: usize| at[a] / side[a]), self.grid());
        (px + nx * (py + ny * pz), self.shape.number(at))
    }

    /// Number in the block of the compute node with rank `rank` in pset `pset`. Both are taken modulo their number.
    #[must_use]
    pub fn node(self, pset: u32, rank: u32) -> u32 {
        let [nx, ny, nz] = self.grid();
        let (corner, at) = ([pset % nx, pset / nx % ny, pset / (nx * ny) % nz], self.shape.coords(rank));
        self.block.number([0, 1, 2].map(|a: usize| corner[a] * self.shape.sides()[a] + at[a]))
    }

    /// The sum of torus hops over all pairs of nodes of one pset: the measure of topological nearness. All psets of a
    /// block have the same.
    #[must_use]
    pub fn pair_hops(self) -> u64 {
        pair_hops(self.block, self.shape)
    }

    /// The mean number of torus hops between two nodes of a pset.
    #[must_use]
    pub fn mean_hops(self) -> f64 {
        let nodes = f64::from(self.size.0);
        self.pair_hops() as f64 / (nodes * (nodes - 1.0) / 2.0)
    }

    /// Psets along x, y and z.
    fn grid(self) -> [u32; 3] {
        [0, 1, 2].map(|axis: usize| self.block.sides()[axis] / self.shape.sides()[axis])
    }
}

/// Boxes of `nodes` nodes with sides of 2, 4 and 8 that tile the block.
fn boxes(block: Shape, nodes: u32) -> impl Iterator<Item = Shape> {
    let sides = [2, 4, 8];
    let all = sides.into_iter().flat_map(move |x| sides.into_iter().map(move |y| [x, y, nodes / (x * y)]));
    all.filter(move |[x, y, z]| x * y * z == nodes && sides.contains(z))
        .filter(move |shape| shape.iter().zip(block.sides()).all(|(side, all)| all.is_multiple_of(*side)))
        .filter_map(|shape| Shape::new(shape).ok())
}

/// Sum of hops over all pairs of nodes of a box in a torus: along each axis, that of a line, once for each pair of rows.
fn pair_hops(torus: Shape, shape: Shape) -> u64 {
    let along = |axis: usize| {
        let (side, ring) = (shape.sides()[axis], torus.sides()[axis]);
        let line: u64 = (1..side).map(|apart| u64::from((side - apart) * apart.min(ring - apart))).sum();
        let rows = u64::from(shape.nodes() / side);
        line * rows * rows
    };
    (0..3).map(along).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shapes of blocks: all of one midplane, and some of several.
    pub(crate) fn blocks() -> impl Iterator<Item = Shape> {
        let small = [2, 4, 8];
        let some = [8, 16, 24, 40, 64];
        let all = |sides: &[u32]| -> Vec<[u32; 3]> {
            let pairs = sides.iter().flat_map(|&x| sides.iter().map(move |&y| (x, y)));
            pairs.flat_map(|(x, y)| sides.iter().map(move |&z| [x, y, z])).collect()
        };
        let sides = all(&small).into_iter().chain(all(&some));
        sides.filter_map(|s| Shape::new(s).ok()).filter(|s| s.nodes() <= 32_768)
    }

    #[test]
    fn psets_cover_every_block_and_never_overlap() {
        for (block, size) in blocks().flat_map(|b| PsetSize::ALL.map(|s| (b, s))) {
            let Ok(psets) = Psets::new(block, size) else {
                assert!(block.nodes() < size.nodes(), "{block} {size}");
                continue;
            };
            assert_eq!(psets.count() * size.nodes(), block.nodes());
            let mut seen = vec![false; block.nodes() as usize];
            for (pset, rank) in (0..psets.count()).flat_map(|p| (0..size.nodes()).map(move |r| (p, r))) {
                let node = psets.node(pset, rank);
                assert_eq!(psets.place(node), (pset, rank), "{block} {size}");
                assert!(!std::mem::replace(&mut seen[node as usize], true), "{block} {size} {node}");
            }
        }
    }

    /// Nodes numbered one after the other would be psets, too.
    #[test]
    fn no_pset_is_less_compact_than_any_of_the_linear_order() {
        let sum = |block: Shape, nodes: &[u32]| -> u64 {
            let at: Vec<_> = nodes.iter().map(|&n| block.coords(n)).collect();
            let hops = |i: usize| at[..i].iter().map(move |&a| (a, i));
            (0..at.len()).flat_map(hops).map(|(a, i)| u64::from(block.hops(a, at[i]))).sum()
        };
        for (block, size) in
            blocks().filter(|b| b.nodes() <= 4096).flat_map(|b| PsetSize::ALL.map(|s| (b, s)))
        {
            let Ok(psets) = Psets::new(block, size) else { continue };
            let own: Vec<u32> = (0..size.nodes()).map(|rank| psets.node(psets.count() - 1, rank)).collect();
            assert_eq!(sum(block, &own), psets.pair_hops(), "{block} {size}");
            for pset in 0..psets.count().min(24) {
                let linear: Vec<u32> = (pset * size.nodes()..(pset + 1) * size.nodes()).collect();
                assert!(psets.pair_hops() <= sum(block, &linear), "{block} {size} {pset}");
            }
        }
    }

    #[test]
    fn a_midplane_has_the_psets_of_its_node_cards() {
        let shape =
            |size| Psets::new(Shape::MIDPLANE, PsetSize::new(size).expect("a size")).expect("psets").shape();
        let all = [8, 16, 32, 64, 128].map(|size| shape(size).to_string());
        assert_eq!(all, ["2x2x2", "4x2x2", "4x4x2", "4x4x4", "8x4x4"]);
        assert_eq!(shape(32), Shape::NODE_CARD);
    }

    #[test]
    fn other_sizes_and_psets_larger_than_the_block_are_refused() {
        for size in [0, 1, 7, 12, 256, u32::MAX] {
            assert_eq!(PsetSize::new(size), Err(ModelError::PsetSize { found: size }));
        }
        let small = Shape::new([2, 2, 2]).expect("a shape");
        assert!(Psets::new(small, PsetSize(8)).is_ok());
        assert!(matches!(Psets::new(small, PsetSize(16)), Err(ModelError::PsetTooLarge { .. })));
        assert_eq!([8, 16, 40, 512].map(|n| PsetSize::default_for(n).nodes()), [8, 16, 32, 64]);
    }
}
