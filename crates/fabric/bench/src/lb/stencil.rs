// SPDX-License-Identifier: MIT OR Apache-2.0
//! A block of a five-point stencil.

use colony_runtime::Bulk;
use serde::{Deserialize, Serialize};

use super::mesh::{Edges, Side, mix};

/// Rows of cells. Words of state that fill no row stay as they are.
#[derive(Serialize, Deserialize)]
pub(super) struct Block {
    cells: Bulk<f64>,
    width: u32,
}

impl Block {
    /// A block of so many words, about a square, with values below 1 that depend on `seed`.
    pub(super) fn new(words: usize, seed: u64) -> Self {
        let value = |cell: u64| (mix(seed, cell) >> 11) as f64 / (1u64 << 53) as f64;
        let cells: Vec<f64> = (0..words as u64).map(value).collect();
        Self { cells: cells.into(), width: words.isqrt() as u32 }
    }

    pub(super) fn words(&self) -> u64 {
        self.cells.len() as u64
    }

    fn height(&self) -> usize {
        self.cells.len() / self.width as usize
    }

    /// The cells along a side.
    pub(super) fn edge(&self, side: Side) -> Vec<f64> {
        let (width, height) = (self.width as usize, self.height());
        let column = |at: usize| (0..height).map(|row| self.cells[row * width + at]).collect();
        match side {
            Side::Up => self.cells[..width].to_vec(),
            Side::Down => self.cells[(height - 1) * width..height * width].to_vec(),
            Side::Left => column(0),
            Side::Right => column(width - 1),
        }
    }

    /// Some Jacobi steps between the same neighbours.
    pub(super) fn advance(&mut self, edges: &Edges, steps: u32) {
        let [up, down, left, right] = edges;
        let width = self.width as usize;
        // old values of the row above, and of this one between those of its neighbours
        let (mut above, mut row) = (vec![0.0; width], vec![0.0; width + 2]);
        for _ in 0..steps {
            above.copy_from_slice(up);
            for at in 0..self.height() {
                row[0] = left[at];
                row[width + 1] = right[at];
                let (these, rest) = self.cells[at * width..].split_at_mut(width);
                row[1..=width].copy_from_slice(these);
                let below = if at + 1 < left.len() { &rest[..width] } else { &down[..] };
                for (i, cell) in these.iter_mut().enumerate() {
                    *cell = 0.2 * (row[i] + row[i + 1] + row[i + 2] + above[i] + below[i]);
                }
                above.copy_from_slice(&row[1..=width]);
            }
        }
    }

    pub(super) fn checksum(&self) -> u64 {
        self.cells.iter().fold(u64::from(self.width), |sum, cell| mix(sum, cell.to_bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(block: &Block) -> Edges {
        // the neighbours of a periodic domain of one block
        Side::ALL.map(|side| block.edge(side.opposite()))
    }

    #[test]
    fn a_step_is_the_mean_of_five_cells() {
        let mut block = Block { cells: (0..9).map(f64::from).collect::<Vec<_>>().into(), width: 3 };
        block.advance(&edges_of(&block), 1);
        assert!((block.cells[4] - 4.0).abs() < 1e-12, "the middle of 1, 3, 4, 5, 7");
        // 0 and its neighbours 6, 3, 2, 1
        assert!((block.cells[0] - 12.0 / 5.0).abs() < 1e-12);
        // 8 and its neighbours 5, 2, 7, 6
        assert!((block.cells[8] - 28.0 / 5.0).abs() < 1e-12);
    }

    #[test]
    fn the_sum_of_a_periodic_domain_stays_while_values_even_out() {
        let mut block = Block::new(400, 3);
        let sum = |b: &Block| b.cells.iter().sum::<f64>();
        let spread = |b: &Block| {
            let (least, most) = b.cells.iter().fold((1.0f64, 0.0f64), |(l, m), &c| (l.min(c), m.max(c)));
            most - least
        };
        let (before, first) = (sum(&block), spread(&block));
        for _ in 0..50 {
            let edges = edges_of(&block);
            block.advance(&edges, 1);
        }
        assert!((sum(&block) - before).abs() < 1e-9 * before);
        assert!(spread(&block) < first / 2.0);
    }

    #[test]
    fn blocks_of_any_size_work() {
        for words in 1..40 {
            let mut block = Block::new(words, 1);
            let edges = edges_of(&block);
            block.advance(&edges, 2);
            assert_eq!(block.words(), words as u64);
            assert!(block.cells.iter().all(|c| (0.0..1.0).contains(c)));
        }
    }
}
