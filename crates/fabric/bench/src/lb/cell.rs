// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects: they exchange edges with four neighbours, work, and are ready to migrate after each stretch.

use std::sync::Arc;

use colony_runtime::{Bulk, Callback, Context, Entry, Main, Object, Op, Program};
use colony_time::clock::Clock;
use serde::{Deserialize, Serialize};

use super::kernel::{Kernel, Setup};
use super::mesh::{Edges, Side};
use super::record::record;

/// An object of the mesh.
#[derive(Serialize, Deserialize)]
struct Cell {
    setup: Arc<Setup>,
    kernel: Kernel,
    iteration: u32,
    /// Edges that have arrived for this iteration and for the next, by the side they touch.
    arrived: [[Option<Bulk<f64>>; 4]; 2],
    /// Waits for the start, or for load balancing, or has ended.
    waits: bool,
}

#[derive(Serialize, Deserialize)]
struct Start;

#[derive(Serialize, Deserialize)]
struct Edge {
    iteration: u32,
    /// The side of the receiver.
    side: Side,
    values: Bulk<f64>,
}

/// CPU time of this thread, in nanoseconds.
fn cpu_ns() -> i64 {
    nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now().map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

impl Cell {
    fn send_edges(&self, cx: &mut Context<'_, Self>) {
        for side in Side::ALL {
            let neighbour = cx.array().at(side.neighbour(cx.index(), self.setup.mesh));
            let values = self.kernel.edge(side).into();
            cx.send(neighbour, Edge { iteration: self.iteration, side: side.opposite(), values });
        }
    }

    fn begin_stretch(&mut self, cx: &mut Context<'_, Self>) {
        self.waits = false;
        record().begins(cx.pe(), self.iteration / self.setup.period, Clock::Monotonic.now_ns());
        self.send_edges(cx);
        self.advance(cx);
    }

    /// The edges of this iteration, once all have arrived.
    fn take_edges(&mut self) -> Option<Edges> {
        let arrived = &mut self.arrived[self.iteration as usize % 2];
        if arrived.iter().any(Option::is_none) {
            return None;
        }
        Some(std::mem::take(arrived).map(|edge| edge.unwrap_or_default().0))
    }

    fn advance(&mut self, cx: &mut Context<'_, Self>) {
        while !self.waits
            && let Some(edges) = self.take_edges()
        {
            let began = cpu_ns();
            self.kernel.work(&edges, self.iteration, &self.setup, cx.index());
            let used = cpu_ns() - began;
            record().ends(cx.pe(), self.iteration, Clock::Monotonic.now_ns(), used);
            self.iteration += 1;
            if self.iteration == self.setup.iterations {
                self.waits = true;
                record().finishes(self.kernel.checksum());
                return cx.contribute([1i64], Op::Sum, Callback::Exit);
            }
            if self.iteration.is_multiple_of(self.setup.period) {
                self.waits = true;
                return cx.at_sync();
            }
            self.send_edges(cx);
        }
    }
}

impl Object for Cell {
    type Index = [i32; 2];
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let kernel = Kernel::new(&setup, cx.index());
        Self { setup: Arc::new(setup), kernel, iteration: 0, arrived: Default::default(), waits: true }
    }

    fn state_bytes(&self) -> u64 {
        self.kernel.bytes()
    }

    fn arrived(&mut self, cx: &mut Context<'_, Self>) {
        record().arrives(cx.pe(), self.kernel.bytes());
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.begin_stretch(cx);
    }
}

impl Entry<Start> for Cell {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        self.begin_stretch(cx);
    }
}

impl Entry<Edge> for Cell {
    fn call(&mut self, Edge { iteration, side, values }: Edge, cx: &mut Context<'_, Self>) {
        self.arrived[iteration as usize % 2][side as usize] = Some(values);
        self.advance(cx);
    }
}

/// The program's classes.
pub(super) fn program() -> Program {
    Program::new().class::<Cell>(|c| c.entry::<Start>().entry::<Edge>())
}

/// Makes the mesh and starts its objects.
pub(super) fn begin(setup: Setup, cx: &mut Context<'_, Main>) {
    let cells = cx.create_array::<Cell>(&[setup.mesh, setup.mesh], setup);
    cx.broadcast(cells, Start);
}
