// SPDX-License-Identifier: MIT OR Apache-2.0
//! Particles in boxes: a dense cloud drifts over a periodic square, so the boxes' loads move with it. Particles of a box
//! that approach each other exchange their velocities, and a particle that leaves its box goes to a neighbour.
//!
//! All numbers are integers: the result is the same on any number of PEs, and no momentum or energy may be lost.

mod support;

use std::process::ExitCode;

use colony_runtime::{Context, Entry, Main, Object, Op, Outcome, Program, Reduced};
use serde::{Deserialize, Serialize};
use support::{arguments, balancing, mix};

const USAGE: &str =
    "particles [--boxes N] [--steps N] [--period N] [--density N] [--strategy NAME] [--threads N]";
/// The width of a box, and the distance at which particles collide.
const WIDTH: i32 = 1 << 16;
const REACH: i32 = 1 << 11;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    /// Boxes along each side of the square.
    boxes: u32,
    steps: u32,
    /// Steps from one load balancing to the next.
    period: u32,
    /// Particles of a box in the middle of the cloud.
    density: u32,
}

/// A particle, with its place in its box and its way in a step.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Particle {
    id: u64,
    at: [i32; 2],
    velocity: [i32; 2],
}

/// A box of the square.
#[derive(Serialize, Deserialize)]
struct Cell {
    setup: Setup,
    particles: Vec<Particle>,
    step: u32,
    /// Messages of neighbours for this step and for the next.
    arrived: [Vec<Leave>; 2],
    /// Waits for the start, or for load balancing.
    waits: bool,
    /// At box [0, 0]: the sums before the first step.
    before: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
struct Start;

/// The particles that leave a box for a neighbour in a step.
#[derive(Serialize, Deserialize)]
struct Leave(u32, Vec<Particle>);

impl Cell {
    /// Particles that approach each other exchange their velocities, pair by pair in the order of their ids.
    fn collide(&mut self) {
        self.particles.sort_unstable_by_key(|p| p.id);
        for second in 1..self.particles.len() {
            let (before, after) = self.particles.split_at_mut(second);
            let this = &mut after[0];
            for other in before {
                let apart: [i32; 2] = std::array::from_fn(|d| other.at[d] - this.at[d]);
                let gap = |d: usize| i64::from(apart[d]) * i64::from(other.velocity[d] - this.velocity[d]);
                if apart.iter().all(|a| a.abs() < REACH) && gap(0) + gap(1) < 0 {
                    std::mem::swap(&mut other.velocity, &mut this.velocity);
                }
            }
        }
    }

    /// One step: collisions, motion, and a message with those that leave to each of the eight neighbours.
    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        self.collide();
        let mut leaving: [Vec<Particle>; 9] = Default::default();
        for mut particle in std::mem::take(&mut self.particles) {
            let [row, column] = std::array::from_fn(|d| {
                let at = particle.at[d] + particle.velocity[d];
                particle.at[d] = at.rem_euclid(WIDTH);
                at.div_euclid(WIDTH)
            });
            leaving[((row + 1) * 3 + column + 1) as usize].push(particle);
        }
        self.particles = std::mem::take(&mut leaving[4]);
        let (boxes, [row, column]) = (self.setup.boxes as i32, cx.index());
        for (direction, particles) in (0..).zip(leaving).filter(|(direction, _)| *direction != 4) {
            let to = [row + direction / 3 - 1, column + direction % 3 - 1].map(|i| i.rem_euclid(boxes));
            cx.send(cx.array().at(to), Leave(self.step, particles));
        }
    }

    fn advance(&mut self, cx: &mut Context<'_, Self>) {
        while !self.waits && self.arrived[self.step as usize % 2].len() == 8 {
            let arrived = std::mem::take(&mut self.arrived[self.step as usize % 2]);
            self.particles.extend(arrived.into_iter().flat_map(|leave| leave.1));
            self.step += 1;
            self.waits = self.step == self.setup.steps || self.step.is_multiple_of(self.setup.period);
            match self.waits {
                true if self.step == self.setup.steps => self.contribute_sums(cx),
                true => cx.at_sync(),
                false => self.begin(cx),
            }
        }
    }

    /// Contributes the number of particles, their momentum, their energy, and a checksum.
    fn contribute_sums(&self, cx: &mut Context<'_, Self>) {
        let (mut sums, [row, column]) = ([0i64; 5], cx.index());
        for p in &self.particles {
            let ([v, w], [x, y]) = (p.velocity.map(i64::from), p.at);
            let place = [row, column, x, y, p.velocity[0], p.velocity[1]];
            let hash = place.iter().fold(p.id, |hash, &word| mix(hash, word as u64));
            let all = [1, v, w, v * v + w * w, hash.cast_signed()];
            sums.iter_mut().zip(all).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        }
        let to = cx.reply_to(cx.array().at([0, 0]));
        cx.contribute(sums, Op::Sum, to);
    }
}

impl Object for Cell {
    type Index = [i32; 2];
    type Init = Setup;

    /// The cloud is densest in box [0, 0], and all of it drifts the same way.
    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let [row, column] = cx.index();
        let away = row.max(column) as u32;
        let count = setup.density >> (away * 8 / setup.boxes).min(5);
        let particles = (0..u64::from(count)).map(|k| {
            let id = (row as u64 * u64::from(setup.boxes) + column as u64) << 32 | k;
            let draw = |what, range: i32| (mix(id, what) % range as u64) as i32;
            let velocity = [WIDTH / 8 + draw(2, WIDTH / 16), WIDTH / 6 + draw(3, WIDTH / 16)];
            Particle { id, at: [draw(0, WIDTH), draw(1, WIDTH)], velocity }
        });
        let particles = particles.collect();
        Self { setup, particles, step: 0, arrived: Default::default(), waits: true, before: Vec::new() }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.waits = false;
        self.begin(cx);
        self.advance(cx);
    }
}

impl Entry<Start> for Cell {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        self.contribute_sums(cx);
        self.resume(cx);
    }
}

impl Entry<Leave> for Cell {
    fn call(&mut self, leave: Leave, cx: &mut Context<'_, Self>) {
        self.arrived[leave.0 as usize % 2].push(leave);
        self.advance(cx);
    }
}

impl Entry<Reduced> for Cell {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let &[particles, x, y, energy, checksum] = result.i64s() else { return cx.exit(1) };
        if result.number == 0 {
            return self.before.extend([particles, x, y, energy]);
        }
        let is_lost = self.before != [particles, x, y, energy];
        println!("{particles} particles, momentum {x} {y}, energy {energy}, checksum {checksum:016x}");
        if is_lost {
            eprintln!("error: particles, momentum or energy are lost: they were {:?}", self.before);
        }
        cx.exit(is_lost.into());
    }
}

fn main() -> ExitCode {
    let (setup, options) = arguments(USAGE, |a| {
        let setup = Setup {
            boxes: a.number("boxes", 12, 1..=1024)?,
            steps: a.number("steps", 60, 1..=1_000_000)?,
            period: a.number("period", 5, 1..=1_000_000)?,
            density: a.number("density", 400, 0..=1 << 20)?,
        };
        Ok((setup, a.run_options("greedy-refine")?))
    });
    let program = Program::new().class::<Cell>(|c| c.entry::<Start>().entry::<Leave>().entry::<Reduced>());
    let begin = move |cx: &mut Context<'_, Main>| {
        let cells = cx.create_array::<Cell>(&[setup.boxes, setup.boxes], setup);
        cx.broadcast(cells, Start);
    };
    let report = |outcome: &Outcome| outcome.balance.iter().for_each(|b| eprintln!("{}", balancing(b)));
    colony_runtime::main_with(program, &options, begin, report)
}
