// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jacobi iterations of a 7-point stencil on a cube of blocks: `stencil [CELLS [BLOCKS [ITERATIONS]]]`. Each block is
//! an object that sends its faces to its neighbours. Prints the sum of all cells and that of their squares, which no
//! number of PEs changes.

use std::process::ExitCode;
use std::time::SystemTime;

use colony_runtime::{Bulk, Context, Element, Entry, Object, Op, Options, Program, Reduced, Values};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Size {
    /// Cells of an edge of the cube, and blocks.
    cells: usize,
    blocks: usize,
    iterations: u32,
}

/// A block of `n`³ cells, with one layer of its neighbours' cells around it.
#[derive(Serialize, Deserialize)]
struct Block {
    size: Size,
    n: usize,
    cells: Bulk<f64>,
    iteration: u32,
    /// Faces that have arrived, of this iteration and of the next.
    faces: Vec<Face>,
    began: Option<SystemTime>,
}

#[derive(Serialize, Deserialize)]
struct Start;

/// The cells at a side of a block: side 2d is the low side of dimension d, 2d + 1 the high one.
#[derive(Serialize, Deserialize)]
struct Face {
    iteration: u32,
    side: usize,
    cells: Bulk<f64>,
}

impl Block {
    /// The distance in memory of neighbours in each dimension.
    fn steps(&self) -> [usize; 3] {
        [(self.n + 2) * (self.n + 2), self.n + 2, 1]
    }

    /// The layer at `depth` below a side: where its rows begin, and the step between cells of a row.
    fn layer(&self, side: usize, depth: usize) -> (impl Iterator<Item = usize> + use<>, usize) {
        let at = if side.is_multiple_of(2) { depth } else { self.n + 1 - depth };
        let [x, y, z] = self.steps();
        let (across, row, cell) = [(x, y, z), (y, x, z), (z, x, y)][side / 2];
        ((1..=self.n).map(move |a| at * across + a * row + cell), cell)
    }

    fn neighbour(&self, side: usize, cx: &Context<'_, Self>) -> Element<Self> {
        let mut index = cx.index();
        let blocks = self.size.blocks as i32;
        let step = if side.is_multiple_of(2) { blocks - 1 } else { 1 };
        index[side / 2] = (index[side / 2] + step) % blocks;
        cx.array().at(index)
    }

    fn send_faces(&self, cx: &mut Context<'_, Self>) {
        for side in 0..6 {
            let (rows, step) = self.layer(side, 1);
            let mut cells = Vec::with_capacity(self.n * self.n);
            rows.for_each(|row| cells.extend(self.cells[row..].iter().step_by(step).take(self.n)));
            let face = Face { iteration: self.iteration, side: side ^ 1, cells: Bulk(cells) };
            cx.send(self.neighbour(side, cx), face);
        }
    }

    fn take(&mut self, face: &Face) {
        let (rows, step) = self.layer(face.side, 0);
        for (row, values) in rows.zip(face.cells.chunks_exact(self.n)) {
            let cells = self.cells[row..].iter_mut().step_by(step);
            cells.zip(values).for_each(|(cell, value)| *cell = *value);
        }
    }

    /// Replaces the cells plane by plane, from copies of this plane and of the one before as they were.
    fn compute(&mut self) {
        let (n, [plane, line, _]) = (self.n, self.steps());
        let mut before = self.cells[..plane].to_vec();
        for x in 1..=n {
            let (new, after) = self.cells[x * plane..].split_at_mut(plane);
            let old = new.to_vec();
            for at in (1..=n).map(|y| y * line + 1) {
                let (c, w, e) = (&old[at..at + n], &before[at..at + n], &after[at..at + n]);
                let (s, t) = (&old[at - line..at - line + n], &old[at + line..at + line + n]);
                let (d, u) = (&old[at - 1..at - 1 + n], &old[at + 1..at + 1 + n]);
                for (i, cell) in new[at..at + n].iter_mut().enumerate() {
                    *cell = (c[i] + w[i] + e[i] + s[i] + t[i] + d[i] + u[i]) / 7.0;
                }
            }
            before = old;
        }
    }

    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        while self.faces.iter().filter(|f| f.iteration == self.iteration).count() == 6 {
            let all = std::mem::take(&mut self.faces).into_iter();
            let (due, early): (Vec<_>, _) = all.partition(|f| f.iteration == self.iteration);
            self.faces = early;
            due.iter().for_each(|face| self.take(face));
            self.compute();
            self.iteration += 1;
            if self.iteration == self.size.iterations {
                return self.report(cx);
            }
            self.send_faces(cx);
        }
    }

    fn report(&self, cx: &mut Context<'_, Self>) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for row in (1..=self.n).flat_map(|x| self.layer(0, x).0) {
            for cell in &self.cells[row..row + self.n] {
                sum += cell;
                squares += cell * cell;
            }
        }
        let to = cx.reply_to(cx.array().at([0, 0, 0]));
        cx.contribute([sum, squares], Op::Gather, to);
    }
}

impl Object for Block {
    type Index = [i32; 3];
    type Init = Size;

    fn new(size: Size, cx: &mut Context<'_, Self>) -> Self {
        let n = size.cells / size.blocks;
        let cells = Bulk(vec![0.0; (n + 2).pow(3)]);
        let mut block = Self { size, n, cells, iteration: 0, faces: Vec::new(), began: None };
        let [bx, by, bz] = cx.index().map(|i| i as usize * n);
        for x in 1..=n {
            for (y, row) in (1..=n).zip(block.layer(0, x).0) {
                for z in 1..=n {
                    let value = ((bx + x) * 7 + (by + y) * 5 + (bz + z) * 3) % 11;
                    block.cells[row + z - 1] = value as f64;
                }
            }
        }
        block
    }
}

impl Entry<Start> for Block {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        self.began = Some(SystemTime::now());
        self.send_faces(cx);
        self.go_on(cx);
    }
}

impl Entry<Face> for Block {
    fn call(&mut self, face: Face, cx: &mut Context<'_, Self>) {
        self.faces.push(face);
        if self.began.is_some() {
            self.go_on(cx);
        }
    }
}

impl Entry<Reduced> for Block {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let Values::Gathered(all) = result.values else { return cx.exit(1) };
        let mut sums = [0.0, 0.0];
        for (_, values) in &all {
            let Values::F64(values) = values else { return cx.exit(1) };
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        println!("sum of all cells: {:.6}, of their squares: {:.6}", sums[0], sums[1]);
        let elapsed = self.began.and_then(|began| began.elapsed().ok()).unwrap_or_default();
        eprintln!("{:.3} ms an iteration", elapsed.as_secs_f64() * 1e3 / f64::from(self.size.iterations));
        cx.exit(0);
    }
}

fn main() -> ExitCode {
    let words: Vec<usize> = std::env::args().skip(1).filter_map(|w| w.parse().ok()).collect();
    let [cells, blocks, steps] = std::array::from_fn(|i| words.get(i).copied().unwrap_or([32, 2, 20][i]));
    if cells == 0 || blocks == 0 || steps == 0 || !cells.is_multiple_of(blocks) {
        eprintln!("error: {cells} cells are no multiple of {blocks} blocks; give CELLS BLOCKS ITERATIONS");
        return ExitCode::from(2);
    }
    let threads = std::env::var("THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let program = Program::new().class::<Block>(|c| c.entry::<Start>().entry::<Face>().entry::<Reduced>());
    colony_runtime::main(program, &Options { threads, ..Options::default() }, move |cx| {
        let size = Size { cells, blocks, iterations: steps as u32 };
        let array = cx.create_array::<Block>(&[blocks as u32; 3], size);
        cx.broadcast(array, Start);
    })
}
