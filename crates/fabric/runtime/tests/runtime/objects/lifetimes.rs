// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements that are inserted and removed while messages and reductions are under way.

use colony_runtime::{Array, Context, Entry, Object, Op, Program, Reduced};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run};

/// Takes numbered messages. It migrates after each, and every few messages another element takes its index.
#[derive(Serialize, Deserialize)]
struct Phoenix {
    key: u32,
    next: u32,
}

#[derive(Serialize, Deserialize)]
struct Number(u32);

const NUMBERS: u32 = 60;

impl Object for Phoenix {
    type Index = i64;
    type Init = (u32, u32);

    fn new((key, next): Self::Init, _: &mut Context<'_, Self>) -> Self {
        Self { key, next }
    }
}

impl Entry<Number> for Phoenix {
    fn call(&mut self, Number(number): Number, cx: &mut Context<'_, Self>) {
        assert_eq!(number, self.next, "in order, whichever element of the index takes it");
        self.next += 1;
        if self.next == NUMBERS {
            give(self.key, self.next);
            return cx.exit(0);
        }
        if number.is_multiple_of(7) {
            cx.remove();
            cx.insert(cx.this(), (self.key, self.next));
        } else {
            cx.migrate_to((cx.pe() + 1) % cx.pes());
        }
    }
}

/// Sends the numbers, from another PE if there is one.
#[derive(Serialize, Deserialize)]
struct Source;

impl Object for Source {
    type Index = i64;
    type Init = Array<Phoenix>;

    fn new(to: Self::Init, cx: &mut Context<'_, Self>) -> Self {
        if cx.index() + 1 == i64::from(cx.pes()) {
            for number in 0..NUMBERS {
                cx.send(to.at(5), Number(number));
            }
        }
        Self
    }
}

#[test]
fn messages_to_an_index_go_on_in_order_while_elements_there_are_removed_and_inserted() {
    let program = || Program::new().class::<Phoenix>(|c| c.entry::<Number>()).class::<Source>(|c| c);
    for place in PLACES {
        let taken: Vec<u32> = run(place, program, |cx, key| {
            let array = cx.create_sparse::<Phoenix>((key, 0));
            cx.insert(array.at(5), (key, 0));
            cx.create_group::<Source>(array);
        });
        assert_eq!(taken, [NUMBERS], "{place:?}");
    }
}

/// Contributes to reduction after reduction. Element 0 inserts another before each; the others leave after three.
#[derive(Serialize, Deserialize)]
struct Mayfly {
    key: u32,
    /// The number of its next contribution, and of its last.
    next: u64,
    last: u64,
}

const REDUCTIONS: u64 = 12;
const FIRST: i64 = 4;

impl Mayfly {
    fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        if cx.index() == 0 {
            let inserted = Self::init(self.key, self.next, self.next + 2);
            cx.insert(cx.array().at(100 + self.next as i64), inserted);
        }
        let all = cx.reply_to_all(cx.array());
        cx.contribute([1i64], Op::Sum, all);
        self.next += 1;
        if self.next > self.last {
            return cx.remove();
        }
        cx.migrate_to((cx.pe() + 1 + self.next as u32) % cx.pes());
    }

    fn init(key: u32, next: u64, last: u64) -> (u32, u64, u64) {
        (key, next, last)
    }
}

impl Object for Mayfly {
    type Index = i64;
    type Init = (u32, u64, u64);

    fn new((key, next, last): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let mut mayfly = Self { key, next, last: if cx.index() == 0 { u64::MAX } else { last } };
        mayfly.go_on(cx);
        mayfly
    }
}

impl Entry<Reduced> for Mayfly {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        // an element may have been inserted before the result of the reduction before its first one arrives
        if result.number + 1 < self.next {
            return;
        }
        if cx.index() == 0 {
            give(self.key, result.i64s()[0]);
            if result.number + 1 == REDUCTIONS {
                return cx.exit(0);
            }
        }
        self.go_on(cx);
    }
}

#[test]
fn a_reduction_counts_an_element_from_its_insertion_to_its_removal() {
    let program = || Program::new().class::<Mayfly>(|c| c.entry::<Reduced>());
    for place in PLACES {
        let counts: Vec<i64> = run(place, program, |cx, key| {
            cx.create_array::<Mayfly>(&[FIRST as u32], Mayfly::init(key, 0, 4));
        });
        // element 0, the three others up to reduction 4, and three inserted ones a reduction
        let expected =
            (0..REDUCTIONS as i64).map(|n| 1 + if n <= 4 { FIRST - 1 } else { 0 } + (n + 1).min(3));
        assert_eq!(counts, expected.collect::<Vec<_>>(), "{place:?}");
    }
}
