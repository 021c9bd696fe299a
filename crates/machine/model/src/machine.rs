// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine: where each node is.

use serde::{Deserialize, Serialize};

use crate::{Kind, Location, ModelError, Shape};

/// A machine: whole midplanes, or a small one that is a block of one midplane.
///
/// Midplanes are numbered along z first, then y, then x, and fill the racks in that order, two a rack. Racks stand in
/// rows of 8 up to 64 racks and in rows of 16 above, so 64x32x32 nodes stand in `R00` to `R77`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Shape", try_from = "Shape")]
pub struct Machine {
    shape: Shape,
}

impl Machine {
    /// A machine of this extent.
    ///
    /// # Errors
    /// [`ModelError::Machine`] unless all sides are multiples of 8, or all are 2, 4 or 8.
    pub fn new(shape: Shape) -> Result<Self, ModelError> {
        if shape.is_midplanes() || shape.is_within_midplane() {
            Ok(Self { shape })
        } else {
            Err(ModelError::Machine { shape: shape.to_string() })
        }
    }

    /// Its extent in compute nodes.
    #[must_use]
    pub const fn shape(self) -> Shape {
        self.shape
    }

    /// Its compute nodes.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.shape.nodes()
    }

    /// Its extent in midplanes; one for a small machine.
    #[must_use]
    pub fn midplane_sides(self) -> [u32; 3] {
        self.shape.sides().map(|side| side.div_ceil(8))
    }

    /// Its midplanes: 1 to 512.
    #[must_use]
    pub fn midplanes(self) -> u32 {
        self.midplane_sides().iter().product()
    }

    /// Its racks: 1 to 256.
    #[must_use]
    pub fn racks(self) -> u32 {
        self.midplanes().div_ceil(2)
    }

    /// Its node cards; those of a small machine may be partly used.
    #[must_use]
    pub fn node_cards(self) -> u32 {
        let sides = self.shape.sides();
        (0..3).map(|axis| sides[axis].div_ceil(Shape::NODE_CARD.sides()[axis])).product()
    }

    /// Its I/O nodes if every pset has 8 compute nodes: one for each 2x2x2 compute nodes.
    #[must_use]
    pub const fn io_nodes(self) -> u32 {
        self.shape.nodes() / 8
    }

    /// Returns `true` if a node is at `coords`.
    #[must_use]
    pub fn contains(self, coords: [u32; 3]) -> bool {
        coords.iter().zip(self.shape.sides()).all(|(&at, side)| at < side)
    }

    /// Location of midplane `number`, which is taken modulo the number of midplanes.
    #[must_use]
    pub fn midplane_location(self, number: u32) -> Location {
        self.part(Kind::Midplane, number % self.midplanes(), 0, 0)
    }

    /// Number of the midplane of the compute node at `coords`; each coordinate is taken modulo its side.
    #[must_use]
    pub fn midplane_of(self, coords: [u32; 3]) -> u32 {
        let [x, y, z] = self.inside(coords).map(|at| at / 8);
        let [_, ny, nz] = self.midplane_sides();
        z + nz * (y + ny * x)
    }

    /// Coordinates of the first node of midplane `number`, which is taken modulo the number of midplanes.
    #[must_use]
    pub fn midplane_origin(self, number: u32) -> [u32; 3] {
        let [nx, ny, nz] = self.midplane_sides();
        [number / (ny * nz) % nx, number / nz % ny, number % nz].map(|at| at * 8)
    }

    /// Location of the compute node at `coords`; each coordinate is taken modulo its side.
    #[must_use]
    pub fn compute_location(self, coords: [u32; 3]) -> Location {
        let (card, [x, y, z]) = self.on_card(coords);
        self.part(Kind::Compute, self.midplane_of(coords), card, x + 4 * (y + 4 * z))
    }

    /// Location of the I/O node that belongs to the 2x2x2 compute nodes around `coords`; each coordinate is taken
    /// modulo its side. A pset is served by the I/O node of its first compute node, so the I/O nodes of two
    /// partitions are never the same.
    #[must_use]
    pub fn io_location(self, coords: [u32; 3]) -> Location {
        let (card, [x, y, _]) = self.on_card(coords);
        self.part(Kind::Io, self.midplane_of(coords), card, x / 2 + 2 * (y / 2))
    }

    /// Coordinates of a compute node, or of the first of the eight compute nodes around an I/O node, or of the first
    /// node of a node card, midplane or rack.
    ///
    /// # Errors
    /// [`ModelError::NoSuchLocation`] if the machine does not have the part, and for the service node, which has no
    /// coordinates.
    pub fn coords(self, location: Location) -> Result<[u32; 3], ModelError> {
        let absent =
            || ModelError::NoSuchLocation { location: location.to_string(), machine: self.shape.to_string() };
        let slot = u32::from(location.slot());
        let [x, y, z] = match location.kind() {
            Kind::Service => return Err(absent()),
            Kind::Rack | Kind::Midplane | Kind::NodeCard => [0, 0, 0],
            Kind::Compute => [slot % 4, slot / 4 % 4, slot / 16],
            Kind::Io => [slot % 2 * 2, slot / 2 * 2, 0],
        };
        let (row, column) = (u32::from(location.rack() / 16), u32::from(location.rack() % 16));
        let midplane = 2 * (row * self.racks_in_row() + column) + u32::from(location.midplane());
        if column >= self.racks_in_row() || midplane >= self.midplanes() {
            return Err(absent());
        }
        let origin = self.midplane_origin(midplane);
        let card = u32::from(location.card());
        let coords =
            [origin[0] + card % 2 * 4 + x, origin[1] + card / 2 % 2 * 4 + y, origin[2] + card / 4 * 2 + z];
        if self.contains(coords) { Ok(coords) } else { Err(absent()) }
    }

    /// Number of an I/O node in the machine, from 0: what its addresses are made of.
    ///
    /// # Errors
    /// [`ModelError::NoSuchLocation`] if the machine has no such I/O node.
    pub fn io_number(self, location: Location) -> Result<u32, ModelError> {
        let [x, y, z] = self.coords(location)?.map(|at| at / 2);
        let [nx, ny, _] = self.shape.sides().map(|side| side / 2);
        Ok(x + nx * (y + ny * z))
    }

    fn racks_in_row(self) -> u32 {
        if self.racks() <= 64 { 8 } else { 16 }
    }

    /// Node card in the midplane, and coordinates on it.
    fn on_card(self, coords: [u32; 3]) -> (u32, [u32; 3]) {
        let [x, y, z] = self.inside(coords).map(|at| at % 8);
        (x / 4 + 2 * (y / 4 + 2 * (z / 2)), [x % 4, y % 4, z % 2])
    }

    fn inside(self, coords: [u32; 3]) -> [u32; 3] {
        let sides = self.shape.sides();
        [coords[0] % sides[0], coords[1] % sides[1], coords[2] % sides[2]]
    }

    /// A part of midplane number `midplane`. The numbers are in range: a machine has at most 512 midplanes.
    fn part(self, kind: Kind, midplane: u32, card: u32, slot: u32) -> Location {
        let (row, column) = (midplane / 2 / self.racks_in_row(), midplane / 2 % self.racks_in_row());
        let [rack, midplane, card, slot] = [row * 16 + column, midplane % 2, card, slot].map(|n| n as u8);
        Location::new(kind, rack, midplane, card, slot).unwrap_or(Location::SERVICE)
    }
}

impl From<Machine> for Shape {
    fn from(machine: Machine) -> Self {
        machine.shape
    }
}

impl TryFrom<Shape> for Machine {
    type Error = ModelError;

    fn try_from(shape: Shape) -> Result<Self, ModelError> {
        Self::new(shape)
    }
}
