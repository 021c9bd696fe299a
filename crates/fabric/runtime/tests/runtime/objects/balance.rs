// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load balancing inside a program.

use colony_runtime::{BalanceOptions, Context, Entry, Object, Op, Options, Program, Reduced};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run_with};

/// Load balancing at every `at_sync`.
fn options(strategy: &str) -> Options {
    Options { balance: Some(BalanceOptions::strategy(strategy).expect("known")), ..Options::default() }
}

/// An object whose work does not end with its turn: the first ones have most of it.
#[derive(Serialize, Deserialize)]
struct Worker {
    rounds: u32,
    sum: u64,
}

#[derive(Serialize, Deserialize)]
struct Go;

impl Worker {
    fn work(&mut self, cx: &mut Context<'_, Self>) {
        let turns = if cx.index() < 8 { 400_000 } else { 4_000 };
        for i in 0..turns {
            self.sum = std::hint::black_box(self.sum.wrapping_mul(31).wrapping_add(i));
        }
        self.rounds += 1;
        cx.at_sync();
    }
}

impl Object for Worker {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self { rounds: 0, sum: 0 }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        if self.rounds < 6 {
            self.work(cx);
        } else {
            let to = cx.reply_to(cx.array().at(0));
            cx.contribute([1i64], Op::Sum, to);
        }
    }
}

impl Entry<Go> for Worker {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.work(cx);
    }
}

impl Entry<Reduced> for Worker {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        assert_eq!(result.i64s(), [32]);
        cx.exit(0);
    }
}

#[test]
fn objects_migrate_from_the_pe_that_has_most_load_and_go_on() {
    let program = || Program::new().class::<Worker>(|c| c.entry::<Go>().entry::<Reduced>());
    for place in PLACES {
        let outcomes = run_with(place, &options("greedy"), program, |cx| {
            let workers = cx.create_array::<Worker>(&[32], ());
            cx.broadcast(workers, Go);
        });
        let outcomes: Vec<_> = outcomes.into_iter().map(|o| o.expect("it ends")).collect();
        let reports = &outcomes[0].balance;
        assert_eq!(reports.len(), 6, "{place:?}");
        let pes = f64::from(place.0 * place.1);
        if pes > 1.0 {
            assert!(reports[0].moved > 0, "{reports:?}");
            let [before, _] = reports[0].imbalance;
            assert!(before > 1.2, "the first PE has most: {reports:?}");
            let [first_before, last_before] = [reports[0].imbalance[0], reports[5].imbalance[0]];
            assert!(last_before < first_before, "what was decided holds: {reports:?}");
        }
    }
}

#[test]
fn without_a_strategy_objects_resume_where_they_are() {
    let program = || Program::new().class::<Worker>(|c| c.entry::<Go>().entry::<Reduced>());
    for place in PLACES {
        for outcome in run_with(place, &Options::default(), program, |cx| {
            let workers = cx.create_array::<Worker>(&[32], ());
            cx.broadcast(workers, Go);
        }) {
            let outcome = outcome.expect("it ends");
            assert!(outcome.balance.is_empty() && outcome.counts.iter().all(|c| c.departed == 0));
        }
    }
}

/// An object that other objects send to other PEs while it waits for load balancing.
#[derive(Serialize, Deserialize)]
struct Restless {
    key: u32,
    random: u64,
    rounds: u32,
}

/// Asks an object to move, some times.
#[derive(Serialize, Deserialize)]
struct Move(u32);

const ROUNDS: u32 = 12;
const RESTLESS: i64 = 24;

impl Restless {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        for _ in 0..3 {
            let to = self.random(RESTLESS as u64) as i64;
            cx.send(cx.array().at(to), Move(3));
        }
        cx.at_sync();
        if self.random(3) == 0 {
            cx.migrate_to(self.random(u64::from(cx.pes())) as u32);
        }
    }
}

impl Object for Restless {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, cx: &mut Context<'_, Self>) -> Self {
        Self { key, random: cx.index() as u64 * 7919 + 3, rounds: 0 }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return self.begin(cx);
        }
        give(self.key, self.rounds);
        let to = cx.reply_to(cx.array().at(0));
        cx.contribute([1i64], Op::Sum, to);
    }
}

impl Entry<Go> for Restless {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.begin(cx);
    }
}

impl Entry<Move> for Restless {
    fn call(&mut self, Move(left): Move, cx: &mut Context<'_, Self>) {
        let to = self.random(u64::from(cx.pes())) as u32;
        cx.migrate_to(to);
        if left > 0 {
            let next = self.random(RESTLESS as u64) as i64;
            cx.send(cx.array().at(next), Move(left - 1));
        }
    }
}

impl Entry<Reduced> for Restless {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        assert_eq!(result.i64s(), [RESTLESS]);
        cx.exit(0);
    }
}

/// An object that takes no part.
#[derive(Serialize, Deserialize)]
struct Bystander;

impl Object for Bystander {
    type Index = i64;
    type Init = ();
    const BALANCED: bool = false;

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

#[test]
fn objects_that_migrate_while_they_wait_go_on_once_after_every_round() {
    let program = || {
        Program::new()
            .class::<Restless>(|c| c.entry::<Go>().entry::<Move>().entry::<Reduced>())
            .class::<Bystander>(|c| c)
    };
    for place in PLACES {
        for strategy in ["rotate", "random", "greedy"] {
            let (to, from) = std::sync::mpsc::channel();
            let key = super::results(to);
            let outcomes = run_with(place, &options(strategy), program, move |cx| {
                cx.create_one::<Bystander>(());
                cx.create_array::<Bystander>(&[5], ());
                let restless = cx.create_array::<Restless>(&[RESTLESS as u32], key);
                cx.broadcast(restless, Go);
            });
            let outcomes: Vec<_> = outcomes.into_iter().map(|o| o.expect("it ends")).collect();
            assert_eq!(outcomes[0].balance.len(), ROUNDS as usize, "{place:?} {strategy}");
            let rounds: Vec<u32> =
                from.try_iter().filter_map(|any| any.downcast().ok().map(|r| *r)).collect();
            assert_eq!(rounds, [ROUNDS; RESTLESS as usize], "{place:?} {strategy}");
        }
    }
}
