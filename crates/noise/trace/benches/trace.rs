// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces: encoding and decoding, and the search for periods.
#![allow(missing_docs, reason = "criterion's macros define undocumented items")]

use std::hint::black_box;

use colony_trace::convert::{self, Format};
use colony_trace::{Detour, Source, Trace, TraceMeta, periodic};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A tick of 1000 Hz with as many random detours, `n` in all.
fn trace(n: usize) -> Trace {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let span_ns = n as i64 / 2 * 1_000_000;
    let rows = (0..n).map(|i| {
        let tick = i % 2 == 0;
        let start_ns = match tick {
            true => i as i64 / 2 * 1_000_000 + random.random_range(0..2_000),
            false => random.random_range(0..span_ns),
        };
        let source = if tick { Source::Irq("local_timer".into()) } else { Source::Unexplained };
        (
            Detour { node: 0, cpu: 0, start_ns, duration_ns: random.random_range(200..20_000), source: 0 },
            source,
        )
    });
    Trace::collect(TraceMeta { observed_s: span_ns as f64 / 1e9, ..TraceMeta::default() }, rows)
}

fn files(c: &mut Criterion) {
    let n = 1_000_000;
    let trace = trace(n);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("trace.parquet");
    let mut group = c.benchmark_group("trace");
    group.throughput(Throughput::Elements(n as u64)).sample_size(10);
    group.bench_function("write parquet", |b| b.iter(|| trace.write(&path).expect("room on the disk")));
    group.bench_function("read parquet", |b| b.iter(|| Trace::read(&path).expect("just written")));
    let path = dir.path().join("trace.csv");
    convert::write(&trace, &path, Some(Format::Csv)).expect("room on the disk");
    group.bench_function("read csv", |b| b.iter(|| convert::read(&path, None).expect("just written")));
    group.finish();
}

fn periods(c: &mut Criterion) {
    let mut group = c.benchmark_group("periodic");
    group.sample_size(10);
    for n in [10_000, 1_000_000] {
        let trace = trace(n);
        let parts =
            || trace.detours.iter().map(|d| (d.start_ns, d.duration_ns)).unzip::<_, _, Vec<_>, Vec<_>>();
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(format!("find in {n}"), |b| {
            b.iter_batched(
                parts,
                |(starts, lengths)| black_box(periodic::find(&starts, &lengths)),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, files, periods);
criterion_main!(benches);
