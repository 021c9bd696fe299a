// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threaded entry methods: futures that wait for replies and for their object.

use colony_runtime::{Array, Context, Entry, Object, Program, Respond};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run};

/// Asks its neighbours, and answers them meanwhile.
#[derive(Serialize, Deserialize)]
struct Asker {
    key: u32,
    value: u64,
    done: u32,
    told: u32,
}

#[derive(Serialize, Deserialize)]
struct Ask(u64);
#[derive(Serialize, Deserialize)]
struct Start;
#[derive(Serialize, Deserialize)]
struct Told;

impl Object for Asker {
    type Index = i64;
    type Init = u32;

    fn new(key: u32, cx: &mut Context<'_, Self>) -> Self {
        Self { key, value: cx.index() as u64, done: 0, told: 0 }
    }
}

impl Respond<Ask> for Asker {
    type Reply = u64;

    fn respond(&mut self, ask: Ask, _: &mut Context<'_, Self>) -> u64 {
        self.value * ask.0
    }
}

impl Entry<Start> for Asker {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        let (array, this): (Array<Self>, _) = (cx.array(), cx.index());
        for factor in 1..=3u64 {
            cx.spawn(move |me| async move {
                let right = me.ask(array.at((this + 1) % 8), Ask(factor)).await;
                let left = me.ask(array.at((this + 7) % 8), Ask(factor)).await;
                me.with(move |asker, cx| {
                    asker.done += 1;
                    let sum = ((this as u64 + 1) % 8 + (this as u64 + 7) % 8) * factor;
                    assert_eq!(left + right, sum);
                    if asker.done == 3 {
                        cx.send(array.at(0), Told);
                    }
                })
                .await;
            });
        }
        if cx.index() == 0 {
            cx.spawn(|me| async move {
                me.until(|asker: &Self| asker.told == 8 && asker.done == 3).await;
                me.with(|asker: &mut Self, cx| {
                    give(asker.key, asker.told);
                    cx.exit(0);
                })
                .await;
            });
        }
    }
}

impl Entry<Told> for Asker {
    fn call(&mut self, _: Told, _: &mut Context<'_, Self>) {
        self.told += 1;
    }
}

#[test]
fn futures_wait_for_replies_while_their_objects_answer_others() {
    let program = || Program::new().class::<Asker>(|c| c.respond::<Ask>().entry::<Start>().entry::<Told>());
    for place in PLACES {
        let told: Vec<u32> = run(place, program, |cx, key| {
            let array = cx.create_array::<Asker>(&[8], key);
            cx.broadcast(array, Start);
        });
        assert_eq!(told, [8], "{place:?}");
    }
}
