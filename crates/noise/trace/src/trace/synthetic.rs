// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces for tests.

use colony_node::class::Class as SchedulingClass;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Detour, Trace, TraceMeta};
use crate::{Class, Source};

/// Metadata of a run of `observed_s` seconds on `cpus` CPUs.
pub(crate) fn meta(cpus: usize, observed_s: f64) -> TraceMeta {
    TraceMeta {
        tsc_hz: 2.1e9,
        threshold_ns: 100,
        smallest_loop_ns: 9.8,
        cpus: (0..cpus).collect(),
        observed_s,
        start_ns: 1_700_000_037_000_000_000,
        observer: Some(SchedulingClass::Fifo(1)),
        ..TraceMeta::default()
    }
}

/// Random detours: `rate` a second on each of `cpus` CPUs, log-uniform between 200 ns and 200 µs times `scale`.
pub(crate) fn poisson(seed: u64, cpus: usize, observed_s: f64, rate: f64, scale: f64) -> Trace {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let sources =
        vec![Source::Irq("local_timer".into()), Source::Thread("kworker/0:1".into()), Source::Unexplained];
    let meta = meta(cpus, observed_s);
    let mut detours = Vec::new();
    for cpu in 0..cpus {
        for start in poisson_starts(&mut rng, rate, observed_s) {
            detours.push(Detour {
                node: 0,
                cpu: cpu as u16,
                start_ns: meta.start_ns + start,
                duration_ns: (scale * 200.0 * 1000f64.powf(rng.random::<f64>())) as u64,
                source: rng.random_range(0..3),
            });
        }
    }
    Trace::from_parts(meta, sources, detours).expect("sources are there")
}

/// Instants of a Poisson process, nanoseconds from 0.
pub(crate) fn poisson_starts(rng: &mut ChaCha8Rng, rate: f64, seconds: f64) -> Vec<i64> {
    let mut t = 0.0;
    std::iter::from_fn(|| {
        t -= (1.0 - rng.random::<f64>()).ln() / rate;
        (t < seconds).then_some((t * 1e9) as i64)
    })
    .collect()
}

/// `n` detours, always the same. On one CPU they do not overlap, as a measurement leaves them.
pub(crate) fn sample(n: usize) -> Trace {
    let mut trace = poisson(7, 2, n.max(1) as f64 / 900.0, 1000.0, 1.0);
    trace.detours.truncate(n);
    let mut next_ns = [i64::MAX; 2];
    for d in trace.detours.iter_mut().rev() {
        let next = &mut next_ns[usize::from(d.cpu)];
        d.duration_ns = d.duration_ns.min(next.abs_diff(d.start_ns));
        *next = d.start_ns;
    }
    let Trace { meta, sources, detours } = trace;
    Trace::from_parts(meta, sources, detours).expect("sources are there")
}

/// Any class that a measurement can state.
pub(crate) fn any_class() -> impl Strategy<Value = Class> {
    prop::sample::select(&Class::ALL[..])
}

/// Any source a measurement can name.
pub(crate) fn any_source() -> impl Strategy<Value = Source> {
    prop_oneof![
        "[a-zA-Z0-9_/.-]{1,12}".prop_map(Source::Irq),
        "[A-Z_]{1,12}".prop_map(Source::Softirq),
        "[a-zA-Z0-9/_:.-]{1,15}".prop_map(Source::Thread),
        Just(Source::Nmi),
        Just(Source::Throttle),
        Just(Source::Observer),
        Just(Source::Hypervisor),
        Just(Source::Unexplained),
        ".{0,20}".prop_map(|s| Source::from(s.as_str())),
    ]
}

prop_compose! {
    /// Any trace with up to `n` detours, of any node, CPU, instant of the observation and length. The class of some
    /// sources is stated.
    pub(crate) fn any_trace(n: usize)(
        sources in prop::collection::hash_map(any_source(), prop::option::of(any_class()), 1..8),
        rows in prop::collection::vec(
            (any::<u32>(), 0u16..1024, 0.0..1f64, 0.0..1f64, any::<prop::sample::Index>()), 0..n),
        observed_s in 0.0..2e9f64,
        tsc_hz in 0.0..1e10f64,
        start_ns in -1i64 << 61..1 << 61,
        threshold_ns: u64,
    ) -> Trace {
        let classes = sources.iter().filter_map(|(source, class)| Some((source.clone(), (*class)?))).collect();
        let sources: Vec<Source> = sources.into_keys().collect();
        let detours = rows.into_iter().map(|(node, cpu, start, length, source)| Detour {
            node,
            cpu,
            start_ns: start_ns + (start * observed_s * 1e9) as i64,
            duration_ns: (length * observed_s * 1e9) as u64,
            source: source.index(sources.len()) as u16,
        }).collect();
        let meta = TraceMeta { observed_s, tsc_hz, start_ns, threshold_ns, classes, ..meta(1024, 1.0) };
        Trace::from_parts(meta, sources, detours).expect("sources are there")
    }
}
