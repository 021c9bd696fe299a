// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jacobi iterations of a 7-point stencil on a cube of blocks: `stencil [CELLS [BLOCKS [ITERATIONS]]]`. Each block is
//! an object that sends its faces to its neighbours. Prints the sum of all cells, which no number of PEs changes.

use std::process::ExitCode;

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
    now: Bulk<f64>,
    next: Bulk<f64>,
    iteration: u32,
    /// Faces that have arrived for this iteration, and those for the next.
    arrived: usize,
    early: Vec<Face>,
    began: Option<f64>,
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
    fn at(&self, x: usize, y: usize, z: usize) -> usize {
        (x * (self.n + 2) + y) * (self.n + 2) + z
    }

    /// The place of cell (a, b) of the layer at `depth` below a side.
    fn on_side(&self, side: usize, depth: usize, a: usize, b: usize) -> usize {
        let layer = if side.is_multiple_of(2) { depth } else { self.n + 1 - depth };
        match side / 2 {
            0 => self.at(layer, a, b),
            1 => self.at(a, layer, b),
            _ => self.at(a, b, layer),
        }
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
            let mut cells = Vec::with_capacity(self.n * self.n);
            for a in 1..=self.n {
                cells.extend((1..=self.n).map(|b| self.now[self.on_side(side, 1, a, b)]));
            }
            let face = Face { iteration: self.iteration, side: side ^ 1, cells: Bulk(cells) };
            cx.send(self.neighbour(side, cx), face);
        }
    }

    fn take(&mut self, face: &Face) {
        for a in 1..=self.n {
            for b in 1..=self.n {
                let at = self.on_side(face.side, 0, a, b);
                self.now[at] = face.cells[(a - 1) * self.n + b - 1];
            }
        }
        self.arrived += 1;
    }

    fn compute(&mut self) {
        let (n, plane, line) = (self.n, (self.n + 2) * (self.n + 2), self.n + 2);
        for x in 1..=n {
            for y in 1..=n {
                let start = self.at(x, y, 1);
                let next = &mut self.next[start..start + n];
                let old = |from: usize| &self.now[from..from + n];
                let (c, w, e, s, t, d, u) = (
                    old(start),
                    old(start - plane),
                    old(start + plane),
                    old(start - line),
                    old(start + line),
                    old(start - 1),
                    old(start + 1),
                );
                for i in 0..n {
                    next[i] = (c[i] + w[i] + e[i] + s[i] + t[i] + d[i] + u[i]) / 7.0;
                }
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        while self.arrived == 6 {
            self.compute();
            self.iteration += 1;
            self.arrived = 0;
            if self.iteration == self.size.iterations {
                return self.report(cx);
            }
            self.send_faces(cx);
            for face in std::mem::take(&mut self.early) {
                self.take(&face);
            }
        }
    }

    fn report(&self, cx: &mut Context<'_, Self>) {
        let mut sum = 0.0;
        for x in 1..=self.n {
            for y in 1..=self.n {
                sum += self.now[self.at(x, y, 1)..][..self.n].iter().sum::<f64>();
            }
        }
        let to = cx.reply_to(cx.array().at([0, 0, 0]));
        cx.contribute([sum], Op::Gather, to);
    }
}

impl Object for Block {
    type Index = [i32; 3];
    type Init = Size;

    fn new(size: Size, cx: &mut Context<'_, Self>) -> Self {
        let n = size.cells / size.blocks;
        let all = (n + 2).pow(3);
        let mut block = Self {
            size,
            n,
            now: Bulk(vec![0.0; all]),
            next: Bulk(vec![0.0; all]),
            iteration: 0,
            arrived: 0,
            early: Vec::new(),
            began: None,
        };
        let [bx, by, bz] = cx.index().map(|i| i as usize * n);
        for x in 1..=n {
            for y in 1..=n {
                for z in 1..=n {
                    let at = block.at(x, y, z);
                    block.now[at] = ((bx + x) * 7 + (by + y) * 5 + (bz + z) * 3).rem_euclid(11) as f64;
                }
            }
        }
        block
    }
}

impl Entry<Start> for Block {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        self.began = Some(seconds());
        self.send_faces(cx);
        self.go_on(cx);
    }
}

impl Entry<Face> for Block {
    fn call(&mut self, face: Face, cx: &mut Context<'_, Self>) {
        if face.iteration > self.iteration {
            return self.early.push(face);
        }
        self.take(&face);
        if self.began.is_some() {
            self.go_on(cx);
        }
    }
}

impl Entry<Reduced> for Block {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let Values::Gathered(all) = result.values else { return cx.exit(1) };
        let one = |values: &Values| if let Values::F64(v) = values { v[0] } else { 0.0 };
        let sum: f64 = all.iter().map(|(_, values)| one(values)).sum();
        println!("sum of all cells: {sum:.6}");
        let elapsed = seconds() - self.began.unwrap_or_default();
        eprintln!("{:.3} ms an iteration", elapsed * 1e3 / f64::from(self.size.iterations));
        cx.exit(0);
    }
}

fn seconds() -> f64 {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(std::time::Instant::now).elapsed().as_secs_f64()
}

fn main() -> ExitCode {
    let words: Vec<usize> = std::env::args().skip(1).filter_map(|w| w.parse().ok()).collect();
    let [cells, blocks, iterations] =
        std::array::from_fn(|i| words.get(i).copied().unwrap_or([32, 2, 20][i]));
    if cells == 0 || blocks == 0 || iterations == 0 || !cells.is_multiple_of(blocks) {
        eprintln!(
            "error: {cells} cells are no multiple of {blocks} blocks: stencil [CELLS [BLOCKS [ITERATIONS]]]"
        );
        return ExitCode::from(2);
    }
    let threads = std::env::var("THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let program = Program::new().class::<Block>(|c| c.entry::<Start>().entry::<Face>().entry::<Reduced>());
    colony_runtime::main(program, &Options { threads, ..Options::default() }, move |cx| {
        let extent = blocks as u32;
        let size = Size { cells, blocks, iterations: iterations as u32 };
        let array = cx.create_array::<Block>(&[extent, extent, extent], size);
        cx.broadcast(array, Start);
    })
}
