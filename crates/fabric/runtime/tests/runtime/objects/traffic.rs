// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between objects in the load database.

use std::path::Path;

use colony_balance::database::Database;
use colony_runtime::{BalanceOptions, Bulk, Context, Entry, Object, Op, Options, Program, Reduced, Respond};
use serde::{Deserialize, Serialize};

use super::{PLACES, run_with};

const PAIRS: i64 = 8;
const ROUNDS: u32 = 3;

/// An object that sends its partner, which begins on another PE, a long and two short messages in a round.
#[derive(Serialize, Deserialize)]
struct Partner {
    rounds: u32,
    arrived: u32,
    is_ready: bool,
}

#[derive(Serialize, Deserialize)]
struct Go;

#[derive(Serialize, Deserialize)]
struct Long(Bulk<u64>);

#[derive(Serialize, Deserialize)]
struct Short(u8);

#[derive(Serialize, Deserialize)]
struct Question;

impl Partner {
    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        let partner = cx.array().at((cx.index() + PAIRS) % (2 * PAIRS));
        cx.send(partner, Long(vec![7; 100].into()));
        cx.send(partner, Short(1));
        cx.multicast(&cx.array().section([partner.index()]), Short(2));
        self.is_ready = true;
        self.go_on(cx);
    }

    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        if self.is_ready && self.arrived == 3 {
            (self.is_ready, self.arrived) = (false, 0);
            cx.at_sync();
        }
    }

    fn arrive(&mut self, cx: &mut Context<'_, Self>) {
        self.arrived += 1;
        self.go_on(cx);
    }
}

impl Object for Partner {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self { rounds: 0, arrived: 0, is_ready: false }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return self.begin(cx);
        }
        let to = cx.reply_to(cx.array().at(0));
        cx.contribute([1i64], Op::Sum, to);
    }
}

impl Entry<Go> for Partner {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.begin(cx);
    }
}

impl Entry<Long> for Partner {
    fn call(&mut self, _: Long, cx: &mut Context<'_, Self>) {
        self.arrive(cx);
    }
}

impl Entry<Short> for Partner {
    fn call(&mut self, _: Short, cx: &mut Context<'_, Self>) {
        self.arrive(cx);
    }
}

impl Entry<Reduced> for Partner {
    fn call(&mut self, _: Reduced, cx: &mut Context<'_, Self>) {
        cx.exit(0);
    }
}

impl Respond<Question> for Partner {
    type Reply = u8;

    fn respond(&mut self, _: Question, _: &mut Context<'_, Self>) -> u8 {
        1
    }
}

fn program() -> Program {
    let entries = |c: colony_runtime::Class<Partner>| c.entry::<Go>().entry::<Long>().entry::<Short>();
    Program::new().class::<Partner>(|c| entries(c).entry::<Reduced>().respond::<Question>())
}

/// The load database that a run has recorded of an iteration.
fn recorded(prefix: &Path, iteration: u32) -> Database {
    let name = format!("{}.{iteration}.json", prefix.display());
    let bytes = std::fs::read(&name).expect("a load database");
    colony_balance::file::read(&[(name, bytes)], None).expect("one of ours").database
}

#[test]
fn every_message_between_objects_is_in_the_load_database_of_its_iteration() {
    for place in PLACES {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = folder.path().join("loads");
        let balance = BalanceOptions { record: Some(prefix.clone()), ..strategy("rotate") };
        let options = Options { balance: Some(balance), ..Options::default() };
        for outcome in run_with(place, &options, program, |cx| {
            let partners = cx.create_array::<Partner>(&[2 * PAIRS as u32], ());
            cx.broadcast(partners, Go);
        }) {
            outcome.expect("it ends");
        }
        for iteration in 0..ROUNDS {
            let database = recorded(&prefix, iteration);
            assert_eq!(database.objects() as i64, 2 * PAIRS);
            let mut pairs: Vec<_> = database.edges().iter().map(|e| (e.from, e.to)).collect();
            assert!(pairs.iter().all(|&(a, b)| pairs.contains(&(b, a))), "{place:?}: {pairs:?}");
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len() as i64, 2 * PAIRS, "{place:?}: one partner each");
            // 100 numbers and the 2 bytes of their length; two messages of 1 byte
            let of_each = |e: &colony_balance::database::Edge| (e.bytes, e.messages) == (800 + 2 + 2, 3);
            assert!(database.edges().iter().all(of_each), "{place:?}: {:?}", database.edges());
        }
    }
}

fn strategy(text: &str) -> BalanceOptions {
    BalanceOptions::strategy(text).expect("known")
}

#[test]
fn partners_come_together_if_the_strategy_considers_communication() {
    for (strategy, considers) in [("topology", true), ("hybrid:communication=false", false)] {
        let options = Options {
            balance: Some(BalanceOptions::strategy(strategy).expect("known")),
            ..Options::default()
        };
        let outcomes = run_with((2, 1), &options, program, |cx| {
            let partners = cx.create_array::<Partner>(&[2 * PAIRS as u32], ());
            cx.broadcast(partners, Go);
        });
        let outcome = outcomes.into_iter().next().expect("PE 0").expect("it ends");
        let hops: Vec<_> = outcome.balance.iter().map(|report| report.hop_bytes).collect();
        assert_eq!(hops.len(), ROUNDS as usize);
        if considers {
            // all pairs are apart, until they migrate
            let [before, after] = hops[0].expect("known");
            assert_eq!(before, f64::from(2 * PAIRS as u32) * 804.0);
            assert!(after < before, "{hops:?}");
            assert_eq!(hops[1].expect("known")[0], after, "the decision was carried out");
        } else {
            assert_eq!(hops, [None; ROUNDS as usize]);
        }
    }
}
