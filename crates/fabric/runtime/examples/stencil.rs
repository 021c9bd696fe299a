// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jacobi iterations of a 7-point stencil on a cube of blocks: `stencil [CELLS [BLOCKS [ITERATIONS [PERIOD]]]]`. Each block
//! is an object that sends its faces to its neighbours, and calls `at_sync` every PERIOD iterations. Prints the sum of all
//! cells and that of their squares, which no number of PEs changes.

use std::process::ExitCode;
use std::time::SystemTime;

use colony_runtime::{Bulk, Context, Entry, Object, Op, Options, Program, Reduced, Values};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Size {
    /// Cells of an edge of the cube, and blocks.
    cells: usize,
    blocks: usize,
    iterations: u32,
    /// Iterations between two calls of `at_sync`; 0 is never.
    period: u32,
}

/// A block of `n`³ cells.
#[derive(Serialize, Deserialize)]
struct Block {
    size: Size,
    n: usize,
    cells: Bulk<f64>,
    iteration: u32,
    /// Faces that have arrived, of this iteration and of the next.
    faces: Vec<Face>,
    waits: bool,
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

/// The cells at the six sides of a block.
type Sides = [Vec<f64>; 6];

/// Adds the cells of plane `x` of `n` that are at sides, while the plane is in the cache.
fn add_plane([low_x, high_x, low_y, high_y, low_z, high_z]: &mut Sides, x: usize, n: usize, plane: &[f64]) {
    for (_, side) in [(0, low_x), (n - 1, high_x)].into_iter().filter(|(at, _)| *at == x) {
        side.extend_from_slice(plane);
    }
    low_y.extend_from_slice(&plane[..n]);
    high_y.extend_from_slice(&plane[(n - 1) * n..]);
    low_z.extend(plane.chunks_exact(n).map(|row| row[0]));
    high_z.extend(plane.chunks_exact(n).map(|row| row[n - 1]));
}

/// Replaces the cells of a row. `row` has the old cells with a neighbour at each end; `w` and `s` are replaced by them.
#[inline(never)] // the compiler knows of arguments that they do not overlap
fn replace_row(new: &mut [f64], row: &[f64], w: &mut [f64], e: &[f64], s: &mut [f64], t: &[f64]) {
    let n = new.len();
    let (c, d, u) = (&row[1..=n], &row[..n], &row[2..][..n]);
    let (w, e, s, t) = (&mut w[..n], &e[..n], &mut s[..n], &t[..n]);
    for i in 0..n {
        new[i] = (c[i] + w[i] + e[i] + s[i] + t[i] + d[i] + u[i]) / 7.0;
        (w[i], s[i]) = (c[i], c[i]);
    }
}

impl Block {
    fn send_faces(&self, sides: Sides, cx: &mut Context<'_, Self>) {
        for (side, cells) in sides.into_iter().enumerate() {
            let (blocks, mut index) = (self.size.blocks as i32, cx.index());
            index[side / 2] = (index[side / 2] + if side % 2 == 0 { blocks - 1 } else { 1 }) % blocks;
            let face = Face { iteration: self.iteration, side: side ^ 1, cells: Bulk(cells) };
            cx.send(cx.array().at(index), face);
        }
    }

    fn no_sides(&self) -> Sides {
        std::array::from_fn(|_| Vec::with_capacity(self.n * self.n))
    }

    /// Replaces the cells row by row. Old cells that are still needed are kept: a plane (`west`), a row (`south`), and the
    /// row itself with the neighbours' cells at its ends. Returns the new cells at the sides.
    fn compute(&mut self, faces: [&[f64]; 6]) -> Sides {
        let (n, mut sides) = (self.n, self.no_sides());
        let (mut west, mut south, mut row) = (faces[0].to_vec(), vec![0.0; n], vec![0.0; n + 2]);
        for x in 0..n {
            let (plane, rest) = self.cells[x * n * n..].split_at_mut(n * n);
            let east = if rest.is_empty() { faces[1] } else { &*rest };
            let [low_y, high_y, low_z, high_z] = [2, 3, 4, 5].map(|side: usize| &faces[side][x * n..][..n]);
            south.copy_from_slice(low_y);
            for y in 0..n {
                let (new, after) = plane[y * n..].split_at_mut(n);
                row[1..=n].copy_from_slice(new);
                (row[0], row[n + 1]) = (low_z[y], high_z[y]);
                let t = if after.is_empty() { high_y } else { &after[..n] };
                replace_row(new, &row, &mut west[y * n..][..n], &east[y * n..][..n], &mut south, t);
            }
            add_plane(&mut sides, x, n, plane);
        }
        sides
    }

    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        while !self.waits && self.faces.iter().filter(|f| f.iteration == self.iteration).count() == 6 {
            let all = std::mem::take(&mut self.faces).into_iter();
            let (mut due, early): (Vec<_>, _) = all.partition(|f| f.iteration == self.iteration);
            self.faces = early;
            due.sort_unstable_by_key(|face| face.side);
            let sides = self.compute(std::array::from_fn(|side| due[side].cells.as_slice()));
            self.iteration += 1;
            if self.iteration == self.size.iterations {
                return self.report(cx);
            }
            self.send_faces(sides, cx);
            self.waits = self.size.period > 0 && self.iteration.is_multiple_of(self.size.period);
            if self.waits {
                cx.at_sync();
            }
        }
    }

    fn report(&self, cx: &mut Context<'_, Self>) {
        let to = cx.reply_to(cx.array().at([0, 0, 0]));
        let [sum, squares] = self.cells.iter().fold([0.0; 2], |[sum, squares], c| [sum + c, squares + c * c]);
        cx.contribute([sum, squares], Op::Gather, to);
    }
}

impl Object for Block {
    type Index = [i32; 3];
    type Init = Size;

    fn new(size: Size, cx: &mut Context<'_, Self>) -> Self {
        let n = size.cells / size.blocks;
        let [bx, by, bz] = cx.index().map(|i| i as usize * n);
        let mut cells = Vec::with_capacity(n.pow(3));
        for (x, y) in (1..=n).flat_map(|x| (1..=n).map(move |y| (bx + x, by + y))) {
            cells.extend((1..=n).map(|z| ((x * 7 + y * 5 + (bz + z) * 3) % 11) as f64));
        }
        Self { size, n, cells: Bulk(cells), iteration: 0, faces: Vec::new(), waits: true, began: None }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.waits = false;
        self.go_on(cx);
    }
}

impl Entry<Start> for Block {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        (self.began, self.waits) = (Some(SystemTime::now()), false);
        let mut sides = self.no_sides();
        for (x, plane) in self.cells.chunks_exact(self.n.pow(2)).enumerate() {
            add_plane(&mut sides, x, self.n, plane);
        }
        self.send_faces(sides, cx);
        self.go_on(cx);
    }
}

impl Entry<Face> for Block {
    fn call(&mut self, face: Face, cx: &mut Context<'_, Self>) {
        self.faces.push(face);
        self.go_on(cx);
    }
}

impl Entry<Reduced> for Block {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let Values::Gathered(all) = result.values else { return cx.exit(1) };
        let value = |at: usize| {
            move |(_, values): &(_, Values)| if let Values::F64(v) = values { v[at] } else { 0.0 }
        };
        let [sum, squares] = [0, 1].map(|at| all.iter().map(value(at)).sum::<f64>());
        println!("sum of all cells: {sum:.6}, of their squares: {squares:.6}");
        let elapsed = self.began.and_then(|began| began.elapsed().ok()).unwrap_or_default();
        eprintln!("{:.3} ms an iteration", elapsed.as_secs_f64() * 1e3 / f64::from(self.size.iterations));
        cx.exit(0);
    }
}

fn main() -> ExitCode {
    let words: Vec<usize> = std::env::args().skip(1).filter_map(|w| w.parse().ok()).collect();
    let word = |(at, default)| words.get(at).copied().unwrap_or(default);
    let [cells, blocks, steps, period] = [(0, 32), (1, 2), (2, 20), (3, 0)].map(word);
    if cells == 0 || blocks == 0 || steps == 0 || !cells.is_multiple_of(blocks) {
        eprintln!("error: {cells} cells are no multiple of {blocks} blocks; give CELLS BLOCKS ITERATIONS");
        return ExitCode::from(2);
    }
    let threads = std::env::var("THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let program = Program::new().class::<Block>(|c| c.entry::<Start>().entry::<Face>().entry::<Reduced>());
    let size = Size { cells, blocks, iterations: steps as u32, period: period as u32 };
    colony_runtime::main(program, &Options { threads, ..Options::default() }, move |cx| {
        let array = cx.create_array::<Block>(&[blocks as u32; 3], size);
        cx.broadcast(array, Start);
    })
}
