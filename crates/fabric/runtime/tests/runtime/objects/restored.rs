// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects whose futures wait while a checkpoint is made, and which make them again.

use colony_runtime::{CheckpointOptions, Context, Element, Entry, Main, Object, Options, Period, Program};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, results, run_with};

const CELLS: i64 = 4;
const ROUNDS: u64 = 3;

/// Waits until each cell has ended all rounds, and gives what it has counted.
#[derive(Serialize, Deserialize)]
struct Waiter {
    key: u32,
    /// It makes its future again.
    restores: bool,
    ticks: u64,
    restored: u64,
}

#[derive(Serialize, Deserialize)]
struct Wait;

#[derive(Serialize, Deserialize)]
struct Tick;

impl Waiter {
    fn wait(cx: &mut Context<'_, Self>) {
        cx.spawn(|handle| async move {
            handle.until(|waiter| waiter.ticks == CELLS as u64 * ROUNDS).await;
            let end = |waiter: &mut Self, cx: &mut Context<'_, Self>| {
                give(waiter.key, (waiter.ticks, waiter.restored));
                cx.exit(0);
            };
            handle.with(end).await;
        });
    }
}

impl Object for Waiter {
    type Index = i64;
    type Init = (u32, bool);

    fn new((key, restores): (u32, bool), _: &mut Context<'_, Self>) -> Self {
        Self { key, restores, ticks: 0, restored: 0 }
    }

    fn restores_futures(&self) -> bool {
        self.restores
    }

    fn restored(&mut self, cx: &mut Context<'_, Self>) {
        self.restored += 1;
        Self::wait(cx);
    }
}

impl Entry<Wait> for Waiter {
    fn call(&mut self, _: Wait, cx: &mut Context<'_, Self>) {
        Self::wait(cx);
    }
}

impl Entry<Tick> for Waiter {
    fn call(&mut self, _: Tick, _: &mut Context<'_, Self>) {
        self.ticks += 1;
    }
}

#[derive(Serialize, Deserialize)]
struct Cell {
    waiter: Element<Waiter>,
    round: u64,
}

#[derive(Serialize, Deserialize)]
struct Go;

impl Object for Cell {
    type Index = i64;
    type Init = Element<Waiter>;

    fn new(waiter: Element<Waiter>, _: &mut Context<'_, Self>) -> Self {
        Self { waiter, round: 0 }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.round += 1;
        cx.send(self.waiter, Tick);
        if self.round < ROUNDS {
            cx.at_sync();
        }
    }
}

impl Entry<Go> for Cell {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        cx.at_sync();
    }
}

fn program() -> Program {
    Program::new()
        .class::<Waiter>(|class| class.entry::<Wait>().entry::<Tick>())
        .class::<Cell>(|class| class.entry::<Go>())
}

/// What the waiters of a job gave that writes checkpoints, and of one that restarts from them.
fn run_twice(place: (u32, u32), restores: bool) -> Vec<(u64, u64)> {
    let (to, from) = std::sync::mpsc::channel();
    let (key, folder) = (results(to), tempfile::tempdir().expect("a folder"));
    let disk = folder.path().join("checkpoints");
    let options = CheckpointOptions {
        memory: false,
        disk: Some(disk.clone()),
        ..CheckpointOptions::new(Period::Rounds(1))
    };
    for options in [
        Options { checkpoint: Some(options), ..Options::default() },
        Options { restart: Some(disk), ..Options::default() },
    ] {
        let begin = move |cx: &mut Context<'_, Main>| {
            let waiter = cx.create_one::<Waiter>((key, restores));
            cx.send(waiter, Wait);
            let cells = cx.create_array::<Cell>(&[CELLS as u32], waiter);
            cx.broadcast(cells, Go);
        };
        for outcome in run_with(place, &options, program, begin) {
            assert_eq!(outcome.expect("the program ends").code, 0);
        }
    }
    from.try_iter().map(|any| *any.downcast().expect("counts")).collect()
}

#[test]
fn an_object_that_makes_its_future_again_goes_on_from_a_checkpoint() {
    let all = CELLS as u64 * ROUNDS;
    for place in PLACES {
        assert_eq!(run_twice(place, true), [(all, 0), (all, 1)], "{place:?}");
        // without a checkpoint, the second job begins
        assert_eq!(run_twice(place, false), [(all, 0), (all, 0)], "{place:?}");
    }
}
