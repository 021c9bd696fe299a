// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the runtime keeps for pairs of objects and for removed elements is bounded by those that are active.

use std::sync::mpsc::channel;

use colony_runtime::{
    Array, CheckpointOptions, Context, Element, Entry, Object, Op, Options, Outcome, Period, Program, Quiet,
    Reduced,
};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, results, run_with};

const OBJECTS: i64 = 40;

/// Sends words to all others in some rounds, and then to its neighbour only. It may migrate in each round.
#[derive(Serialize, Deserialize)]
struct Peer {
    setup: Setup,
    round: u32,
    /// Words from each object.
    taken: Vec<u32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    key: u32,
    /// Rounds in which all talk to all, and those after them.
    all: u32,
    quiet: u32,
    migrates: bool,
    /// The receivers of a round are these many, and others in the next round.
    at_once: Option<i64>,
}

impl Setup {
    fn rounds(&self) -> u32 {
        self.all + self.quiet
    }

    fn receivers(&self, from: i64, round: u32) -> Vec<i64> {
        let others = |count: i64, first: i64| {
            (0..count).map(move |n| (from + 1 + (first + n) % (OBJECTS - 1)) % OBJECTS)
        };
        match self.at_once {
            _ if round >= self.all => others(1, 0).collect(),
            Some(few) => others(few, few * i64::from(round)).collect(),
            None => others(OBJECTS - 1, 0).collect(),
        }
    }

    /// Words of an object to another one.
    fn words(&self, from: i64, to: i64) -> u32 {
        let rounds = (0..self.rounds()).filter(|round| self.receivers(from, *round).contains(&to));
        rounds.count() as u32
    }
}

/// A word of an object, and how many it has sent to the receiver before.
#[derive(Serialize, Deserialize)]
struct Word(i64, u32);

impl Peer {
    fn talk(&mut self, cx: &mut Context<'_, Self>) {
        for to in self.setup.receivers(cx.index(), self.round) {
            let before =
                (0..self.round).filter(|r| self.setup.receivers(cx.index(), *r).contains(&to)).count();
            cx.send(cx.array().at(to), Word(cx.index(), before as u32));
        }
        self.round += 1;
        if cx.index() == 0 {
            cx.when_quiet(cx.this());
        }
    }
}

impl Object for Peer {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, cx: &mut Context<'_, Self>) -> Self {
        let mut peer = Self { setup, round: 0, taken: vec![0; OBJECTS as usize] };
        peer.talk(cx);
        peer
    }
}

impl Entry<Word> for Peer {
    fn call(&mut self, Word(from, number): Word, _: &mut Context<'_, Self>) {
        assert_eq!(number, self.taken[from as usize], "once and in order");
        self.taken[from as usize] += 1;
    }
}

/// Begins the next round at all objects.
#[derive(Serialize, Deserialize)]
struct Next;

impl Entry<Quiet> for Peer {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        if self.round < self.setup.rounds() {
            return cx.broadcast(cx.array(), Next);
        }
        cx.broadcast(cx.array(), Last);
    }
}

impl Entry<Next> for Peer {
    fn call(&mut self, _: Next, cx: &mut Context<'_, Self>) {
        self.talk(cx);
        if self.setup.migrates && (cx.index() + i64::from(self.round)) % 3 == 0 {
            cx.migrate_to((cx.pe() + 1) % cx.pes());
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Last;

impl Entry<Last> for Peer {
    fn call(&mut self, _: Last, cx: &mut Context<'_, Self>) {
        let to = cx.index();
        let expected: Vec<u32> = (0..OBJECTS).map(|from| self.setup.words(from, to)).collect();
        give(self.setup.key, self.taken == expected);
        cx.contribute([1i64], Op::Sum, colony_runtime::Callback::Exit);
    }
}

fn peers() -> Program {
    Program::new().class::<Peer>(|c| c.entry::<Word>().entry::<Quiet>().entry::<Next>().entry::<Last>())
}

/// Entries of the tables of all PEs, and whether all words were taken.
fn talk(place: (u32, u32), setup: Setup) -> u64 {
    let (to, from) = channel();
    let key = results(to);
    let outcomes = run_with(place, &Options::default(), peers, move |cx| {
        cx.create_array::<Peer>(&[OBJECTS as u32], Setup { key, ..setup });
    });
    let all: Vec<bool> = from.try_iter().map(|any| *any.downcast().expect("a result")).collect();
    assert_eq!(all, [true; OBJECTS as usize], "{place:?}");
    pairs(outcomes)
}

fn pairs(outcomes: Vec<Result<Outcome, colony_runtime::RunError>>) -> u64 {
    let outcomes = outcomes.into_iter().map(|outcome| outcome.expect("the program ends"));
    outcomes.flat_map(|outcome| outcome.counts).map(|counts| counts.pairs).sum()
}

/// Entries of a table that stay without being used.
const SHORT: u64 = 8;

#[test]
fn pairs_that_no_longer_talk_are_forgotten_on_both_sides() {
    let all = 2 * (OBJECTS * (OBJECTS - 1)) as u64;
    for (place, migrates) in PLACES.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        let setup = Setup { key: 0, all: 3, quiet: 0, migrates, at_once: None };
        let kept = talk(place, Setup { all: 8, ..setup });
        assert!((all / 2..all + 8).contains(&kept), "{place:?}: {kept} of {all}, which talk in each round");
        let kept = talk(place, Setup { quiet: 140, ..setup });
        assert!(kept <= OBJECTS as u64 * 2 * SHORT, "{place:?}: {kept} of {all} are kept");
    }
}

#[test]
fn words_of_pairs_that_are_forgotten_and_talk_again_arrive_once_and_in_order() {
    for (place, migrates) in PLACES.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        for at_once in [1, 5] {
            talk(
                place,
                Setup { key: 0, all: 120 / at_once as u32, quiet: 0, migrates, at_once: Some(at_once) },
            );
        }
    }
}

/// Inserts elements that answer and are removed.
#[derive(Serialize, Deserialize)]
struct Parent {
    key: u32,
    tasks: Array<Task>,
    next: i64,
    ended: i64,
    last: i64,
    migrates: bool,
}

/// Tasks of the parent on the last PE, which is not the root of their array if there are several.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Tasks {
    count: i64,
    at_once: i64,
    migrates: bool,
}

#[derive(Serialize, Deserialize)]
struct Task;

#[derive(Serialize, Deserialize)]
struct Work(Element<Parent>, bool);

#[derive(Serialize, Deserialize)]
struct Answer;

impl Parent {
    fn insert(&mut self, cx: &mut Context<'_, Self>) {
        if self.next < self.last {
            let task = self.tasks.at(self.next);
            cx.insert(task, ());
            cx.send(task, Work(cx.this(), self.migrates));
            self.next += 1;
        }
    }
}

impl Object for Parent {
    type Index = i64;
    type Init = (u32, Array<Task>, Tasks);

    fn new((key, tasks, Tasks { count, at_once, migrates }): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let mut parent = Self { key, tasks, next: 0, ended: 0, last: count, migrates };
        if cx.index() + 1 == i64::from(cx.pes()) {
            (0..at_once).for_each(|_| parent.insert(cx));
        }
        parent
    }
}

impl Entry<Answer> for Parent {
    fn call(&mut self, _: Answer, cx: &mut Context<'_, Self>) {
        self.ended += 1;
        if self.ended == self.last {
            give(self.key, self.ended);
            return cx.when_quiet(cx.this());
        }
        self.insert(cx);
    }
}

impl Entry<Quiet> for Parent {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        cx.exit(0);
    }
}

impl Object for Task {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

impl Entry<Work> for Task {
    fn call(&mut self, Work(parent, migrates): Work, cx: &mut Context<'_, Self>) {
        if migrates {
            cx.send(cx.this(), Work(parent, false));
            return cx.migrate_to((cx.pe() + 1) % cx.pes());
        }
        cx.send(parent, Answer);
        cx.remove();
    }
}

/// Pairs and removed elements that are kept after some tasks.
fn keep_of(place: (u32, u32), which: Tasks) -> (u64, u64) {
    let (to, from) = channel();
    let key = results(to);
    let program = || {
        let program = Program::new().class::<Parent>(|c| c.entry::<Answer>().entry::<Quiet>());
        program.class::<Task>(|c| c.entry::<Work>())
    };
    let outcomes = run_with(place, &Options::default(), program, move |cx| {
        let tasks = cx.create_sparse::<Task>(());
        cx.create_group::<Parent>((key, tasks, which));
    });
    let ended: Vec<i64> = from.try_iter().map(|any| *any.downcast().expect("a result")).collect();
    assert_eq!(ended, [which.count], "{place:?}");
    let all = outcomes.into_iter().flat_map(|outcome| outcome.expect("the program ends").counts);
    all.fold((0, 0), |(pairs, removed), counts| (pairs + counts.pairs, removed + counts.removed))
}

#[test]
fn what_is_kept_of_removed_elements_does_not_grow_with_their_number() {
    for place in PLACES {
        for count in [200, 2000] {
            let (pairs, removed) = keep_of(place, Tasks { count, at_once: 8, migrates: false });
            assert!(
                pairs <= 200 && removed <= 100,
                "{place:?}: {count} tasks: {pairs} pairs, {removed} removed"
            );
        }
        // the epoch of an element that has migrated is kept, its pairs are not
        let (pairs, removed) = keep_of(place, Tasks { count: 1000, at_once: 8, migrates: true });
        assert!(pairs <= 200 && removed <= 1000, "{place:?}: {pairs} pairs, {removed} removed");
    }
}

#[test]
fn nothing_is_kept_of_elements_to_which_messages_came_before_they_were_inserted() {
    for place in PLACES {
        let (pairs, removed) = keep_of(place, Tasks { count: 2000, at_once: 2000, migrates: false });
        assert!(pairs <= 200 && removed <= 100, "{place:?}: {pairs} pairs, {removed} removed");
    }
}

/// Calls `at_sync` in each round after it has sent words to all others in the first, and to its neighbour in the rest.
#[derive(Serialize, Deserialize)]
struct Saved {
    key: u32,
    round: u32,
    rounds: u32,
    taken: i64,
    waits: bool,
}

impl Saved {
    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        let count = if self.round == 0 { OBJECTS - 1 } else { 1 };
        for other in 1..=count {
            cx.send(cx.array().at((cx.index() + other) % OBJECTS), Word(0, 0));
        }
        self.round += 1;
    }

    fn end_round(&mut self, cx: &mut Context<'_, Self>) {
        let expected = if self.round == 1 { OBJECTS - 1 } else { 1 };
        if self.taken == expected && !self.waits {
            self.taken = 0;
            if self.round == self.rounds {
                let to = cx.reply_to(cx.array().at(0));
                return cx.contribute([1i64], Op::Sum, to);
            }
            self.waits = true;
            cx.at_sync();
        }
    }
}

impl Object for Saved {
    type Index = i64;
    type Init = (u32, u32);

    fn new((key, rounds): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let mut saved = Self { key, round: 0, rounds, taken: 0, waits: false };
        saved.go_on(cx);
        saved
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.waits = false;
        self.go_on(cx);
        // the word for this round may have come before
        self.end_round(cx);
    }
}

impl Entry<Word> for Saved {
    fn call(&mut self, _: Word, cx: &mut Context<'_, Self>) {
        self.taken += 1;
        self.end_round(cx);
    }
}

impl Entry<Reduced> for Saved {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        give(self.key, result.i64s()[0]);
        cx.exit(0);
    }
}

/// Bytes of each checkpoint.
fn checkpoints(place: (u32, u32), rounds: u32) -> Vec<u64> {
    let (to, from) = channel();
    let key = results(to);
    let folder = tempfile::tempdir().expect("a folder");
    let options = CheckpointOptions {
        memory: false,
        disk: Some(folder.path().to_owned()),
        ..CheckpointOptions::new(Period::Rounds(1))
    };
    let options = Options { checkpoint: Some(options), ..Options::default() };
    let program = || Program::new().class::<Saved>(|c| c.entry::<Word>().entry::<Reduced>());
    let outcomes = run_with(place, &options, program, move |cx| {
        cx.create_array::<Saved>(&[OBJECTS as u32], (key, rounds));
    });
    let counts: Vec<i64> = from.try_iter().map(|any| *any.downcast().expect("a result")).collect();
    assert_eq!(counts, [OBJECTS], "{place:?}");
    let of_first = outcomes.into_iter().next().expect("a rank").expect("the program ends");
    of_first.checkpoints.iter().map(|report| report.bytes).collect()
}

#[test]
fn a_checkpoint_has_no_pairs_that_no_longer_talk() {
    for place in [(1, 1), (2, 1), (1, 2)] {
        let [few, many] = [10, 60].map(|rounds| checkpoints(place, rounds));
        let (first, last) = (few[0], *few.last().expect("checkpoints"));
        assert!(last < first / 2, "{place:?}: {few:?}");
        let after = *many.last().expect("checkpoints");
        assert!(after < last + last / 10, "{place:?}: {many:?}");
    }
}
