// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that go on with fewer PEs, and then with more again. The new PE sends under the number of one that has ended.

use std::sync::mpsc::channel;

use colony_runtime::{CheckpointOptions, Context, Entry, Object, Op, Options, Period, Program, Reduced};
use serde::{Deserialize, Serialize};

use super::{give, results, run_with};

const CELLS: i64 = 9;
/// The element that takes the results.
const TAKER: i64 = 1;
/// Rounds of one job.
const ROUNDS: u64 = 3;

/// Contributes in each round to a reduction of the array and to those of sections of two elements. PEs are the senders of the results:
/// the root of the array, and of each section its root.
#[derive(Serialize, Deserialize)]
struct Cell {
    key: u32,
    /// The round, and the one with which the job began.
    round: u64,
    first: u64,
    /// Results of the round.
    taken: i64,
}

/// To all: begins.
#[derive(Serialize, Deserialize)]
struct Go;

impl Cell {
    fn contribute(&self, cx: &mut Context<'_, Self>) {
        let array = cx.array();
        let to = cx.reply_to(array.at(TAKER));
        cx.contribute([1i64], Op::Sum, to);
        let is_with = |other: &i64| *other != TAKER && [TAKER, *other].contains(&cx.index());
        for other in (0..CELLS).filter(is_with).collect::<Vec<_>>() {
            let section = array.section([TAKER, other]).key();
            let to = cx.reply_to(array.at(TAKER));
            cx.contribute_to(section, [1i64], Op::Sum, to);
        }
        if cx.index() != TAKER {
            cx.at_sync();
        }
    }
}

impl Object for Cell {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key, round: 0, first: 0, taken: 0 }
    }

    fn restored(&mut self, _: &mut Context<'_, Self>) {
        self.first = self.round;
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.contribute(cx);
    }
}

impl Entry<Go> for Cell {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.contribute(cx);
    }
}

impl Entry<Reduced> for Cell {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        assert_eq!(result.number, self.round, "results come once and in order");
        self.taken += 1;
        if self.taken < CELLS {
            return;
        }
        (self.round, self.taken) = (self.round + 1, 0);
        if self.round == self.first + ROUNDS {
            give(self.key, self.first);
            return cx.exit(0);
        }
        cx.at_sync();
    }
}

/// Runs a job on each of these numbers of ranks and PEs of each, which goes on from the checkpoints of the one before. Gives the round
/// with which each job began.
fn run_jobs(places: &[(u32, u32)]) -> Vec<u64> {
    let (to, from) = channel();
    let (key, folder) = (results(to), tempfile::tempdir().expect("a folder"));
    let disk = folder.path().join("checkpoints");
    let program = || Program::new().class::<Cell>(|class| class.entry::<Go>().entry::<Reduced>());
    let mut restart = None;
    for place in places {
        let disk = Some(disk.clone());
        let checkpoint = CheckpointOptions {
            memory: false,
            disk: disk.clone(),
            ..CheckpointOptions::new(Period::Rounds(1))
        };
        let options = Options { checkpoint: Some(checkpoint), restart, ..Options::default() };
        let outcomes = run_with(*place, &options, program, move |cx| {
            // on two PEs, the second array has number 2: PE 2 is its root once there are three
            cx.create_one::<Cell>(key);
            let cells = cx.create_array::<Cell>(&[CELLS as u32], key);
            cx.broadcast(cells, Go);
        });
        for outcome in outcomes {
            assert_eq!(outcome.expect("the program ends").code, 0, "{place:?} of {places:?}");
        }
        restart = disk;
    }
    from.try_iter().map(|any| *any.downcast().expect("a round")).collect()
}

#[test]
fn a_pe_with_the_number_of_one_that_has_ended_is_another_sender() {
    for places in [
        &[(2, 1), (3, 1), (2, 1), (3, 1)][..],
        &[(3, 1), (2, 1), (3, 1)],
        &[(1, 3), (1, 1), (2, 2), (1, 2), (1, 3)],
    ] {
        let began = run_jobs(places);
        assert_eq!(began.len(), places.len(), "{places:?}: {began:?}");
        assert!(began.is_sorted_by(|one, next| one < next), "each goes on: {places:?}: {began:?}");
    }
}
