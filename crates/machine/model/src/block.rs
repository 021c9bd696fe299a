// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks: the nodes that a partition may consist of.

use serde::Serialize;

use crate::shape::text;
use crate::{Machine, ModelError, Shape};

/// A box of compute nodes: whole midplanes, or a part of one midplane on the grid of its own sides.
///
/// Blocks do not wrap around the machine. The torus of a partition is closed inside its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Block {
    origin: [u32; 3],
    shape: Shape,
}

impl Block {
    /// The block of `shape` whose first node is at `origin`.
    ///
    /// # Errors
    /// [`ModelError::Block`] for a shape that is neither whole midplanes nor sides of 2, 4 and 8;
    /// [`ModelError::Alignment`] and [`ModelError::Outside`] for an origin where the shape cannot be.
    pub fn new(machine: Machine, origin: [u32; 3], shape: Shape) -> Result<Self, ModelError> {
        let (name, at) = (|| shape.to_string(), || text(origin).replace('x', ","));
        if !shape.is_midplanes() && !shape.is_within_midplane() {
            return Err(ModelError::Block { shape: name() });
        }
        for (axis, side) in shape.sides().into_iter().enumerate() {
            let step = side.min(8);
            if !origin[axis].is_multiple_of(step) {
                let axis = ['x', 'y', 'z'][axis];
                return Err(ModelError::Alignment { shape: name(), origin: at(), axis, step });
            }
        }
        let most = machine.shape().sides();
        let ends =
            |axis: usize| origin[axis].checked_add(shape.sides()[axis]).filter(|&end| end <= most[axis]);
        if (0..3).any(|axis| ends(axis).is_none()) {
            let machine = machine.shape().to_string();
            return Err(ModelError::Outside { shape: name(), origin: at(), machine });
        }
        Ok(Self { origin, shape })
    }

    /// All nodes of a machine.
    #[must_use]
    pub const fn whole(machine: Machine) -> Self {
        Self { origin: [0; 3], shape: machine.shape() }
    }

    /// Coordinates of its first node in the machine.
    #[must_use]
    pub const fn origin(self) -> [u32; 3] {
        self.origin
    }

    /// Its extent.
    #[must_use]
    pub const fn shape(self) -> Shape {
        self.shape
    }

    /// Returns `true` if the node at `coords` of the machine belongs to it.
    #[must_use]
    pub fn contains(self, coords: [u32; 3]) -> bool {
        (0..3).all(|axis| {
            coords[axis].checked_sub(self.origin[axis]).is_some_and(|at| at < self.shape.sides()[axis])
        })
    }

    /// Coordinates of the first node that both blocks have.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<[u32; 3]> {
        let first = [0, 1, 2].map(|axis: usize| self.origin[axis].max(other.origin[axis]));
        (self.contains(first) && other.contains(first)).then_some(first)
    }

    /// The name that a partition of this block has by default: `R00-M0` for a midplane, otherwise the location of the
    /// first midplane or node and the shape (`R00-M0-16x8x8`, `R00-M0-N04-J00-4x4x2`).
    #[must_use]
    pub fn name(self, machine: Machine) -> String {
        let midplane = machine.midplane_location(machine.midplane_of(self.origin));
        match self.shape {
            Shape::MIDPLANE => midplane.to_string(),
            shape if shape.is_midplanes() => format!("{midplane}-{shape}"),
            shape => format!("{}-{shape}", machine.compute_location(self.origin)),
        }
    }
}
