// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocation by shape, and fragmentation.

use serde::{Deserialize, Serialize};

use crate::{Block, Machine, ModelError, Shape};

/// The nodes that a job or a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// A block of this shape, in any orientation; as given is tried first.
    Shape(Shape),
    /// A block of at least this many nodes: the smallest that is free, of those the one whose sides differ least.
    Nodes(u32),
}

/// The free nodes of a machine, in cells of 2x2x2: the nodes around one I/O node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeMap {
    machine: Machine,
    /// Cells along x, y and z.
    cells: [u32; 3],
    used: Vec<bool>,
    /// Used cells with smaller coordinates than each corner of a cell, so that any box is counted in eight look-ups.
    below: Vec<u32>,
}

/// The state of a machine's free nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fragmentation {
    /// Compute nodes of the machine.
    pub nodes: u32,
    /// Free compute nodes.
    pub free: u32,
    /// The largest block that can be allocated; `None` if no node is free.
    pub largest: Option<Shape>,
    /// The share of the free nodes that is outside the largest block: 0 if no node is free.
    pub fragmentation: f64,
}

impl FreeMap {
    /// All nodes of a machine.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        let cells = machine.shape().sides().map(|side| side / 2);
        let (count, corners) = (cells.iter().product::<u32>(), cells.iter().map(|n| n + 1).product::<u32>());
        Self { machine, cells, used: vec![false; count as usize], below: vec![0; corners as usize] }
    }

    /// The nodes of a machine without those of `blocks`.
    #[must_use]
    pub fn without<'a>(machine: Machine, blocks: impl IntoIterator<Item = &'a Block>) -> Self {
        let mut map = Self::new(machine);
        blocks.into_iter().for_each(|block| map.mark(block, true));
        map.count();
        map
    }

    /// Marks the nodes of a block as used; nodes outside the machine are ignored. Nodes that must not be allocated for
    /// another reason, such as a failed node card, are taken the same way.
    pub fn take(&mut self, block: &Block) {
        self.mark(block, true);
        self.count();
    }

    /// Marks the nodes of a block as free.
    pub fn release(&mut self, block: &Block) {
        self.mark(block, false);
        self.count();
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// Free compute nodes.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.machine.nodes() - 8 * self.used_cells([0; 3], self.cells)
    }

    /// Returns `true` if all nodes of a block are free.
    #[must_use]
    pub fn is_free(&self, block: &Block) -> bool {
        self.fits(block.origin(), block.shape().sides())
    }

    /// Refuses a request that no machine of this extent can grant, even if it is empty.
    ///
    /// # Errors
    /// [`ModelError::Nodes`], [`ModelError::Block`], or [`ModelError::Outside`].
    pub fn check(&self, request: Request) -> Result<(), ModelError> {
        let most = self.machine.nodes();
        match request {
            Request::Nodes(found) if found == 0 || found > most => Err(ModelError::Nodes { found, most }),
            Request::Nodes(_) => Ok(()),
            Request::Shape(shape) => {
                let mut tries = shape.orientations().into_iter().map(|s| Block::new(self.machine, [0; 3], s));
                let first = tries.next().unwrap_or(Ok(Block::whole(self.machine)));
                if first.is_ok() || tries.any(|b| b.is_ok()) { Ok(()) } else { first.map(drop) }
            }
        }
    }

    /// The first free block that fulfills a request: by orientation as given, then the others, and for each by location
    /// of the first node's midplane. `None` if there is none at present; [`FreeMap::check`] says whether there can be one.
    #[must_use]
    pub fn first_fit(&self, request: Request) -> Option<Block> {
        match request {
            Request::Shape(shape) => self.first_of(shape),
            Request::Nodes(0) => None,
            Request::Nodes(nodes) => {
                self.shapes().into_iter().filter(|s| s.nodes() >= nodes).find_map(|s| self.first_of(s))
            }
        }
    }

    /// The largest free block, and how much of the free nodes is outside of it.
    #[must_use]
    pub fn fragmentation(&self) -> Fragmentation {
        let (nodes, free) = (self.machine.nodes(), self.free());
        let mut shapes = self.shapes();
        shapes.sort_by_key(|shape| std::cmp::Reverse(shape.nodes()));
        let mut fitting = shapes.into_iter().filter(|s| s.nodes() <= free);
        let largest = fitting.find_map(|s| self.first_of(s)).map(Block::shape);
        let fragmentation =
            largest.map_or(0.0, |shape| 1.0 - f64::from(shape.nodes()) / f64::from(free.max(1)));
        Fragmentation { nodes, free, largest, fragmentation }
    }

    /// Shapes of possible blocks, each in one orientation, by nodes, then by how much their sides differ.
    fn shapes(&self) -> Vec<Shape> {
        let small = [2, 4, 8];
        let large: Vec<u32> = self.machine.shape().sides().iter().map(|s| s / 8).collect();
        let most = large.iter().copied().max().unwrap_or(0);
        let nodes = self.machine.nodes();
        let mut all: Vec<Shape> = boxes(&small, nodes).collect();
        all.extend(boxes(&(1..=most).map(|n| 8 * n).collect::<Vec<_>>(), nodes));
        all.sort_unstable_by_key(|shape| (shape.nodes(), shape.sorted()));
        all.dedup();
        all
    }

    fn first_of(&self, shape: Shape) -> Option<Block> {
        shape.orientations().into_iter().find_map(|turned| self.first_at(turned))
    }

    fn first_at(&self, shape: Shape) -> Option<Block> {
        let sides = shape.sides();
        let inside = shape.is_within_midplane();
        (0..self.machine.midplanes()).map(|n| self.machine.midplane_origin(n)).find_map(|[x, y, z]| {
            let ways = |axis: usize| if inside { 8 / sides[axis] } else { 1 };
            let tries = (0..ways(2)).flat_map(|c| (0..ways(1)).map(move |b| (b, c)));
            let mut tries = tries.flat_map(|(b, c)| (0..ways(0)).map(move |a| [a, b, c]));
            tries.find_map(|[a, b, c]| {
                let origin = [x + a * sides[0], y + b * sides[1], z + c * sides[2]];
                self.fits(origin, sides).then(|| Block::new(self.machine, origin, shape).ok())?
            })
        })
    }

    /// Returns `true` if a box is inside the machine and free.
    fn fits(&self, origin: [u32; 3], sides: [u32; 3]) -> bool {
        let ends = [0, 1, 2].map(|axis: usize| origin[axis] + sides[axis]);
        let inside = ends.iter().zip(self.machine.shape().sides()).all(|(&end, side)| end <= side);
        inside && self.used_cells(origin.map(|at| at / 2), ends.map(|at| at.div_ceil(2))) == 0
    }

    fn mark(&mut self, block: &Block, used: bool) {
        let [nx, ny, _] = self.cells;
        let first = block.origin().map(|at| at / 2);
        let end =
            [0, 1, 2].map(|a: usize| (first[a] + block.shape().sides()[a].div_ceil(2)).min(self.cells[a]));
        for z in first[2]..end[2] {
            for y in first[1]..end[1] {
                for x in first[0]..end[0] {
                    self.used[(x + nx * (y + ny * z)) as usize] = used;
                }
            }
        }
    }

    /// Index of a corner in `below`.
    const fn corner(&self, [x, y, z]: [u32; 3]) -> usize {
        let [nx, ny, _] = self.cells;
        (x + (nx + 1) * (y + (ny + 1) * z)) as usize
    }

    fn count(&mut self) {
        let [nx, ny, nz] = self.cells;
        for z in 1..=nz {
            for y in 1..=ny {
                let mut row = 0;
                for x in 1..=nx {
                    row += u32::from(self.used[(x - 1 + nx * (y - 1 + ny * (z - 1))) as usize]);
                    let at = |y, z| self.below[self.corner([x, y, z])];
                    let value = row + at(y - 1, z) + at(y, z - 1) - at(y - 1, z - 1);
                    let to = self.corner([x, y, z]);
                    self.below[to] = value;
                }
            }
        }
    }

    fn used_cells(&self, a: [u32; 3], b: [u32; 3]) -> u32 {
        let at = |x: u32, y: u32, z: u32| i64::from(self.below[self.corner([x, y, z])]);
        let plane = |z: u32| at(b[0], b[1], z) - at(a[0], b[1], z) - at(b[0], a[1], z) + at(a[0], a[1], z);
        u32::try_from(plane(b[2]) - plane(a[2])).unwrap_or(0)
    }
}

/// Boxes of at most `nodes` nodes with these sides (ascending), longest along x.
fn boxes(sides: &[u32], nodes: u32) -> impl Iterator<Item = Shape> {
    let pairs = sides.iter().flat_map(move |&x| {
        let shorter = sides.iter().take_while(move |&&y| y <= x && x * y * 2 <= nodes);
        shorter.map(move |&y| (x, y))
    });
    let all = pairs.flat_map(move |(x, y)| {
        let shorter = sides.iter().take_while(move |&&z| z <= y && x * y * z <= nodes);
        shorter.map(move |&z| [x, y, z])
    });
    all.filter_map(|s| Shape::new(s).ok())
}
