// SPDX-License-Identifier: MIT OR Apache-2.0
//! Window arithmetic: what an edge handler or an analysis pays per call.
#![allow(missing_docs, reason = "criterion's macros define undocumented items")]

use std::hint::black_box;

use colony_time::{DutyCycle, Windows};
use criterion::{Criterion, criterion_group, criterion_main};

fn windows(c: &mut Criterion) {
    let w = Windows::new(100_000_000, DutyCycle::Ppm(950_000), 0).expect("valid windows");
    let t = 1_795_000_000_123_456_789_i64;
    c.bench_function("phase", |b| b.iter(|| black_box(&w).phase(black_box(t))));
    c.bench_function("is_favored", |b| b.iter(|| black_box(&w).is_favored(black_box(t))));
    c.bench_function("next_edge", |b| b.iter(|| black_box(&w).next_edge(black_box(t))));
    c.bench_function("favored_time_between", |b| {
        b.iter(|| black_box(&w).favored_time_between(black_box(t), black_box(t + 1_234_567_890)));
    });
}

criterion_group!(benches, windows);
criterion_main!(benches);
