// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a log of messages costs while nobody dies, by the time of an entry method: `logging [--phases N]`. Started by
//! `./x bench logging`.
//!
//! Two processes on a CPU each compute a Jacobi iteration on a ring of cubes, four on each PE. A message has as many bytes as
//! two faces, so a process sends as much as one with four of the eight blocks of a cube. Phases with and without the log take
//! turns within one run, each after a checkpoint.

use std::process::ExitCode;
use std::time::Instant;

use colony_runtime::launch::Launch;
use colony_runtime::transport::sockets::Sockets;
use colony_runtime::{Bulk, CheckpointOptions, Context, Entry, Object, Options, Period, Program};
use serde::{Deserialize, Serialize};

/// Edges of the cubes, with iterations of a phase.
const SIZES: [(u32, u32); 5] = [(16, 2000), (32, 600), (64, 120), (96, 60), (112, 40)];
const CUBES: i64 = 8;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    edge: u32,
    iterations: u32,
    phases: u32,
}

/// A cube of cells.
#[derive(Serialize, Deserialize)]
struct Cube {
    setup: Setup,
    cells: Bulk<f64>,
    phase: u32,
    iteration: u32,
    /// Messages of neighbours for this iteration and for the next.
    arrived: [u32; 2],
    waits: bool,
    /// At cube 0: when the phase began, seconds of updates, and seconds an iteration of each phase.
    #[serde(skip)]
    began: Option<Instant>,
    busy_s: f64,
    times: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct Start;

/// The values of two faces, for an iteration.
#[derive(Serialize, Deserialize)]
struct Faces(u32, Bulk<f64>);

impl Cube {
    fn send(&self, cx: &mut Context<'_, Self>) {
        let face = (self.setup.edge * self.setup.edge) as usize;
        for distance in [1, CUBES - 1] {
            let values = Bulk(self.cells[..2 * face].to_vec());
            cx.send(cx.array().at((cx.index() + distance) % CUBES), Faces(self.iteration, values));
        }
    }

    /// One iteration on all inner cells.
    fn update(&mut self) {
        let edge = self.setup.edge as usize;
        let face = edge * edge;
        let old = self.cells.clone();
        for z in 1..edge - 1 {
            for y in 1..edge - 1 {
                let row = z * face + y * edge;
                for at in row + 1..row + edge - 1 {
                    let sum = old[at - 1] + old[at + 1] + old[at - edge] + old[at + edge];
                    self.cells[at] = (sum + old[at - face] + old[at + face] + old[at]) / 7.0;
                }
            }
        }
    }

    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        while !self.waits && self.arrived[0] == 2 {
            self.arrived = [self.arrived[1], 0];
            let began = Instant::now();
            self.update();
            self.busy_s += began.elapsed().as_secs_f64();
            self.iteration += 1;
            if self.iteration.is_multiple_of(self.setup.iterations) {
                return self.end_phase(cx);
            }
            self.send(cx);
        }
    }

    fn end_phase(&mut self, cx: &mut Context<'_, Self>) {
        if cx.index() == 0 {
            let time = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
            self.times.push(time / f64::from(self.setup.iterations));
            self.phase += 1;
            cx.log_messages(self.phase.is_multiple_of(2));
        }
        self.waits = true;
        cx.at_sync();
    }

    fn report(&self) {
        let iterations = f64::from(self.setup.iterations * self.setup.phases);
        // the first phases warm up; those with the log are the even ones
        let median = |log: usize| {
            let mut times: Vec<f64> = self.times.iter().skip(2 + log).step_by(2).copied().collect();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let (with, without) = (median(0), median(1));
        let log_mb = 4.0 * f64::from(self.setup.edge).powi(2) * 2.0 * 8.0 / 1e6 / with;
        println!(
            "{:>5} {:>12.1} {:>12.1} {:>12.1} {:>10.2} {:>12.0}",
            self.setup.edge,
            self.busy_s / iterations * 1e6,
            without * 1e6,
            with * 1e6,
            (with / without - 1.0) * 100.0,
            log_mb
        );
    }
}

impl Object for Cube {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let cells = Bulk((0..setup.edge.pow(3)).map(|at| f64::from(at % 7) + cx.index() as f64).collect());
        let (arrived, times) = ([0; 2], Vec::new());
        Self { setup, cells, phase: 0, iteration: 0, arrived, waits: true, began: None, busy_s: 0.0, times }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        if self.iteration == self.setup.iterations * self.setup.phases {
            if cx.index() == 0 {
                self.report();
                cx.exit(0);
            }
            return;
        }
        self.began = Some(Instant::now());
        self.waits = false;
        self.send(cx);
        self.go_on(cx);
    }
}

impl Entry<Start> for Cube {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        self.resume(cx);
    }
}

impl Entry<Faces> for Cube {
    fn call(&mut self, Faces(iteration, faces): Faces, cx: &mut Context<'_, Self>) {
        let values = faces.len() / 2;
        self.cells[..values].copy_from_slice(&faces[values..]);
        self.arrived[usize::from(iteration > self.iteration)] += 1;
        self.go_on(cx);
    }
}

/// One of the two processes.
fn run(words: &[String]) -> ExitCode {
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(1);
    let setup = Setup { edge: number(0), iterations: number(1), phases: number(2) };
    let checkpoint = CheckpointOptions {
        log: Some(4 << 30),
        same_machine: true,
        ..CheckpointOptions::new(Period::Rounds(1))
    };
    let options = Options { checkpoint: Some(checkpoint), ..Options::default() };
    let program = Program::new().class::<Cube>(|c| c.entry::<Start>().entry::<Faces>());
    colony_runtime::main(program, &options, move |cx| {
        let cubes = cx.create_array::<Cube>(&[CUBES as u32], setup);
        cx.broadcast(cubes, Start);
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if Sockets::is_launched() {
        return run(&words);
    }
    let phases =
        words.iter().position(|word| word == "--phases").and_then(|at| words.get(at + 1)?.parse().ok());
    let phases: u32 = phases.unwrap_or(22).max(6);
    let Ok(this) = std::env::current_exe() else { return ExitCode::FAILURE };
    println!(" edge     entry, us  without, us     with, us    more, %    log, MB/s");
    for (edge, iterations) in SIZES {
        let pinned = r#"exec taskset -c "$COLONY_JOB_RANK" "$0" "$@""#;
        let numbers = [edge, iterations, phases].map(|number| number.to_string().into());
        let mut arguments = vec!["-c".into(), pinned.into(), this.clone().into_os_string()];
        arguments.extend(numbers);
        let launch = Launch {
            restarts: 1,
            timeout: Some(std::time::Duration::from_secs(60)),
            ..Launch::new(2, "sh", arguments)
        };
        match launch.run() {
            Ok(0) => {}
            Ok(code) => return ExitCode::from(code),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
