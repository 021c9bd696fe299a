// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups, sections, priorities, timers.

use std::time::Duration;

use colony_runtime::{Array, Context, Entry, Object, Op, Program, Reduced};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run};

/// One object on each PE.
#[derive(Serialize, Deserialize)]
struct Branch {
    key: u32,
    got: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct Hello(u32);

impl Object for Branch {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, cx: &mut Context<'_, Self>) -> Self {
        assert_eq!(cx.index(), i64::from(cx.pe()), "an element of a group is on its PE");
        Self { key, got: Vec::new() }
    }
}

impl Entry<Hello> for Branch {
    fn call(&mut self, hello: Hello, cx: &mut Context<'_, Self>) {
        self.got.push(hello.0);
        let to = cx.reply_to(cx.array().at(0));
        if self.got.len() == 2 {
            cx.contribute([i64::from(self.got[0]), i64::from(self.got[1])], Op::Sum, to);
        }
    }
}

impl Entry<Reduced> for Branch {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        give(self.key, (cx.pes(), result.i64s().to_vec()));
        cx.exit(0);
    }
}

#[test]
fn a_group_has_one_object_on_each_pe_and_a_section_gets_one_message_each() {
    let program = || Program::new().class::<Branch>(|c| c.entry::<Hello>().entry::<Reduced>());
    for place in PLACES {
        let results: Vec<(u32, Vec<i64>)> = run(place, program, |cx, key| {
            let group: Array<Branch> = cx.create_group(key);
            let all = group.section((0..cx.pes()).map(i64::from));
            cx.multicast(&all, Hello(1));
            cx.multicast(&all, Hello(2));
        });
        let pes = place.0 * place.1;
        assert_eq!(results, [(pes, vec![i64::from(pes), 2 * i64::from(pes)])]);
    }
}

/// Notes the order of messages.
#[derive(Serialize, Deserialize)]
struct Order {
    key: u32,
    got: Vec<i32>,
}

#[derive(Serialize, Deserialize)]
struct Ranked(i32);

impl Object for Order {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key, got: Vec::new() }
    }
}

impl Entry<Ranked> for Order {
    fn call(&mut self, message: Ranked, cx: &mut Context<'_, Self>) {
        self.got.push(message.0);
        if message.0 == 100 {
            // a sender of its own for each rank, so that no order of one pair is in the way
            for rank in [5, 0, -5, 3, -1] {
                let sender = cx.array().at(1 + i64::from(rank + 10));
                cx.send(sender, Ranked(1000 + rank));
            }
        } else if self.got.len() == 6 {
            give(self.key, self.got.clone());
            cx.exit(0);
        }
        if message.0 >= 900 && message.0 != 100 {
            let rank = message.0 - 1000;
            cx.send_with_priority(cx.array().at(0), Ranked(rank), rank);
        }
    }
}

#[test]
fn messages_of_smaller_priority_values_run_first() {
    let program = || Program::new().class::<Order>(|c| c.entry::<Ranked>());
    let results: Vec<Vec<i32>> = run((1, 1), program, |cx, key| {
        let array = cx.create_array::<Order>(&[30], key);
        cx.send(array.at(0), Ranked(100));
    });
    assert_eq!(results[0].len(), 6);
    let place = |rank| results[0].iter().position(|&r| r == rank).expect("all arrive");
    assert!(place(0) < place(3) && place(3) < place(5), "{results:?}");
}

/// Sends itself messages later.
#[derive(Serialize, Deserialize)]
struct Clock {
    key: u32,
    ticks: u32,
}

#[derive(Serialize, Deserialize)]
struct Tick;

impl Object for Clock {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, cx: &mut Context<'_, Self>) -> Self {
        cx.send_after(Duration::from_millis(2), cx.this(), Tick);
        Self { key, ticks: 0 }
    }
}

impl Entry<Tick> for Clock {
    fn call(&mut self, _: Tick, cx: &mut Context<'_, Self>) {
        self.ticks += 1;
        if self.ticks == 5 {
            give(self.key, self.ticks);
            return cx.exit(0);
        }
        cx.send_after(Duration::from_millis(2), cx.this(), Tick);
        let pe = (cx.pe() + 1) % cx.pes();
        cx.migrate_to(pe);
    }
}

#[test]
fn a_timer_finds_its_object_where_it_has_gone() {
    let program = || Program::new().class::<Clock>(|c| c.entry::<Tick>());
    for place in PLACES {
        let ticks: Vec<u32> = run(place, program, |cx, key| {
            cx.create_one::<Clock>(key);
        });
        assert_eq!(ticks, [5], "{place:?}");
    }
}
