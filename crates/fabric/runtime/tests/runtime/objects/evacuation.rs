// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evacuated PEs.

use colony_runtime::{BalanceOptions, Context, Entry, Main, Object, Op, Options, Program, Quiet, Reduced};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, results, run_with};

const NODES: i64 = 24;
const HOPS: u32 = 40;
/// In three rounds, `rotate` has put objects on each of up to four PEs.
const ROUNDS: u32 = 3;

/// An object that passes messages on and reports its PE when asked.
#[derive(Serialize, Deserialize)]
struct Node {
    key: u32,
    hops: u32,
    /// Load balancings so far.
    rounds: u32,
}

#[derive(Serialize, Deserialize)]
struct Hop(u32);

/// Asks for the object's PE.
#[derive(Serialize, Deserialize)]
struct Where;

/// Readmits the last PE, and balances.
#[derive(Serialize, Deserialize)]
struct Readmit;

impl Object for Node {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key, hops: 0, rounds: 0 }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.rounds += 1;
        give(self.key, (cx.index(), cx.pe(), self.hops));
        if self.rounds < ROUNDS {
            return cx.at_sync();
        }
        let done = cx.reply_to(cx.array().at(0));
        cx.contribute([1i64], Op::Sum, done);
    }
}

impl Entry<Hop> for Node {
    fn call(&mut self, Hop(left): Hop, cx: &mut Context<'_, Self>) {
        self.hops += 1;
        if left == HOPS / 2 && cx.index() == 3 {
            cx.evacuate(cx.pes() - 1);
        }
        if left > 0 {
            cx.send(cx.array().at((cx.index() + 7) % NODES), Hop(left - 1));
        }
    }
}

impl Entry<Quiet> for Node {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        cx.broadcast(cx.array(), Where);
    }
}

impl Entry<Where> for Node {
    fn call(&mut self, _: Where, cx: &mut Context<'_, Self>) {
        give(self.key, (cx.index(), cx.pe(), self.hops));
        let done = cx.reply_to(cx.array().at(0));
        cx.contribute([0i64], Op::Sum, done);
    }
}

impl Entry<Reduced> for Node {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        if result.i64s() == [0] && self.rounds == 0 {
            cx.readmit(cx.pes() - 1);
            cx.broadcast(cx.array(), Readmit);
        } else {
            cx.exit(0);
        }
    }
}

impl Entry<Readmit> for Node {
    fn call(&mut self, _: Readmit, cx: &mut Context<'_, Self>) {
        cx.at_sync();
    }
}

fn program() -> Program {
    Program::new().class::<Node>(|c| {
        c.entry::<Hop>().entry::<Where>().entry::<Readmit>().entry::<Quiet>().entry::<Reduced>()
    })
}

fn options() -> Options {
    Options { balance: Some(BalanceOptions::strategy("rotate").expect("known")), ..Options::default() }
}

/// Where each object was after the evacuation, and after each load balancing with the PE readmitted.
fn places(place: (u32, u32)) -> [Vec<(i64, u32, u32)>; 2] {
    let (to, from) = std::sync::mpsc::channel();
    let key = results(to);
    let begin = move |cx: &mut Context<'_, Main>| {
        let nodes = cx.create_array::<Node>(&[NODES as u32], key);
        cx.broadcast(nodes, Hop(HOPS));
        cx.when_quiet(nodes.at(0));
    };
    for outcome in run_with(place, &options(), program, begin) {
        assert_eq!(outcome.expect("the program ends").code, 0, "{place:?}");
    }
    let all = from.try_iter().map(|any| *any.downcast::<(i64, u32, u32)>().expect("a place"));
    let mut all: Vec<_> = all.collect();
    assert_eq!(all.len(), (1 + ROUNDS as usize) * NODES as usize, "{place:?}: every object is there once");
    let readmitted = all.split_off(NODES as usize);
    all.sort_unstable();
    assert!(all.iter().map(|(index, ..)| *index).eq(0..NODES), "{place:?}: {all:?}");
    [all, readmitted]
}

#[test]
fn an_evacuated_pe_has_no_objects_until_it_is_readmitted_and_no_message_is_lost() {
    for place in PLACES {
        let [evacuated, readmitted] = places(place);
        let (pes, last) = (place.0 * place.1, place.0 * place.1 - 1);
        let hops: u32 = evacuated.iter().map(|(.., hops)| hops).sum();
        assert_eq!(hops, NODES as u32 * (HOPS + 1), "{place:?}");
        let on_last = |places: &[(i64, u32, u32)]| places.iter().filter(|(_, pe, _)| *pe == last).count();
        // the objects of the only PE have nowhere to go
        assert_eq!(
            on_last(&evacuated),
            if pes == 1 { NODES as usize } else { 0 },
            "{place:?}: {evacuated:?}"
        );
        assert!(on_last(&readmitted) > 0, "{place:?}: {readmitted:?}");
    }
}

#[test]
fn a_pe_that_does_not_exist_cannot_be_evacuated() {
    let outcomes = run_with((1, 2), &options(), program, |cx| cx.evacuate(2));
    let error = outcomes.into_iter().next().expect("a rank").expect_err("it fails").to_string();
    assert!(error.contains("cannot evacuate PE 2: the job has PEs 0 to 1"), "{error}");
}
