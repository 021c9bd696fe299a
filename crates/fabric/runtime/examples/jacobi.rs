// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jacobi iterations with threaded entry methods. A square of cells is 1 at its upper edge and 0 at the others. Each
//! strip of rows is an object; its whole run is one future, which waits for the neighbours' rows and for the reduction
//! that decides whether the iteration has converged.
//!
//! The result is the same, bit for bit, on any number of PEs: it depends on the numbers of cells and strips only.

mod support;

use std::process::ExitCode;

use colony_runtime::{Bulk, Context, Entry, Handle, Object, Op, Program, Reduced, Respond, Values};
use serde::{Deserialize, Serialize};
use support::arguments;

const USAGE: &str = "jacobi [--cells N] [--strips N] [--iterations N] [--tolerance X] [--threads N]";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    /// Cells along each side of the square.
    cells: u32,
    strips: u32,
    /// The most iterations, and the change of a cell at which they end.
    iterations: u32,
    tolerance: f64,
}

/// Rows of the square.
#[derive(Serialize, Deserialize)]
struct Strip {
    setup: Setup,
    rows: Vec<Bulk<f64>>,
    /// The first and the last row of this iteration and of the one before: a neighbour may be one iteration behind.
    edges: [[Bulk<f64>; 2]; 2],
    iteration: u32,
    /// Reductions that are complete, and the result of the last.
    known: u32,
    change: f64,
}

#[derive(Serialize, Deserialize)]
struct Start;

/// Asks for the row at an edge of a strip: 0 is the first, 1 the last.
#[derive(Serialize, Deserialize)]
struct Edge {
    iteration: u32,
    edge: usize,
}

impl Strip {
    fn keep_edges(&mut self) {
        let last = self.rows.len() - 1;
        self.edges[self.iteration as usize % 2] = [self.rows[0].clone(), self.rows[last].clone()];
    }

    /// One iteration between the rows above and below. Contributes the largest change of a cell.
    fn iterate(&mut self, above: &[f64], below: &[f64], cx: &mut Context<'_, Self>) {
        let mut change = 0.0f64;
        let old = &self.rows;
        let new: Vec<Bulk<f64>> = (0..old.len())
            .map(|y| {
                let up = if y == 0 { above } else { &old[y - 1] };
                let down = old.get(y + 1).map_or(below, |row| row);
                let row = &old[y];
                let cells = (0..row.len()).map(|x| {
                    let left = if x == 0 { 0.0 } else { row[x - 1] };
                    let right = row.get(x + 1).copied().unwrap_or(0.0);
                    let cell = (up[x] + down[x] + left + right) / 4.0;
                    change = change.max((cell - row[x]).abs());
                    cell
                });
                Bulk(cells.collect())
            })
            .collect();
        self.rows = new;
        self.iteration += 1;
        self.keep_edges();
        let to = cx.reply_to_all(cx.array());
        cx.contribute([change], Op::Max, to);
    }

    fn is_done(&self) -> bool {
        self.change < self.setup.tolerance || self.iteration == self.setup.iterations
    }

    /// Contributes the sum of the cells.
    fn contribute_sum(&self, cx: &mut Context<'_, Self>) {
        let sum: f64 = self.rows.iter().flat_map(|row| row.iter()).sum();
        let to = cx.reply_to(cx.array().at(0));
        cx.contribute([sum], Op::Gather, to);
    }
}

/// The run of a strip.
async fn run(me: Handle<Strip>) {
    let (this, setup, array) = me.with(|strip, cx| (cx.index(), strip.setup, cx.array())).await;
    let edge_of_square = |value| Bulk(vec![value; setup.cells as usize]);
    for iteration in 0.. {
        let above = match this {
            0 => edge_of_square(1.0),
            _ => me.ask(array.at(this - 1), Edge { iteration, edge: 1 }).await,
        };
        let below = match this + 1 {
            past if past == i64::from(setup.strips) => edge_of_square(0.0),
            next => me.ask(array.at(next), Edge { iteration, edge: 0 }).await,
        };
        me.with(move |strip, cx| strip.iterate(&above, &below, cx)).await;
        me.until(move |strip| strip.known > iteration).await;
        if me.with(|strip, _| strip.is_done()).await {
            return me.with(|strip, cx| strip.contribute_sum(cx)).await;
        }
    }
}

impl Object for Strip {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let [strips, cells] = [setup.strips, setup.cells].map(i64::from);
        let rows = (cx.index() + 1) * cells / strips - cx.index() * cells / strips;
        let rows = vec![Bulk(vec![0.0; cells as usize]); rows as usize];
        let mut strip =
            Self { setup, rows, edges: Default::default(), iteration: 0, known: 0, change: f64::INFINITY };
        strip.keep_edges();
        strip
    }
}

impl Entry<Start> for Strip {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        cx.spawn(run);
    }
}

impl Respond<Edge> for Strip {
    type Reply = Bulk<f64>;

    fn respond(&mut self, Edge { iteration, edge }: Edge, _: &mut Context<'_, Self>) -> Bulk<f64> {
        self.edges[iteration as usize % 2][edge].clone()
    }
}

impl Entry<Reduced> for Strip {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        if let Values::Gathered(sums) = &result.values {
            let sums =
                sums.iter().flat_map(|(_, sum)| if let Values::F64(sum) = sum { &sum[..] } else { &[] });
            let mean = sums.sum::<f64>() / f64::from(self.setup.cells).powi(2);
            println!("{} iterations, last change {:e}, mean {mean:.15}", self.iteration, self.change);
            return cx.exit(0);
        }
        self.known += 1;
        self.change = result.f64s()[0];
    }
}

fn main() -> ExitCode {
    let (setup, options) = arguments(USAGE, |a| {
        let cells = a.number("cells", 64, 1..=1 << 14)?;
        let setup = Setup {
            cells,
            strips: a.number("strips", 8.min(cells), 1..=cells)?,
            iterations: a.number("iterations", 10_000, 1..=1 << 30)?,
            tolerance: a.number("tolerance", 1e-5, 0.0..=1.0)?,
        };
        Ok((setup, a.run_options("none")?))
    });
    let program = Program::new().class::<Strip>(|c| c.entry::<Start>().respond::<Edge>().entry::<Reduced>());
    colony_runtime::main(program, &options, move |cx| {
        let strips = cx.create_array::<Strip>(&[setup.strips], setup);
        cx.broadcast(strips, Start);
    })
}
