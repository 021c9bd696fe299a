// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measuring loop beside a loop that only reads the counter, and what a detour costs to record.
#![allow(missing_docs, reason = "criterion's macros define undocumented items")]

use std::hint::black_box;

use colony_measure::selfish::hot::stretch;
use colony_measure::selfish::recorder::Recorder;
use colony_time::tsc::{Counter, Tsc, Vdso};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Turns a sample makes.
const TURNS: u64 = 100_000;

fn loops(c: &mut Criterion) {
    let mut group = c.benchmark_group("turn");
    group.throughput(Throughput::Elements(TURNS));
    group.bench_function("bare", |b| b.iter(|| (0..TURNS).fold(0, |_, _| black_box(Tsc::read()))));
    group.bench_function("measuring", |b| {
        let mut recorder = Recorder::discarding();
        b.iter(|| {
            // as many turns as the bare loop: stretches of one turn's counts would end too early,
            // so turns are counted and the deadline moves
            let mut turns = 0;
            let mut last = Tsc::read();
            while turns < TURNS {
                let s = stretch::<Tsc>(last, last + 100_000, u64::MAX, &mut recorder);
                turns += s.turns;
                last = s.last;
            }
            turns
        });
    });
    group.bench_function("vdso", |b| b.iter(|| (0..TURNS).fold(0, |_, _| black_box(Vdso::read()))));
    group.finish();
    c.bench_function("record a detour", |b| {
        let (mut recorder, mut ring) = Recorder::new(1 << 20, 0.4, 26);
        b.iter(|| {
            recorder.record(black_box(1), black_box(5_000));
            ring.pop()
        });
    });
}

criterion_group!(benches, loops);
criterion_main!(benches);
