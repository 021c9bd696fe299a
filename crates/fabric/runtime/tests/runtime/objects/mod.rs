// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guarantees to programs of objects: on one process, on several PEs of one, and on several processes.

mod balance;
mod calls;
mod checkpoint;
mod evacuation;
mod failures;
mod groups;
mod increments;
mod lifetimes;
mod migration;
mod noise;
mod reductions;
mod resized;
mod restored;
mod sections;
mod tables;
mod torus;
mod traffic;

use std::sync::mpsc::{Sender, channel};

use colony_runtime::transport::Transport;
use colony_runtime::transport::memory::Memory;
use colony_runtime::{Context, Main, Options, Outcome, Program, RunError, run_on};

/// Ranks and PEs of each.
const PLACES: [(u32, u32); 5] = [(1, 1), (1, 3), (2, 1), (3, 1), (2, 2)];

/// Runs a program on ranks that are threads, and gives what each rank's part came to.
fn run_with<F>(
    (ranks, threads): (u32, u32),
    options: &Options,
    program: fn() -> Program,
    main: F,
) -> Vec<Result<Outcome, RunError>>
where
    F: FnOnce(&mut Context<'_, Main>) + Send + Clone + 'static,
{
    let options = Options { threads, ..options.clone() };
    std::thread::scope(|scope| {
        let handles: Vec<_> = Memory::ranks(ranks)
            .into_iter()
            .map(|memory| {
                let (main, options) = (main.clone(), options.clone());
                scope.spawn(move || run_on(program(), &options, Box::new(memory) as Box<dyn Transport>, main))
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("a rank")).collect()
    })
}

/// Runs a program that has to end well, and gives what its objects sent to the test.
fn run<R: Send + 'static, F>(place: (u32, u32), program: fn() -> Program, main: F) -> Vec<R>
where
    F: FnOnce(&mut Context<'_, Main>, u32) + Send + Clone + 'static,
{
    let (to, from) = channel();
    let key = results(to);
    let outcomes = run_with(place, &Options::default(), program, move |cx| main(cx, key));
    for outcome in outcomes {
        assert_eq!(outcome.expect("the program ends").code, 0, "{place:?}");
    }
    from.try_iter()
        .map(|any: Box<dyn std::any::Any + Send>| *any.downcast::<R>().expect("a result"))
        .collect()
}

type Results = Sender<Box<dyn std::any::Any + Send>>;
static RESULTS: std::sync::Mutex<Vec<Results>> = std::sync::Mutex::new(Vec::new());

/// A number by which objects find the test that waits for their results: a channel cannot be packed.
fn results(to: Results) -> u32 {
    let mut all = RESULTS.lock().expect("no panic");
    all.push(to);
    all.len() as u32 - 1
}

/// Gives a result to the test.
fn give<R: Send + 'static>(key: u32, result: R) {
    let _ = RESULTS.lock().expect("no panic")[key as usize].send(Box::new(result));
}
