// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that migrate while messages are under way.

use colony_runtime::{Context, Entry, Object, Program, Quiet};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run};

/// Sends numbered messages to all others, and migrates on the way.
#[derive(Serialize, Deserialize)]
struct Walker {
    key: u32,
    walkers: u32,
    rounds: u32,
    sent: u32,
    next: Vec<u32>,
    random: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Init {
    key: u32,
    walkers: u32,
    rounds: u32,
}

#[derive(Serialize, Deserialize)]
struct Step;

#[derive(Serialize, Deserialize)]
struct Numbered {
    from: i64,
    number: u32,
}

impl Walker {
    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }
}

impl Object for Walker {
    type Index = i64;
    type Init = Init;

    fn new(init: Init, cx: &mut Context<'_, Self>) -> Self {
        let Init { key, walkers, rounds } = init;
        Self { key, walkers, rounds, sent: 0, next: vec![0; walkers as usize], random: cx.index() as u64 + 7 }
    }
}

impl Entry<Step> for Walker {
    fn call(&mut self, _: Step, cx: &mut Context<'_, Self>) {
        if self.sent == self.rounds {
            return;
        }
        for to in 0..i64::from(self.walkers) {
            cx.send(cx.array().at(to), Numbered { from: cx.index(), number: self.sent });
        }
        self.sent += 1;
        cx.send(cx.this(), Step);
        let to = self.random() % u64::from(cx.pes());
        cx.migrate_to(to as u32);
    }
}

impl Entry<Numbered> for Walker {
    fn call(&mut self, message: Numbered, cx: &mut Context<'_, Self>) {
        let next = &mut self.next[message.from as usize];
        assert_eq!(*next, message.number, "in order, from {} to {}", message.from, cx.index());
        *next += 1;
        if self.random().is_multiple_of(4) {
            let to = self.random() % u64::from(cx.pes());
            cx.migrate_to(to as u32);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Report;

impl Entry<Report> for Walker {
    fn call(&mut self, _: Report, _cx: &mut Context<'_, Self>) {
        give(self.key, self.next.iter().map(|&n| u64::from(n)).sum::<u64>());
    }
}

/// Waits for quiescence, twice: after the walk, and after the reports.
#[derive(Serialize, Deserialize)]
struct Watch {
    walkers: colony_runtime::Array<Walker>,
    asked: bool,
}

impl Object for Watch {
    type Index = i64;
    type Init = colony_runtime::Array<Walker>;

    fn new(walkers: Self::Init, cx: &mut Context<'_, Self>) -> Self {
        cx.broadcast(walkers, Step);
        cx.when_quiet(cx.this());
        Self { walkers, asked: false }
    }
}

impl Entry<Quiet> for Watch {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        if self.asked {
            return cx.exit(0);
        }
        self.asked = true;
        cx.broadcast(self.walkers, Report);
        cx.when_quiet(cx.this());
    }
}

fn program() -> Program {
    Program::new()
        .class::<Walker>(|c| c.entry::<Step>().entry::<Numbered>().entry::<Report>())
        .class::<Watch>(|c| c.entry::<Quiet>())
}

#[test]
fn every_message_arrives_once_and_in_order_while_all_objects_migrate() {
    for place in PLACES {
        let (walkers, rounds) = (9, 40);
        let counts: Vec<u64> = run(place, program, move |cx, key| {
            let walkers = cx.create_array::<Walker>(&[walkers], Init { key, walkers, rounds });
            cx.create_one::<Watch>(walkers);
        });
        assert_eq!(counts, [u64::from(walkers * rounds); 9], "{place:?}");
    }
}

/// An object that gets broadcasts while it migrates.
#[derive(Serialize, Deserialize)]
struct Listener {
    key: u32,
    heard: u32,
    last: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct Say {
    number: u32,
    last: bool,
}

impl Object for Listener {
    type Index = [i32; 2];
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key, heard: 0, last: false }
    }
}

impl Entry<Say> for Listener {
    fn call(&mut self, say: Say, cx: &mut Context<'_, Self>) {
        assert_eq!(self.heard, say.number, "broadcasts come once and in order");
        self.heard += 1;
        self.last = say.last;
        let pes = cx.pes();
        cx.migrate_to((cx.pe() + 1 + say.number % 3) % pes);
        if say.last {
            give(self.key, self.heard);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct End;

impl Object for End {
    type Index = i64;
    type Init = ();

    fn new((): (), cx: &mut Context<'_, Self>) -> Self {
        cx.when_quiet(cx.this());
        Self
    }
}

impl Entry<Quiet> for End {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        cx.exit(0);
    }
}

#[test]
fn every_element_hears_every_broadcast_once_while_it_migrates() {
    let program =
        || Program::new().class::<Listener>(|c| c.entry::<Say>()).class::<End>(|c| c.entry::<Quiet>());
    for place in PLACES {
        let said = 100;
        let heard: Vec<u32> = run(place, program, move |cx, key| {
            let listeners = cx.create_array::<Listener>(&[3, 5], key);
            for number in 0..said {
                cx.broadcast(listeners, Say { number, last: number == said - 1 });
            }
            cx.create_one::<End>(());
        });
        assert_eq!(heard, [said; 15], "{place:?}");
    }
}
