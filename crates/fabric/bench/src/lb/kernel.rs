// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects' state and work in both programs.
//!
//! * The Lb test: fixed loads. The objects of the first quarter of the rows have eight times the work of the others, so the
//!   first PEs have most of it until objects migrate.
//! * The stencil: blocks of a periodic domain. A hot spot travels once around the mesh along its diagonal; a block does
//!   more sub-steps the nearer it is, so the load moves from PE to PE.

use colony_runtime::Bulk;
use serde::{Deserialize, Serialize};

use super::mesh::{Edges, Side, mix};
use super::stencil::Block;

/// A program of objects on a two-dimensional mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Objects with fixed, unequal loads
    LbTest,
    /// A stencil with a hot spot that travels over the mesh
    Stencil,
}

impl Program {
    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LbTest => "lb-test",
            Self::Stencil => "stencil",
        }
    }
}

/// Times the work of the heavy objects of the Lb test is that of the others.
const HEAVY: u64 = 8;
/// Sub-steps that every block of the stencil does in an iteration.
const COLD: u32 = 2;
/// Sub-steps that the block at the hot spot does beside them.
const HOT: f64 = 30.0;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) program: Program,
    pub(super) strategy: String,
    pub(super) threads: u32,
    pub(super) mesh: u32,
    pub(super) bytes: u64,
    pub(super) work: u64,
    pub(super) iterations: u32,
    pub(super) period: u32,
    pub(super) seed: u64,
}

/// The state of an object.
#[derive(Serialize, Deserialize)]
pub(super) enum Kernel {
    LbTest { state: Bulk<u64>, value: u64, operations: u64 },
    Stencil(Block),
}

impl Kernel {
    pub(super) fn new(setup: &Setup, [row, column]: [i32; 2]) -> Self {
        let place = mix(mix(setup.seed, row as u64), column as u64);
        let words = setup.bytes.div_ceil(8);
        match setup.program {
            Program::LbTest => Self::LbTest {
                state: (0..words).map(|word| mix(place, word)).collect::<Vec<_>>().into(),
                value: place,
                operations: operations(setup, [row, column]),
            },
            Program::Stencil => Self::Stencil(Block::new(words as usize, place)),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        8 * match self {
            Self::LbTest { state, .. } => state.len() as u64,
            Self::Stencil(block) => block.words(),
        }
    }

    /// The values that the neighbour on a side needs.
    pub(super) fn edge(&self, side: Side) -> Vec<f64> {
        match self {
            // any bits are a value that is only ever copied
            Self::LbTest { value, .. } => vec![f64::from_bits(*value)],
            Self::Stencil(block) => block.edge(side),
        }
    }

    /// The work of an iteration.
    pub(super) fn work(&mut self, edges: &Edges, iteration: u32, setup: &Setup, at: [i32; 2]) {
        match self {
            Self::LbTest { state, value, operations } => {
                let sum = edges.iter().flatten().map(|v| v.to_bits()).fold(0, u64::wrapping_add);
                *value = (0..*operations).fold(mix(*value, sum), mix);
                let place = iteration as usize % state.len();
                state[place] ^= *value;
            }
            Self::Stencil(block) => block.advance(edges, sub_steps(setup, iteration, at)),
        }
    }

    /// A number that depends on every byte of state.
    pub(super) fn checksum(&self) -> u64 {
        match self {
            Self::LbTest { state, value, .. } => state.iter().fold(*value, |sum, word| mix(sum, *word)),
            Self::Stencil(block) => block.checksum(),
        }
    }
}

/// Arithmetic operations of an object of the Lb test in every iteration.
fn operations(setup: &Setup, [row, column]: [i32; 2]) -> u64 {
    let is_heavy = row as u32 * 4 < setup.mesh;
    let factor = 1 + mix(mix(setup.seed, row as u64), column as u64) % 4;
    setup.work * factor * if is_heavy { HEAVY } else { 1 }
}

/// The distance of two places on a ring of this length.
fn around(a: f64, b: f64, length: f64) -> f64 {
    let apart = (a - b).abs() % length;
    apart.min(length - apart)
}

/// Sub-steps of a block of the stencil in an iteration. The hot spot begins a quarter of the mesh from its corner.
fn sub_steps(setup: &Setup, iteration: u32, at: [i32; 2]) -> u32 {
    let mesh = f64::from(setup.mesh);
    let hot = mesh * (0.25 + f64::from(iteration) / f64::from(setup.iterations));
    let [down, right] = at.map(|x| around(f64::from(x) + 0.5, hot, mesh));
    let near = 1.0 - (down * down + right * right).sqrt() / (mesh * 0.375);
    COLD + (HOT * near.max(0.0)) as u32
}

#[cfg(test)]
mod tests {
    use super::super::params::tests::small;
    use super::*;

    fn setup(program: Program) -> Setup {
        let mut setup = small().setup(program, "none");
        (setup.mesh, setup.iterations) = (8, 80);
        setup
    }

    fn mesh() -> impl Iterator<Item = [i32; 2]> {
        (0..8).flat_map(|row| (0..8).map(move |column| [row, column]))
    }

    #[test]
    fn the_first_rows_of_the_lb_test_have_most_of_the_work() {
        let setup = setup(Program::LbTest);
        let work = |rows: std::ops::Range<i32>| {
            mesh().filter(|[row, _]| rows.contains(row)).map(|at| operations(&setup, at)).sum::<u64>()
        };
        assert!(work(0..2) > work(2..8), "{} and {}", work(0..2), work(2..8));
        let other = Setup { seed: 2, ..setup.clone() };
        assert!(mesh().any(|at| operations(&setup, at) != operations(&other, at)), "the seed matters");
    }

    #[test]
    fn the_hot_spot_goes_from_half_to_half_and_comes_back() {
        let setup = setup(Program::Stencil);
        let half = |iteration, first: i32| -> u32 {
            mesh()
                .filter(|[row, _]| (first..first + 4).contains(row))
                .map(|at| sub_steps(&setup, iteration, at))
                .sum()
        };
        for (iteration, heavy, light) in [(0, 0, 4), (40, 4, 0), (80, 0, 4)] {
            let (heavy, light) = (half(iteration, heavy), half(iteration, light));
            assert!(heavy > 2 * light, "iteration {iteration}: {heavy} and {light}");
        }
        let all = |iteration| half(iteration, 0) + half(iteration, 4);
        let totals: Vec<u32> = (0..80).map(all).collect();
        let (least, most) = (totals.iter().min().expect("some"), totals.iter().max().expect("some"));
        assert!(most - least < least / 4, "the whole load stays about the same: {least} to {most}");
        assert!(mesh().all(|at| (2..=32).contains(&sub_steps(&setup, 7, at))));
    }

    #[test]
    fn state_survives_packing_bit_for_bit() {
        for program in [Program::LbTest, Program::Stencil] {
            let setup = setup(program);
            let mut kernel = Kernel::new(&setup, [1, 2]);
            let edges = Side::ALL.map(|side| kernel.edge(side));
            kernel.work(&edges, 0, &setup, [1, 2]);
            let text = serde_json::to_string(&kernel).expect("packs");
            let mut again: Kernel = serde_json::from_str(&text).expect("unpacks");
            assert_eq!((kernel.checksum(), kernel.bytes()), (again.checksum(), 512));
            for k in [&mut kernel, &mut again] {
                k.work(&edges, 1, &setup, [1, 2]);
            }
            assert_eq!(kernel.checksum(), again.checksum());
        }
    }

    #[test]
    fn every_byte_of_state_is_in_the_checksum() {
        let kernel = |word: usize| {
            let mut kernel = Kernel::new(&setup(Program::LbTest), [0, 0]);
            if let Kernel::LbTest { state, .. } = &mut kernel {
                state[word] ^= 1;
            }
            kernel.checksum()
        };
        let all: std::collections::BTreeSet<u64> = (0..64).map(kernel).collect();
        assert_eq!(all.len(), 64);
    }
}
