// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program whose ranks kill or stop themselves at chosen points, for tests of recovery: `mortal [ROUNDS]`. The folder
//! `$MORTAL` has a file for each death: `PHASE-RANK` with the number of times that the rank passes the point before. The
//! rank that removes the file dies. With `MORTAL_TIMER`, a timer is set all the time; with `MORTAL_COUNTS`,
//! each rank prints how many entry methods it ran; with `MORTAL_CLOCK`, messages carry the time, to which nobody looks; with `MORTAL_GATE`, each rank waits for a file before it
//! joins the job. Prints a checksum that neither deaths
//! nor the number of PEs change.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use colony_runtime::{
    BalanceOptions, Context, Counts, Entry, Main, Object, Op, Options, Outcome, Program, Reduced,
};
use colony_time::clock::Clock;
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Points at which a rank can die, and how often this process has passed each.
static PASSED: [(&str, AtomicU32); 7] = [
    ("start", AtomicU32::new(0)),
    ("entry", AtomicU32::new(0)),
    ("stop", AtomicU32::new(0)),
    ("pack", AtomicU32::new(0)),
    ("unpack", AtomicU32::new(0)),
    ("resume", AtomicU32::new(0)),
    ("end", AtomicU32::new(0)),
];

/// Dies at this point if a file says so.
fn pass(phase: &str) {
    let (Some(folder), Ok(rank)) = (std::env::var_os("MORTAL"), std::env::var("COLONY_JOB_RANK")) else {
        return;
    };
    let Some((_, passed)) = PASSED.iter().find(|(name, _)| *name == phase) else { return };
    let passed = passed.fetch_add(1, Ordering::Relaxed);
    let file = std::path::Path::new(&folder).join(format!("{phase}-{rank}"));
    let due = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
    if due == Some(passed) && std::fs::remove_file(&file).is_ok() {
        let signal = if phase == "stop" { Signal::SIGSTOP } else { Signal::SIGKILL };
        // a signal that cannot be sent is found by the test
        let _ = raise(signal);
    }
}

/// A part of an object's state that is packed and unpacked like any other.
struct Point;

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        pass("pack");
        ().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pass("unpack");
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

const NODES: i64 = 12;
/// Messages of an object in a round.
const STEPS: u32 = 5;

/// An object that sends its value to its neighbour, several times a round.
#[derive(Serialize, Deserialize)]
struct Node {
    rounds: u32,
    round: u32,
    step: u32,
    value: u64,
    /// Values that have arrived.
    arrived: Vec<u64>,
    waits: bool,
    point: Point,
    state: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Start;

/// A value, and the time or 0.
#[derive(Serialize, Deserialize)]
struct Value(u64, i64);

impl Node {
    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        while !self.waits && !self.arrived.is_empty() {
            let value = self.arrived.remove(0);
            pass("entry");
            pass("stop");
            self.value = (self.value ^ value.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let place = self.value as usize % self.state.len();
            self.state[place] ^= self.value;
            self.step += 1;
            if self.step.is_multiple_of(STEPS) {
                self.waits = true;
                return cx.at_sync();
            }
            self.send(cx);
        }
    }

    fn send(&self, cx: &mut Context<'_, Self>) {
        let clock = std::env::var_os("MORTAL_CLOCK").is_some();
        let time = if clock { Clock::Monotonic.now_ns() } else { 0 };
        cx.send(cx.array().at((cx.index() + 1) % NODES), Value(self.value, time));
    }
}

impl Object for Node {
    type Index = i64;
    type Init = u32;

    fn new(rounds: u32, cx: &mut Context<'_, Self>) -> Self {
        let value = cx.index() as u64;
        let state = vec![value; 1000];
        Self { rounds, round: 0, step: 0, value, arrived: Vec::new(), waits: true, point: Point, state }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        pass("resume");
        self.round += 1;
        if self.round == self.rounds {
            let sum = self.state.iter().fold(self.value, |sum, word| sum.rotate_left(5) ^ word);
            let to = cx.reply_to(cx.array().at(0));
            return cx.contribute([sum.cast_signed(), 1], Op::Sum, to);
        }
        self.waits = false;
        self.send(cx);
        self.go_on(cx);
    }
}

impl Entry<Start> for Node {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        if std::env::var_os("MORTAL_TIMER").is_some() {
            cx.send_after(std::time::Duration::from_secs(3600), cx.this(), Value(0, 0));
        }
        self.waits = false;
        self.send(cx);
        self.go_on(cx);
    }
}

impl Entry<Value> for Node {
    fn call(&mut self, Value(value, _): Value, cx: &mut Context<'_, Self>) {
        self.arrived.push(value);
        self.go_on(cx);
    }
}

impl Entry<Reduced> for Node {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        println!("{:?}", result.i64s());
        cx.exit(0);
    }
}

/// Waits at the gate `$MORTAL_GATE/RANKS`, if there are gates, until it is there.
fn wait_at_gate() {
    if let (Some(gates), Ok(ranks)) = (std::env::var_os("MORTAL_GATE"), std::env::var("COLONY_JOB_SIZE")) {
        while !std::path::Path::new(&gates).join(&ranks).exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn main() -> ExitCode {
    pass("start");
    wait_at_gate();
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10);
    let threads = std::env::var("THREADS").ok().and_then(|word| word.parse().ok()).unwrap_or(1);
    let balance = BalanceOptions::strategy("rotate").ok();
    let options = Options { threads, balance, ..Options::default() };
    let program = Program::new().class::<Node>(|c| c.entry::<Start>().entry::<Value>().entry::<Reduced>());
    let begin = move |cx: &mut Context<'_, Main>| {
        let nodes = cx.create_array::<Node>(&[NODES as u32], rounds);
        cx.broadcast(nodes, Start);
    };
    colony_runtime::main_with(program, &options, begin, |outcome: &Outcome| {
        if std::env::var_os("MORTAL_COUNTS").is_some() {
            let rank = std::env::var("COLONY_JOB_RANK").unwrap_or_default();
            for Counts { executed, repeated, .. } in &outcome.counts {
                // one write, so that lines of several ranks stay whole
                let line = format!("rank {rank} ran {executed}, {repeated} again\n");
                eprint!("{line}");
            }
        }
        pass("end");
    })
}
