// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program whose ranks kill or stop themselves at chosen points, for tests of recovery: `mortal [ROUNDS]`. The folder
//! `$MORTAL` has a file for each death: `PHASE-RANK` with the number of times that the rank passes the point before. The
//! rank that removes the file dies. Prints a checksum that neither deaths nor the number of PEs change. Variables:
//! - `MORTAL_TIMER`: a timer is set all the time.
//! - `MORTAL_CLOCK`: messages carry the time, to which nobody looks.
//! - `MORTAL_GATE`: each rank waits for a file in this folder before it joins the job.
//! - `MORTAL_COUNTS`: each rank prints how many entry methods it ran to standard error.
//! - `MORTAL_REPORT`: rank 0 prints the bytes of each checkpoint to standard error, and those that were sent.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use colony_runtime::{
    Array, BalanceOptions, CheckpointReport, Context, Counts, Element, Entry, Main, Object, Op, Options,
    Outcome, Program, Reduced, Tracked,
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
    shelves: Array<Shelf>,
}

/// An object of each node that does not migrate. Most of it changes in one round of three, so checkpoints between share it.
#[derive(Serialize, Deserialize)]
struct Shelf {
    rounds: u64,
    books: Tracked<Vec<u64>>,
}

/// To a shelf, in each round: adds a book or none.
#[derive(Serialize, Deserialize)]
struct Put(Option<u64>);

/// To a shelf: asks for its checksum, for a node.
#[derive(Serialize, Deserialize)]
struct Count(Element<Node>);

/// The checksum of a node's shelf.
#[derive(Serialize, Deserialize)]
struct Books(u64);

#[derive(Serialize, Deserialize)]
struct Start;

/// A value, and the time or 0.
#[derive(Serialize, Deserialize)]
struct Value(u64, i64);

fn checksum(begin: u64, words: &[u64]) -> u64 {
    words.iter().fold(begin, |sum, word| sum.rotate_left(5) ^ word)
}

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
    type Init = (u32, Array<Shelf>);

    fn new((rounds, shelves): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let value = cx.index() as u64;
        let (state, arrived) = (vec![value; 1000], Vec::new());
        Self { rounds, round: 0, step: 0, value, arrived, waits: true, point: Point, state, shelves }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        pass("resume");
        self.round += 1;
        let shelf = self.shelves.at(cx.index());
        let has_book = (u64::from(self.round) + cx.index() as u64).is_multiple_of(3);
        cx.send(shelf, Put(has_book.then_some(self.value)));
        if self.round == self.rounds {
            return cx.send(shelf, Count(cx.this()));
        }
        self.waits = false;
        self.send(cx);
        self.go_on(cx);
    }
}

impl Object for Shelf {
    type Index = i64;
    type Init = ();
    const BALANCED: bool = false;

    fn new((): (), cx: &mut Context<'_, Self>) -> Self {
        // 10 bytes each
        Self { rounds: 0, books: vec![u64::MAX - cx.index() as u64; 1000].into() }
    }
}

impl Entry<Put> for Shelf {
    fn call(&mut self, Put(book): Put, _: &mut Context<'_, Self>) {
        self.rounds += 1;
        if let Some(book) = book {
            let place = book as usize % self.books.len();
            self.books[place] ^= book;
        }
    }
}

impl Entry<Count> for Shelf {
    fn call(&mut self, Count(node): Count, cx: &mut Context<'_, Self>) {
        cx.send(node, Books(checksum(self.rounds, &self.books)));
    }
}

impl Entry<Books> for Node {
    fn call(&mut self, Books(books): Books, cx: &mut Context<'_, Self>) {
        let sum = checksum(self.value ^ books, &self.state);
        let to = cx.reply_to(cx.array().at(0));
        cx.contribute([sum.cast_signed(), 1], Op::Sum, to);
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
    let program = Program::new()
        .class::<Node>(|c| c.entry::<Start>().entry::<Value>().entry::<Books>().entry::<Reduced>())
        .class::<Shelf>(|c| c.entry::<Put>().entry::<Count>());
    let begin = move |cx: &mut Context<'_, Main>| {
        let shelves = cx.create_array::<Shelf>(&[NODES as u32], ());
        let nodes = cx.create_array::<Node>(&[NODES as u32], (rounds, shelves));
        cx.broadcast(nodes, Start);
    };
    colony_runtime::main_with(program, &options, begin, end)
}

fn end(outcome: &Outcome) {
    if std::env::var_os("MORTAL_COUNTS").is_some() {
        let rank = std::env::var("COLONY_JOB_RANK").unwrap_or_default();
        for Counts { executed, repeated, .. } in &outcome.counts {
            // one write, so that lines of several ranks stay whole
            let line = format!("rank {rank} ran {executed}, {repeated} again\n");
            eprint!("{line}");
        }
    }
    pass("end");
    if std::env::var_os("MORTAL_REPORT").is_some() {
        for CheckpointReport { bytes, sent, .. } in &outcome.checkpoints {
            eprintln!("checkpoint: {bytes} {sent}");
        }
    }
}
