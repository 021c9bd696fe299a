// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load balancing inside a program.

use std::sync::Arc;

use colony_balance::config::Config;
use colony_balance::strategy::Strategies;
use colony_balance::topology::Topology;
use colony_balance::trigger::Trigger;
use colony_runtime::{BalanceOptions, Context, Entry, Object, Op, Options, Program, Reduced};
use serde::{Deserialize, Serialize};

use crate::{PLACES, run_with};

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
        let strategy = Strategies::parse("greedy").expect("known");
        let config = Arc::new(Config::always(strategy, Trigger::AtSync));
        let options = Options {
            balance: Some(BalanceOptions { config, topology: Topology::Flat }),
            ..Options::default()
        };
        let outcomes = run_with(place, &options, program, |cx| {
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
