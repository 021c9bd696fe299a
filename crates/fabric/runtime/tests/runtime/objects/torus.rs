// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of objects over the window of compute nodes; the ranks are threads.

use std::sync::Arc;

use colony_runtime::transport::Transport;
use colony_runtime::transport::torus::TorusTransport;
use colony_runtime::{
    Bulk, Context, Entry, Main, Object, Op, Options, Outcome, Program, Reduced, RunError, run_on,
};
use colony_torus::{Dims, Torus, Window};
use serde::{Deserialize, Serialize};

use super::{give, results};

/// Sends every other object messages that are longer than a ring, and migrates after each round.
#[derive(Serialize, Deserialize)]
struct Talker {
    setup: Setup,
    round: u32,
    /// Messages that have arrived for this round and for the next.
    arrived: [u32; 2],
    sum: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    rounds: u32,
    words: usize,
    key: u32,
}

#[derive(Serialize, Deserialize)]
struct Go;
#[derive(Serialize, Deserialize)]
struct Long(u32, Bulk<u64>);

const OBJECTS: i64 = 6;

impl Talker {
    fn begin(&self, cx: &mut Context<'_, Self>) {
        let own = cx.index();
        for to in (0..OBJECTS).filter(|&to| to != own) {
            let words = (0..self.setup.words as u64).map(|word| word ^ own as u64).collect::<Vec<_>>();
            cx.send(cx.array().at(to), Long(self.round, words.into()));
        }
    }

    fn advance(&mut self, cx: &mut Context<'_, Self>) {
        while self.round < self.setup.rounds
            && i64::from(self.arrived[self.round as usize % 2]) == OBJECTS - 1
        {
            self.arrived[self.round as usize % 2] = 0;
            self.round += 1;
            if self.round == self.setup.rounds {
                let to = cx.reply_to(cx.array().at(0));
                return cx.contribute([self.sum.cast_signed()], Op::Sum, to);
            }
            cx.migrate_to((cx.pe() + 1) % cx.pes());
            self.begin(cx);
        }
    }
}

impl Object for Talker {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, _: &mut Context<'_, Self>) -> Self {
        Self { setup, round: 0, arrived: [0; 2], sum: 0 }
    }
}

impl Entry<Go> for Talker {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.begin(cx);
        self.advance(cx);
    }
}

impl Entry<Long> for Talker {
    fn call(&mut self, Long(round, words): Long, cx: &mut Context<'_, Self>) {
        self.sum = words.iter().fold(self.sum, |sum, word| sum.wrapping_add(*word));
        self.arrived[round as usize % 2] += 1;
        self.advance(cx);
    }
}

impl Entry<Reduced> for Talker {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        give(self.setup.key, result.i64s()[0]);
        cx.exit(0);
    }
}

/// An object that panics if told to.
#[derive(Serialize, Deserialize)]
struct Faulty;

impl Object for Faulty {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

impl Entry<Go> for Faulty {
    fn call(&mut self, _: Go, _: &mut Context<'_, Self>) {
        panic!("a fault on purpose");
    }
}

fn program() -> Program {
    Program::new()
        .class::<Talker>(|c| c.entry::<Go>().entry::<Long>().entry::<Reduced>())
        .class::<Faulty>(|c| c.entry::<Go>())
}

fn window(ranks: u32) -> (tempfile::TempDir, Arc<Window>) {
    let folder = tempfile::tempdir().expect("a folder");
    let dims = Dims::new([ranks as usize, 1, 1]).expect("a torus");
    let window = Window::create(&folder.path().join("window"), dims).expect("made");
    (folder, Arc::new(window))
}

/// Runs a program on ranks of a torus, and gives what each rank's part came to.
fn run_torus<F>((ranks, threads): (u32, u32), main: F) -> Vec<Result<Outcome, RunError>>
where
    F: FnOnce(&mut Context<'_, Main>) + Send + Clone + 'static,
{
    let (_folder, window) = window(ranks);
    let options = Options { threads, ..Options::default() };
    // before any rank runs: one that joins after a failure would be refused
    let joined: Vec<_> = (0..ranks as usize)
        .map(|rank| Torus::attach(window.clone(), rank).expect("the rank is free"))
        .collect();
    std::thread::scope(|scope| {
        let start = |torus| {
            let (main, options) = (main.clone(), options.clone());
            scope.spawn(move || run_on(program(), &options, Box::new(TorusTransport::new(torus)), main))
        };
        let handles: Vec<_> = joined.into_iter().map(start).collect();
        handles.into_iter().map(|h| h.join().expect("a rank")).collect()
    })
}

#[test]
fn messages_longer_than_the_inboxes_arrive_in_both_directions_while_objects_migrate() {
    let (to, from) = std::sync::mpsc::channel();
    // 240 KB: 15 times what a ring holds
    let setup = Setup { rounds: 4, words: 30_000, key: results(to) };
    let places = [(1, 1), (2, 1), (4, 1), (2, 2)];
    for place in places {
        let outcomes = run_torus(place, move |cx| {
            let talkers = cx.create_array::<Talker>(&[OBJECTS as u32], setup);
            cx.broadcast(talkers, Go);
        });
        for outcome in outcomes {
            assert_eq!(outcome.expect("the program ends").code, 0, "{place:?}");
        }
    }
    let sums: Vec<i64> = from.try_iter().map(|sum| *sum.downcast::<i64>().expect("a sum")).collect();
    assert_eq!(sums.len(), places.len());
    assert!(sums[0] > 0 && sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
}

#[test]
fn a_panic_on_one_rank_of_a_torus_ends_the_others_with_one_error() {
    for place in [(2, 1), (4, 1), (2, 2)] {
        let outcomes = run_torus(place, |cx| {
            let faulty = cx.create_group::<Faulty>(());
            cx.send(faulty.at(i64::from(cx.pes() - 1)), Go);
        });
        let failed = |outcome: &Result<Outcome, RunError>| matches!(outcome, Err(RunError::Program(_)));
        assert_eq!(outcomes.iter().filter(|o| failed(o)).count(), 1, "{outcomes:?}");
        assert!(failed(outcomes.last().expect("a rank")), "{outcomes:?}");
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    }
}

#[test]
fn a_rank_that_leaves_a_torus_too_early_ends_the_others() {
    let (_folder, window) = window(2);
    let [mut stays, leaves] =
        [0, 1].map(|rank| TorusTransport::new(Torus::attach(window.clone(), rank).expect("joins")));
    assert!(!stays.poll(&mut |_, _| {}).expect("nothing has happened"));
    drop(leaves);
    let lost = stays.finish().expect_err("the other rank has left").to_string();
    assert_eq!(lost, "the job was ended by rank 1");
}
