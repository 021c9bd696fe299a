// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields that a checkpoint takes from the one before: a program that goes on from it has the right values.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use colony_runtime::{
    Bulk, Callback, CheckpointOptions, Context, Entry, Main, Object, Op, Options, Period, Program, RunError,
    Tracked,
};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, results, run_with};

const SHEETS: i64 = 8;
const ROUNDS: u64 = 12;
const WORDS: usize = 700;

/// The round in which a job fails, by its key: objects of a checkpoint must not know it.
static FAILS: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    key: u32,
    seed: u64,
}

/// An object of which parts change at random, and which migrates at random.
#[derive(Serialize, Deserialize)]
struct Sheet {
    setup: Setup,
    round: u64,
    tables: Vec<Tracked<Bulk<u64>>>,
}

#[derive(Serialize, Deserialize)]
struct Go;

/// A random number of an object in a round.
fn random(seed: u64, index: i64, round: u64, number: u64) -> u64 {
    let mut z = seed;
    for part in [index.cast_unsigned(), round, number] {
        z = (z ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 31;
    }
    z
}

fn tables(index: i64) -> Vec<Tracked<Bulk<u64>>> {
    (0..3).map(|number| Tracked::new(vec![index.cast_unsigned() * 10 + number; WORDS].into())).collect()
}

/// Changes some tables, in one round of four none.
fn change(tables: &mut [Tracked<Bulk<u64>>], seed: u64, index: i64, round: u64) {
    for (number, table) in (0..).zip(tables) {
        let value = random(seed, index, round, number);
        if value.is_multiple_of(3) && !(round + index.cast_unsigned()).is_multiple_of(4) {
            table[(value >> 8) as usize % WORDS] ^= value;
        }
    }
}

fn digest(tables: &[Tracked<Bulk<u64>>]) -> u64 {
    tables.iter().flat_map(|table| table.iter()).fold(0, |sum, word| sum.rotate_left(7) ^ word)
}

impl Sheet {
    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        let Setup { key, seed } = self.setup;
        let fails = FAILS.lock().expect("no panic").get(&key).copied();
        assert!(fails != Some(self.round) || cx.index() != 5, "fails, as asked");
        change(&mut self.tables, seed, cx.index(), self.round);
        let place = random(seed, cx.index(), self.round, 99);
        if place.is_multiple_of(4) {
            cx.migrate_to((place >> 8) as u32 % cx.pes());
        }
        cx.at_sync();
    }
}

impl Object for Sheet {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        Self { setup, round: 0, tables: tables(cx.index()) }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.round += 1;
        if self.round < ROUNDS {
            return self.begin(cx);
        }
        give(self.setup.key, (cx.index(), digest(&self.tables)));
        cx.contribute([1i64], Op::Sum, Callback::Exit);
    }
}

impl Entry<Go> for Sheet {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.begin(cx);
    }
}

fn failure(outcomes: Vec<Result<colony_runtime::Outcome, RunError>>) -> Option<String> {
    outcomes.into_iter().find_map(|outcome| match outcome {
        Err(RunError::Program(text)) => Some(text),
        _ => None,
    })
}

#[test]
fn a_program_that_goes_on_has_all_values_whichever_have_changed_and_migrated() {
    let on_disk = |folder: std::path::PathBuf| CheckpointOptions {
        memory: false,
        disk: Some(folder),
        ..CheckpointOptions::new(Period::Rounds(1))
    };
    let program = || Program::new().class::<Sheet>(|c| c.entry::<Go>());
    for seed in 0..6u64 {
        let first = PLACES[seed as usize % PLACES.len()];
        let second = PLACES[seed as usize / 2 % PLACES.len()];
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("checkpoints");
        let (to, from) = std::sync::mpsc::channel();
        let key = results(to);
        let run = |place, options: &Options| {
            let begin = move |cx: &mut Context<'_, Main>| {
                let sheets = cx.create_array::<Sheet>(&[SHEETS as u32], Setup { key, seed });
                cx.broadcast(sheets, Go);
            };
            failure(run_with(place, options, program, begin))
        };
        FAILS.lock().expect("no panic").insert(key, 5 + seed % 6);
        let failed = run(first, &Options { checkpoint: Some(on_disk(folder.clone())), ..Options::default() });
        assert!(failed.as_ref().is_some_and(|text| text.contains("fails, as asked")), "{failed:?}");
        FAILS.lock().expect("no panic").remove(&key);
        assert_eq!(run(second, &Options { restart: Some(folder), ..Options::default() }), None);
        let mut found: Vec<(i64, u64)> =
            from.try_iter().map(|any| *any.downcast().expect("a result")).collect();
        found.sort_unstable();
        let expected = (0..SHEETS).map(|index| {
            let mut tables = tables(index);
            (0..ROUNDS).for_each(|round| change(&mut tables, seed, index, round));
            (index, digest(&tables))
        });
        assert_eq!(found, expected.collect::<Vec<_>>(), "seed {seed}: {first:?} {second:?}");
    }
}

/// A field that changes behind a shared reference.
#[derive(Serialize, Deserialize)]
struct Sly {
    calls: Tracked<(Cell<u64>, Bulk<u64>)>,
}

impl Object for Sly {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self { calls: (Cell::new(0), Bulk(vec![0; WORDS])).into() }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.calls.0.set(self.calls.0.get() + 1);
        if self.calls.0.get() > 3 {
            return cx.exit(0);
        }
        cx.at_sync();
    }
}

impl Entry<Go> for Sly {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        cx.at_sync();
    }
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "release builds do not compare")]
fn a_field_that_changes_unseen_ends_the_program_with_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = Some(dir.path().join("checkpoints"));
    let checkpoint = CheckpointOptions { memory: false, disk, ..CheckpointOptions::new(Period::Rounds(1)) };
    let options = Options { checkpoint: Some(checkpoint), ..Options::default() };
    let program = || Program::new().class::<Sly>(|c| c.entry::<Go>());
    let outcomes = run_with((1, 1), &options, program, |cx| {
        let all = cx.create_array::<Sly>(&[2], ());
        cx.broadcast(all, Go);
    });
    let error = failure(outcomes).expect("it fails");
    assert!(
        error.starts_with("a checkpoint: Sly 0: a `Tracked` field has changed behind a shared reference"),
        "{error}"
    );
}
