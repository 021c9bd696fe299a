// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints on disk: a program that has failed goes on in another job, on any number of PEs.

use colony_runtime::{
    CheckpointOptions, Context, Entry, Main, Object, Op, Options, Period, Program, Reduced, RunError,
};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, results, run_with};

const CELLS: i64 = 12;
const ROUNDS: u32 = 6;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    key: u32,
    /// The job fails in this round.
    fails: u32,
    group: bool,
}

/// An object whose reductions are not complete when a checkpoint is made: element 0 contributes one round later.
#[derive(Serialize, Deserialize)]
struct Cell {
    setup: Setup,
    round: u32,
    tells: i64,
    values: Vec<u64>,
}

/// To all: begins.
#[derive(Serialize, Deserialize)]
struct Go;

/// To all, by element 0 in every round.
#[derive(Serialize, Deserialize)]
struct Tell;

#[derive(Serialize, Deserialize)]
struct Value(u64);

impl Cell {
    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        let next = (cx.index() + 5) % CELLS;
        cx.send(cx.array().at(next), Value(cx.index() as u64 + u64::from(self.round) * 100));
        cx.migrate_to((cx.pe() + 1) % cx.pes());
        let late = cx.index() == 0;
        if late {
            cx.broadcast(cx.array(), Tell);
        }
        if !late || self.round > 0 {
            self.contribute(cx);
        }
        cx.at_sync();
    }

    fn contribute(&self, cx: &mut Context<'_, Self>) {
        let to = cx.reply_to(cx.array().at(1));
        cx.contribute([cx.index() + 1], Op::Sum, to);
    }
}

impl Object for Cell {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, _: &mut Context<'_, Self>) -> Self {
        Self { setup, round: 0, tells: 0, values: Vec::new() }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.round += 1;
        assert!(self.round != self.setup.fails || cx.index() != 7, "fails, as asked");
        if self.round < ROUNDS {
            return self.begin(cx);
        }
        if cx.index() == 0 {
            self.contribute(cx);
        }
        give(self.setup.key, (cx.index(), self.tells, std::mem::take(&mut self.values)));
        self.contribute(cx);
    }
}

impl Entry<Go> for Cell {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.begin(cx);
    }
}

impl Entry<Tell> for Cell {
    fn call(&mut self, _: Tell, _: &mut Context<'_, Self>) {
        self.tells += 1;
    }
}

/// A message that only later builds have.
#[derive(Serialize, Deserialize)]
struct More;

impl Entry<More> for Cell {
    fn call(&mut self, _: More, _: &mut Context<'_, Self>) {}
}

macro_rules! take_nothing {
    ($($message:ty),*) => {
        $(impl Entry<$message> for WideCell {
            fn call(&mut self, _: $message, _: &mut Context<'_, Self>) {}
        })*
    };
}
take_nothing!(Go, Tell, Value, Reduced);

impl Entry<Value> for Cell {
    fn call(&mut self, Value(value): Value, _: &mut Context<'_, Self>) {
        self.values.push(value);
    }
}

impl Entry<Reduced> for Cell {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        assert_eq!(result.i64s(), [(1..=CELLS).sum::<i64>()]);
        give(self.setup.key, (-1 - result.number as i64, 0i64, Vec::<u64>::new()));
        if result.number == u64::from(ROUNDS) {
            cx.exit(0);
        }
    }
}

/// An object on every PE.
#[derive(Serialize, Deserialize)]
struct Helper;

impl Object for Helper {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

fn program() -> Program {
    Program::new()
        .class::<Cell>(|c| c.entry::<Go>().entry::<Tell>().entry::<Value>().entry::<Reduced>())
        .class::<Helper>(|c| c)
}

/// Index, number of broadcasts, values; a negative index is that of a reduction.
type Results = Vec<(i64, i64, Vec<u64>)>;

/// A program and its restarts: objects of a checkpoint report to the test that made it.
struct Jobs {
    key: u32,
    from: std::sync::mpsc::Receiver<Box<dyn std::any::Any + Send>>,
    folder: tempfile::TempDir,
}

impl Jobs {
    fn new() -> Self {
        let (to, from) = std::sync::mpsc::channel();
        Self { key: results(to), from, folder: tempfile::tempdir().expect("a folder") }
    }

    /// The results of a run that writes checkpoints into the folder or begins from them, or the error of the rank that
    /// failed.
    fn run(&self, place: (u32, u32), setup: Setup, how: [bool; 2]) -> Result<Results, String> {
        self.run_program(place, setup, how, program)
    }

    /// The same, with other classes in the program.
    fn run_program(
        &self,
        place: (u32, u32),
        setup: Setup,
        [writes, restarts]: [bool; 2],
        program: fn() -> Program,
    ) -> Result<Results, String> {
        let setup = Setup { key: self.key, ..setup };
        let folder = self.folder.path().join("checkpoints");
        let period = Period::Rounds(1);
        let disk = Some(folder.clone());
        let checkpoint =
            writes.then(|| CheckpointOptions { memory: false, disk, ..CheckpointOptions::new(period) });
        let options = Options { checkpoint, restart: restarts.then_some(folder), ..Options::default() };
        let begin = move |cx: &mut Context<'_, Main>| {
            if setup.group {
                cx.create_group::<Helper>(());
            }
            let cells = cx.create_array::<Cell>(&[CELLS as u32], setup);
            cx.broadcast(cells, Go);
        };
        let outcomes = run_with(place, &options, program, begin);
        let all = self.from.try_iter().map(|any| *any.downcast().expect("a result"));
        let mut all: Results = all.collect();
        all.sort();
        for outcome in outcomes {
            match outcome {
                Ok(outcome) => assert_eq!(outcome.code, 0),
                Err(RunError::Program(text)) => return Err(text),
                Err(_) => {}
            }
        }
        Ok(all)
    }
}

const PLAIN: Setup = Setup { key: 0, fails: 0, group: false };
const WRITE: [bool; 2] = [true, false];
const RESTART: [bool; 2] = [false, true];

fn of_cells(all: &Results) -> Results {
    all.iter().filter(|(index, ..)| *index >= 0).cloned().collect()
}

#[test]
fn a_program_restarts_from_disk_on_any_number_of_pes_with_the_same_result() {
    let expected = Jobs::new().run((1, 1), PLAIN, [false, false]).expect("it ends");
    assert_eq!(expected.len(), CELLS as usize + ROUNDS as usize + 1);
    for first in PLACES {
        for second in [(1, 1), (3, 1), (2, 2)] {
            let jobs = Jobs::new();
            assert_eq!(jobs.run(first, PLAIN, WRITE), Ok(expected.clone()), "{first:?}");
            let restarted = jobs.run(second, PLAIN, RESTART).expect("it ends");
            // results that came before the checkpoint do not come again
            assert_eq!(of_cells(&restarted), of_cells(&expected), "{first:?} {second:?}");
            assert!(restarted.iter().all(|one| expected.contains(one)), "{first:?} {second:?}");
            let last = (-1 - i64::from(ROUNDS), 0, Vec::new());
            assert!(restarted.contains(&last), "the last reduction: {restarted:?}");
        }
    }
}

#[test]
fn a_program_that_has_failed_can_restart_from_its_last_checkpoint() {
    let fails = Setup { fails: 4, ..PLAIN };
    for place in PLACES {
        let jobs = Jobs::new();
        let error = jobs.run(place, fails, WRITE).expect_err("it fails");
        assert!(error.contains("fails, as asked"), "{place:?}: {error}");
        // the objects of the checkpoint fail in the same round again
        let error = jobs.run((2, 1), fails, RESTART).expect_err("it fails again");
        assert!(error.contains("fails, as asked"), "{place:?}: {error}");
    }
}

/// A class of the name of [`Cell`], with another state.
#[derive(Serialize, Deserialize)]
struct WideCell {
    setup: Setup,
    round: u64,
}

impl Object for WideCell {
    type Index = i64;
    type Init = Setup;
    const NAME: &'static str = "Cell";

    fn new(setup: Setup, _: &mut Context<'_, Self>) -> Self {
        Self { setup, round: 0 }
    }
}

#[test]
fn a_program_with_its_classes_in_another_order_and_more_entry_methods_restarts() {
    let reordered = || {
        Program::new()
            .class::<WideCell>(|c| c)
            .class::<Helper>(|c| c)
            .class::<Cell>(|c| c.entry::<Go>().entry::<Tell>().entry::<Value>().entry::<Reduced>())
    };
    // of two classes of one name, the first is meant
    let swapped = || {
        Program::new().class::<Helper>(|c| c).class::<Cell>(|c| {
            c.entry::<Go>().entry::<Tell>().entry::<Value>().entry::<Reduced>().entry::<More>()
        })
    };
    for (first, second) in [((2, 1), (2, 1)), ((2, 1), (3, 1)), ((1, 2), (1, 1))] {
        let jobs = Jobs::new();
        let expected = jobs.run(first, PLAIN, WRITE).expect("it ends");
        let restarted = jobs.run_program(second, PLAIN, RESTART, swapped).expect("it ends");
        assert_eq!(of_cells(&restarted), of_cells(&expected), "{first:?} {second:?}");
        let error = jobs.run_program(second, PLAIN, RESTART, reordered).expect_err("another class");
        assert!(
            error.contains("the class Cell of the checkpoint differs from that of this program"),
            "{error}"
        );
    }
}

#[test]
fn a_program_whose_class_differs_does_not_restart_and_the_error_names_the_class_and_the_field() {
    let jobs = Jobs::new();
    jobs.run((2, 1), PLAIN, WRITE).expect("it ends");
    let error = |program| jobs.run_program((2, 1), PLAIN, RESTART, program).expect_err("it differs");
    let wide = error(|| {
        let entries = |c: colony_runtime::Class<WideCell>| {
            c.entry::<Go>().entry::<Tell>().entry::<Value>().entry::<Reduced>()
        };
        Program::new().class::<WideCell>(entries)
    });
    let difference = "its state was struct of setup, round, tells, values, and is struct of setup, round";
    assert!(wide.starts_with("COLONY_RESTART: ") && wide.contains(difference), "{wide}");
    let entries = error(|| Program::new().class::<Cell>(|c| c.entry::<Go>().entry::<Value>()));
    assert!(entries.contains("its entry method 1 was Tell, and is Value"), "{entries}");
    let none = error(|| Program::new().class::<Helper>(|c| c));
    assert!(none.contains("the class Cell of the checkpoint") && none.contains("does not have it"), "{none}");
}

#[test]
fn a_program_with_a_group_restarts_on_as_many_pes_only() {
    let (jobs, group) = (Jobs::new(), Setup { group: true, ..PLAIN });
    jobs.run((2, 1), group, WRITE).expect("it ends");
    jobs.run((1, 2), group, RESTART).expect("two PEs");
    let error = jobs.run((3, 1), group, RESTART).expect_err("three PEs");
    assert!(error.contains("has a group, so it can be used on 2 PEs only, and this job has 3"), "{error}");
}

#[test]
fn a_job_that_begins_does_not_write_among_the_checkpoints_of_another() {
    let jobs = Jobs::new();
    jobs.run((2, 1), PLAIN, WRITE).expect("it ends");
    let error = jobs.run((2, 1), PLAIN, WRITE).expect_err("not empty");
    assert!(
        error.contains("has checkpoints of another job; restart from them by COLONY_RESTART="),
        "{error}"
    );
    jobs.run((2, 1), PLAIN, [true, true]).expect("it goes on");
}
