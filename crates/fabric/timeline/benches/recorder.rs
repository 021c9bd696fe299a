// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of an event: beside a bare reading of the counter, and with the recorder off.
#![allow(missing_docs, reason = "criterion's macros define undocumented items")]

use std::hint::black_box;

use colony_time::tsc::{Counter, Tsc};
use colony_timeline::{MessageId, Recorder, Recording};
use criterion::{Criterion, criterion_group, criterion_main};

/// An execution, as a scheduler that is never idle records it: the end of one is the begin of the next.
fn executions(c: &mut Criterion, name: &str, mut recorder: Recorder) {
    let mut at = recorder.now();
    let message = MessageId::new(1, 2);
    c.bench_function(name, |b| {
        b.iter(|| at = recorder.executed(at, black_box(3), black_box(message), black_box(64)))
    });
}

fn recorder(c: &mut Criterion) {
    let recording = Recording::begin();
    // 8 MiB a ring: more than the second-level cache, less than the memory of any node
    let on = || recording.recorder(0, 1 << 18).expect("a PE");
    c.bench_function("a reading of the counter", |b| b.iter(Tsc::read));
    executions(c, "an execution", on());
    executions(c, "an execution, recorder off", Recorder::off());
    let mut r = on();
    c.bench_function("a message with its number", |b| {
        b.iter(|| {
            let message = r.next_message();
            r.sent(message, black_box(1), black_box(3), black_box(64));
        });
    });
    let mut at = r.now();
    c.bench_function("an idle poll", |b| b.iter(|| at = r.idle(at)));
    c.bench_function("a look at the CPU", |b| b.iter(|| r.look_at_cpu()));
}

criterion_group!(benches, recorder);
criterion_main!(benches);
