// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Lb test: a mesh of objects that exchange small messages with their four neighbours. The objects of the first
//! quarter of the rows have eight times the work of the others, so PE 0 has most of it until objects migrate.
//!
//! The checksum depends on every message and on every byte of state, and not on the number of PEs or the strategy.

mod support;

use std::process::ExitCode;

use colony_runtime::{Bulk, Context, Entry, Main, Object, Op, Outcome, Program, Reduced};
use colony_time::clock::Clock;
use serde::{Deserialize, Serialize};
use support::{arguments, balancing, mix};

const USAGE: &str = "lb_test [--mesh N] [--iterations N] [--period N] [--strategy NAME] [--bytes N] [--work N] \
                     [--threads N]";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    /// Objects along each side of the mesh.
    mesh: u32,
    iterations: u32,
    /// Iterations from one load balancing to the next.
    period: u32,
    /// Bytes of an object's state.
    bytes: u64,
    /// Arithmetic operations of an object with the least work, in an iteration.
    work: u64,
}

/// An object of the mesh.
#[derive(Serialize, Deserialize)]
struct Cell {
    setup: Setup,
    state: Bulk<u64>,
    value: u64,
    iteration: u32,
    /// Values that have arrived for this iteration and for the next.
    arrived: [Vec<u64>; 2],
    /// Waits for the start, or for load balancing.
    waits: bool,
    /// At element [0, 0]: when stretches of iterations have begun and ended.
    stamps: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
struct Start;

#[derive(Serialize, Deserialize)]
struct Value {
    iteration: u32,
    value: u64,
}

impl Cell {
    /// Arithmetic operations of this object in an iteration.
    fn operations(&self, [row, column]: [i32; 2]) -> u64 {
        let is_heavy = row as u32 * 4 < self.setup.mesh;
        let factor = 1 + mix(row as u64, column as u64) % 4;
        self.setup.work * factor * if is_heavy { 8 } else { 1 }
    }

    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        let [row, column] = cx.index();
        let mesh = self.setup.mesh as i32;
        for (down, right) in [(1, 0), (mesh - 1, 0), (0, 1), (0, mesh - 1)] {
            let neighbour = cx.array().at([(row + down) % mesh, (column + right) % mesh]);
            cx.send(neighbour, Value { iteration: self.iteration, value: self.value });
        }
        for operation in 0..self.operations([row, column]) {
            self.value = mix(self.value, operation);
        }
    }

    fn advance(&mut self, cx: &mut Context<'_, Self>) {
        while !self.waits && self.arrived[self.iteration as usize % 2].len() == 4 {
            let arrived = std::mem::take(&mut self.arrived[self.iteration as usize % 2]);
            self.value = mix(self.value, arrived.into_iter().fold(0, u64::wrapping_add));
            let place = self.iteration as usize % self.state.len();
            self.state[place] ^= self.value;
            self.iteration += 1;
            if self.iteration == self.setup.iterations {
                return self.finish(cx);
            }
            if self.iteration.is_multiple_of(self.setup.period) {
                self.waits = true;
                self.stamp(Op::Max, cx);
                return cx.at_sync();
            }
            self.begin(cx);
        }
    }

    /// The first or the last time at which an object of the mesh gets here.
    fn stamp(&self, op: Op, cx: &mut Context<'_, Self>) {
        let to = cx.reply_to(cx.array().at([0, 0]));
        let now = cx.logged(|| Clock::Monotonic.now_ns());
        cx.contribute([now], op, to);
    }

    fn start(&mut self, cx: &mut Context<'_, Self>) {
        self.stamp(Op::Min, cx);
        self.waits = false;
        self.begin(cx);
        self.advance(cx);
    }

    fn finish(&mut self, cx: &mut Context<'_, Self>) {
        self.waits = true;
        self.stamp(Op::Max, cx);
        let checksum = self.state.iter().fold(self.value, |sum, word| mix(sum, *word));
        let to = cx.reply_to(cx.array().at([0, 0]));
        cx.contribute([checksum.cast_signed(), 1], Op::Sum, to);
    }
}

impl Object for Cell {
    type Index = [i32; 2];
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let [row, column] = cx.index();
        let value = mix(row as u64, mix(1, column as u64));
        let state = (0..setup.bytes.div_ceil(8)).map(|word| mix(value, word)).collect::<Vec<_>>().into();
        let arrived = Default::default();
        Self { setup, state, value, iteration: 0, arrived, waits: true, stamps: Vec::new() }
    }

    fn state_bytes(&self) -> u64 {
        self.state.len() as u64 * 8
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.start(cx);
    }
}

impl Entry<Start> for Cell {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        self.start(cx);
    }
}

impl Entry<Value> for Cell {
    fn call(&mut self, Value { iteration, value }: Value, cx: &mut Context<'_, Self>) {
        self.arrived[iteration as usize % 2].push(value);
        self.advance(cx);
    }
}

impl Entry<Reduced> for Cell {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let &[checksum, objects] = result.i64s() else { return self.stamps.extend(result.i64s()) };
        println!("{objects} objects, checksum {checksum:016x}");
        if let ([start, first, ..], [.., last, end]) = (&self.stamps[..], &self.stamps[..]) {
            let Setup { iterations, period, .. } = self.setup;
            let [before, after] =
                [(first - start, period.min(iterations)), (end - last, (iterations - 1) % period + 1)]
                    .map(|(ns, iterations)| ns as f64 * 1e-6 / f64::from(iterations));
            println!("an iteration: {before:.3} ms before the first balancing, {after:.3} ms after the last");
        }
        cx.exit(0);
    }
}

fn main() -> ExitCode {
    let (setup, options) = arguments(USAGE, |a| {
        let setup = Setup {
            mesh: a.number("mesh", 8, 1..=1024)?,
            iterations: a.number("iterations", 60, 1..=1_000_000)?,
            period: a.number("period", 20, 1..=1_000_000)?,
            bytes: a.number("bytes", 512 << 10, 1..=1 << 30)?,
            work: a.number("work", 5_000, 0..=1_000_000_000)?,
        };
        Ok((setup, a.run_options("greedy-refine")?))
    });
    let program = Program::new().class::<Cell>(|c| c.entry::<Start>().entry::<Value>().entry::<Reduced>());
    let begin = move |cx: &mut Context<'_, Main>| {
        let cells = cx.create_array::<Cell>(&[setup.mesh, setup.mesh], setup);
        cx.broadcast(cells, Start);
    };
    let report = |outcome: &Outcome| outcome.balance.iter().for_each(|b| println!("{}", balancing(b)));
    colony_runtime::main_with(program, &options, begin, report)
}
