// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule that selects the detours of a trace that count as noise, and their place on a simulated CPU's timeline.

use std::collections::BTreeMap;

use colony_sim::noise::Detour;
use colony_sim::source::{Class, MeasuredSource};
use colony_sim::spec::Measured;
use colony_sim::{CpuNoise, NodeNoise, SimError};
use colony_time::Windows;
use colony_trace::{Source, Trace};

/// The treatment of steal time, the time that the hypervisor takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    /// It counts: a job on such a virtual machine would lose this time.
    Included,
    /// It does not count: it is the host's other work, and no scheduler on this node can move it.
    Excluded,
}

/// True if noise of `source` would disturb a job on this node. The measurement's own threads and the throttling of its
/// real-time class never count.
fn counts(source: &Source, steal: Steal) -> bool {
    source.is_of_node() && (steal == Steal::Included || *source != Source::Hypervisor)
}

/// The noise of the node by source, each with the class that the trace gives it, on the timeline of the observed CPUs;
/// sources without a detour are left out.
/// The hypervisor is a source like any other: [`Measured::without`] leaves it out.
///
/// # Errors
/// [`SimError`] if nothing was observed, or if a source left a CPU no time.
pub fn measured(trace: &Trace) -> Result<Measured, SimError> {
    let span_ns = observed_ns(trace);
    let cpus: BTreeMap<usize, usize> = trace.meta.cpus.iter().zip(0..).collect();
    let mut by_name: BTreeMap<String, (Class, Vec<Vec<Detour>>)> = BTreeMap::new();
    for d in &trace.detours {
        let (source, cpu) = (trace.source(d), cpus.get(&usize::from(d.cpu)));
        if let (true, Some(&cpu), Some(detour)) =
            (counts(source, Steal::Included), cpu, since_start(trace, d.start_ns, d.duration_ns))
        {
            let of_source = by_name.entry(source.to_string());
            let (_, on) = of_source.or_insert_with(|| (trace.class(source), vec![Vec::new(); cpus.len()]));
            on[cpu].push(detour);
        }
    }
    let source = |(name, (class, cpus)): (String, (Class, Vec<Vec<Detour>>))| {
        let cpus = cpus.into_iter().map(|detours| CpuNoise::new(span_ns, detours));
        Ok(MeasuredSource { name, class, noise: NodeNoise::new(cpus.collect::<Result<_, _>>()?)? })
    };
    let sources: Vec<_> = by_name.into_iter().map(source).collect::<Result<_, SimError>>()?;
    let disturbs = |s: &MeasuredSource| s.noise.cpus().iter().any(|c| !c.detours().is_empty());
    Ok(Measured { sources: sources.into_iter().filter(disturbs).collect() })
}

/// All noise of the node that counts, merged, on the timeline of the observed CPUs.
///
/// # Errors
/// [`SimError`] if nothing was observed, or if the noise left a CPU no time.
pub fn node_noise(trace: &Trace, steal: Steal) -> Result<NodeNoise, SimError> {
    per_cpu(trace, steal, observed_ns(trace), |start_ns, duration_ns| {
        since_start(trace, start_ns, duration_ns)
    })
}

/// The part of the noise that lies in favored windows, on a timeline from which regular windows are cut out: the
/// residual noise that a job's operations meet there.
///
/// # Errors
/// As [`node_noise`].
pub fn favored_only(trace: &Trace, windows: &Windows, steal: Steal) -> Result<NodeNoise, SimError> {
    let begin = trace.meta.start_ns;
    let end = begin.saturating_add((trace.meta.observed_s * 1e9) as i64);
    per_cpu(trace, steal, windows.favored_time_between(begin, end), |start_ns, duration_ns| {
        let stop = start_ns.saturating_add_unsigned(duration_ns);
        let duration_ns = windows.favored_time_between(start_ns, stop);
        let detour = Detour { start_ns: windows.favored_time_between(begin, start_ns), duration_ns };
        (duration_ns > 0 && start_ns >= begin).then_some(detour)
    })
}

fn observed_ns(trace: &Trace) -> u64 {
    (trace.meta.observed_s * 1e9) as u64
}

/// A detour on the timeline that begins with the observation; only its part inside counts.
fn since_start(trace: &Trace, start_ns: i64, duration_ns: u64) -> Option<Detour> {
    let offset_ns = start_ns.saturating_sub(trace.meta.start_ns);
    match u64::try_from(offset_ns) {
        Ok(start_ns) => Some(Detour { start_ns, duration_ns }),
        Err(_) => {
            Some(Detour { start_ns: 0, duration_ns: duration_ns.checked_sub(offset_ns.unsigned_abs())? })
        }
    }
}

fn per_cpu(
    trace: &Trace,
    steal: Steal,
    span_ns: u64,
    place: impl Fn(i64, u64) -> Option<Detour>,
) -> Result<NodeNoise, SimError> {
    let noise = |cpu: usize| {
        let of_cpu = |d: &&colony_trace::Detour| usize::from(d.cpu) == cpu && counts(trace.source(d), steal);
        let detours = trace.detours.iter().filter(of_cpu);
        CpuNoise::new(span_ns, detours.filter_map(|d| place(d.start_ns, d.duration_ns)))
    };
    NodeNoise::new(trace.meta.cpus.iter().map(noise).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_time::DutyCycle;
    use colony_trace::TraceMeta;
    use proptest::prelude::*;

    const SOURCES: [fn() -> Source; 4] =
        [|| Source::Unexplained, || Source::Irq("timer".into()), || Source::Throttle, || Source::Hypervisor];

    /// A trace of two CPUs and 1,000 ns from 5,000 ns on; a detour is its CPU, start, length and number in `SOURCES`.
    fn trace(detours: &[(u16, i64, u64, usize)]) -> Trace {
        let meta = TraceMeta {
            cpus: "0-1".parse().expect("a list"),
            observed_s: 1e-6,
            start_ns: 5_000,
            ..TraceMeta::default()
        };
        let row = |&(cpu, start_ns, duration_ns, source): &(u16, i64, u64, usize)| {
            let detour = colony_trace::Detour { node: 0, cpu, start_ns, duration_ns, source: 0 };
            (detour, SOURCES[source]())
        };
        Trace::collect(meta, detours.iter().map(row))
    }

    #[test]
    fn favored_noise_is_the_noise_in_favored_windows() {
        // favored 80 ns of 100, from the epoch
        let w = Windows::new(100, DutyCycle::Ns(80), 0).expect("valid");
        let t = trace(&[(0, 5_010, 10, 1), (0, 5_085, 10, 0), (0, 5_170, 20, 1), (0, 5_300, 50, 2)]);
        let all = node_noise(&t, Steal::Excluded).expect("observed");
        assert_eq!(all.cpus()[0].detours().len(), 3, "throttling is left out");
        assert_eq!(all.cpus()[1].stolen_ns(), 0);
        let favored = favored_only(&t, &w, Steal::Excluded).expect("observed");
        assert_eq!(favored.span_ns(), 800);
        let found: Vec<_> = favored.cpus()[0].detours().iter().map(|d| (d.start_ns, d.duration_ns)).collect();
        assert_eq!(found, [(10, 10), (150, 10)]);
    }

    #[test]
    fn the_class_in_the_trace_overrules_the_name() {
        let mut trace = trace(&[(0, 5_010, 10, 1), (0, 5_100, 10, 0)]);
        let classes = |trace: &Trace| {
            let sources = measured(trace).expect("observed").sources;
            sources.into_iter().map(|s| (s.name, s.class)).collect::<Vec<_>>()
        };
        let named = |timer| [("irq:timer".to_owned(), timer), ("unexplained".to_owned(), Class::Local)];
        assert_eq!(classes(&trace), named(Class::Irq), "without a class in the trace: by name");
        trace.meta.classes.insert(SOURCES[1](), Class::Task);
        assert_eq!(classes(&trace), named(Class::Task));
        let fitted = crate::fit::fit_sources(&measured(&trace).expect("observed")).expect("one span");
        assert_eq!(fitted.iter().find(|f| f.name == "irq:timer").map(|f| f.class), Some(Class::Task));
    }

    /// The sources of `measured`, merged.
    fn merged(measured: &Measured) -> Vec<Vec<Detour>> {
        let of_cpu = |c: usize| {
            let all = measured.sources.iter().flat_map(|s| s.noise.cpus()[c].detours().to_vec());
            CpuNoise::new(1_000, all).expect("time is left").detours().to_vec()
        };
        (0..2).map(of_cpu).collect()
    }

    proptest! {
        /// `colony sim` replays `measured`, `colony study` projects `node_noise`.
        #[test]
        fn simulations_and_studies_take_the_same_noise_from_a_trace(
            detours in prop::collection::vec((0..2u16, 4_900..6_000i64, 1..60u64, 0..4usize), 0..12),
        ) {
            let trace = trace(&detours);
            let of_study = |steal| {
                let noise = node_noise(&trace, steal).expect("time is left");
                noise.cpus().iter().map(|c| c.detours().to_vec()).collect::<Vec<_>>()
            };
            let measured = measured(&trace).expect("time is left");
            prop_assert_eq!(of_study(Steal::Included), merged(&measured));
            let without = measured.without(&[Source::Hypervisor.to_string()]);
            prop_assert_eq!(of_study(Steal::Excluded), merged(&without));
        }
    }
}
