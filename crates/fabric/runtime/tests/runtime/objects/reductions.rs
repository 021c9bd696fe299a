// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions, over all elements and while they migrate.

use colony_runtime::{Context, Entry, Object, Op, Program, Reduced, Values};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run};

#[derive(Serialize, Deserialize)]
struct Part {
    key: u32,
    round: u32,
}

#[derive(Serialize, Deserialize)]
struct Go;

const ROUNDS: u32 = 20;

impl Object for Part {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key, round: 0 }
    }
}

impl Part {
    fn contribute(&mut self, cx: &mut Context<'_, Self>) {
        let op = [Op::Sum, Op::Max, Op::Min][self.round as usize % 3];
        let to = cx.reply_to_all(cx.array());
        cx.contribute([cx.index() + i64::from(self.round), 1], op, to);
        self.round += 1;
        let pe = (cx.pe() + cx.index() as u32 + self.round) % cx.pes();
        cx.migrate_to(pe);
    }
}

impl Entry<Go> for Part {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.contribute(cx);
    }
}

impl Entry<Reduced> for Part {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        assert_eq!(result.number + 1, u64::from(self.round));
        let (round, values) = (result.number as i64, result.i64s().to_vec());
        let expected = match round % 3 {
            0 => [1 + 2 + 3 + 4 + 5 + 6 + 7 * round, 7],
            1 => [6 + round, 1],
            _ => [round, 1],
        };
        assert_eq!(values, expected);
        if self.round < ROUNDS {
            self.contribute(cx);
        } else if cx.index() == 0 {
            give(self.key, values[0]);
            cx.exit(0);
        }
    }
}

#[test]
fn reductions_are_complete_and_in_order_while_elements_migrate() {
    let program = || Program::new().class::<Part>(|c| c.entry::<Go>().entry::<Reduced>());
    for place in PLACES {
        let results: Vec<i64> = run(place, program, |cx, key| {
            let parts = cx.create_array::<Part>(&[7], key);
            cx.broadcast(parts, Go);
        });
        assert_eq!(results, [6 + 19], "{place:?}");
    }
}

/// An element of a sparse array.
#[derive(Serialize, Deserialize)]
struct Sparse {
    key: u32,
}

impl Object for Sparse {
    type Index = [i32; 3];
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key }
    }
}

impl Entry<Go> for Sparse {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        let to = cx.reply_to(cx.array().at([0, 0, 0]));
        let [x, y, z] = cx.index();
        cx.contribute([f64::from(x), f64::from(y), f64::from(z)], Op::Gather, to);
    }
}

impl Entry<Reduced> for Sparse {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        give(self.key, result.values);
        cx.exit(0);
    }
}

#[derive(Serialize, Deserialize)]
struct Begin(colony_runtime::Array<Sparse>);

impl Object for Begin {
    type Index = i64;
    type Init = colony_runtime::Array<Sparse>;

    fn new(array: Self::Init, cx: &mut Context<'_, Self>) -> Self {
        cx.when_quiet(cx.this());
        Self(array)
    }
}

impl Entry<colony_runtime::Quiet> for Begin {
    fn call(&mut self, _: colony_runtime::Quiet, cx: &mut Context<'_, Self>) {
        cx.broadcast(self.0, Go);
    }
}

#[test]
fn inserted_elements_are_counted_and_gathered_in_the_order_of_their_indices() {
    let program = || {
        Program::new()
            .class::<Sparse>(|c| c.entry::<Go>().entry::<Reduced>())
            .class::<Begin>(|c| c.entry::<colony_runtime::Quiet>())
    };
    for place in PLACES {
        let results: Vec<Values> = run(place, program, |cx, key| {
            let array = cx.create_sparse::<Sparse>(key);
            for at in [[5, 1, 2], [0, 0, 0], [3, 3, 3], [1 << 30, 0, 7]] {
                cx.insert(array.at(at), key);
            }
            cx.create_one::<Begin>(array);
        });
        let Values::Gathered(all) = &results[0] else { panic!("{results:?}") };
        let first: Vec<f64> =
            all.iter().map(|(_, v)| if let Values::F64(v) = v { v[0] } else { panic!("f64") }).collect();
        assert_eq!(first, [0.0, 3.0, 5.0, f64::from(1 << 30)], "{place:?}");
    }
}
