// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load balancing beside the noise of an operating system.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use colony_balance::strategy::Strategies;
use colony_balance::topology::Topology;
use colony_inject::leibniz::{Amount, LeibnizPlan};
use colony_runtime::{BalanceOptions, Context, Entry, Object, Op, Options, Program, Reduced};
use serde::{Deserialize, Serialize};

use super::run_with;

const OBJECTS: u32 = 6;
const ROUNDS: u32 = 24;

/// An object with three times the work of the one before it.
#[derive(Serialize, Deserialize)]
struct Uneven {
    rounds: u32,
    sum: u64,
}

#[derive(Serialize, Deserialize)]
struct Go;

impl Uneven {
    fn work(&mut self, cx: &mut Context<'_, Self>) {
        for i in 0..100_000 * 3u64.pow(cx.index() as u32) {
            self.sum = std::hint::black_box(self.sum.wrapping_mul(31).wrapping_add(i));
        }
        cx.at_sync();
    }
}

impl Object for Uneven {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self { rounds: 0, sum: 0 }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return self.work(cx);
        }
        let to = cx.reply_to(cx.array().at(0));
        cx.contribute([1i64], Op::Sum, to);
    }
}

impl Entry<Go> for Uneven {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.work(cx);
    }
}

impl Entry<Reduced> for Uneven {
    fn call(&mut self, _: Reduced, cx: &mut Context<'_, Self>) {
        cx.exit(0);
    }
}

/// The PE that `greedy` decides for each object, by the loads that a run has measured in its last round. Time that others
/// take of the PEs for long is left out: it may differ between two runs on any machine, and load balancing goes around it.
fn decision() -> BTreeMap<u64, u32> {
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("loads");
    let balance = BalanceOptions::strategy("greedy-refine").expect("known");
    let balance = BalanceOptions { record: Some(prefix.clone()), ..balance };
    let program = || Program::new().class::<Uneven>(|c| c.entry::<Go>().entry::<Reduced>());
    for outcome in
        run_with((2, 1), &Options { balance: Some(balance), ..Options::default() }, program, |cx| {
            let objects = cx.create_array::<Uneven>(&[OBJECTS], ());
            cx.broadcast(objects, Go);
        })
    {
        outcome.expect("it ends");
    }
    let name = format!("{}.{}.json", prefix.display(), ROUNDS - 1);
    let bytes = std::fs::read(&name).expect("a load database");
    let mut database = colony_balance::file::read(&[(name, bytes)], None).expect("one of ours").database;
    for pe in 0..2 {
        database.set_background(pe, 0.0).expect("a PE");
    }
    let greedy = Strategies::parse("greedy").expect("known");
    let decision = greedy.assign(&database, &Topology::Flat).expect("a decision");
    database.ids().iter().copied().zip(decision.placement).collect()
}

#[test]
fn decisions_are_the_same_beside_the_noise_injector() {
    let undisturbed = decision();
    // the object with most of the work has a PE for itself
    let on_first = undisturbed.values().filter(|&&pe| pe == 0).count();
    assert_eq!((undisturbed.len(), on_first), (OBJECTS as usize, 1), "{undisturbed:?}");
    let stop = AtomicBool::new(false);
    let (disturbed, injected) = std::thread::scope(|scope| {
        let plan =
            LeibnizPlan { amount: Amount::Noise(0.21), duration_ns: u64::MAX, ..LeibnizPlan::default() };
        let stop = &stop;
        let injector = scope.spawn(move || plan.run(stop));
        let disturbed = decision();
        stop.store(true, Ordering::Relaxed);
        (disturbed, injector.join().expect("no panic").expect("noise"))
    });
    assert!(injected.cpus.iter().any(|cpu| cpu.calculations > 0), "{injected:?}");
    assert_eq!(disturbed, undisturbed);
}
