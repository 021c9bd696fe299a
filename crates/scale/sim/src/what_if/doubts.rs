// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons in a trace not to rely on figures that are computed from it.

use super::tail::Tail;
use crate::NodeNoise;
use crate::source::MeasuredSource;
use crate::spec::Measured;
use crate::words::number_of;

/// Detours of a source that are too few to know how often it comes.
const FEW: usize = 10;
/// Blocks of a trace for the test of drift, half of them in each half of the trace.
const BLOCKS: usize = 16;
/// Student's t of 14 degrees of freedom that chance exceeds once in a thousand times.
const DRIFT: f64 = 4.14;
/// Shortest of the longest detours of a source whose tail is of interest, nanoseconds.
const LONG_NS: u64 = 10_000;
/// Sources that a line names.
const NAMED: usize = 3;

/// The reasons for not relying on a trace, in one line: sources that were seen too rarely, sources that came in one half of
/// it only, and sources whose detours vary so much in length that longer ones are to be expected. `None` if there is none.
#[must_use]
pub fn doubts(measured: &Measured) -> Option<String> {
    let of = |is: fn(&NodeNoise) -> Option<String>| -> Vec<String> {
        let mut found: Vec<(u64, String)> = (measured.sources.iter())
            .filter_map(|s: &MeasuredSource| Some((s, is(&s.noise)?)))
            .map(|(s, how)| (s.noise.longest_ns().unwrap_or(0), format!("{}{how}", s.name)))
            .collect();
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        found.into_iter().map(|(_, text)| text).collect()
    };
    let span_s = measured.sources.first().map_or(0.0, |s| s.noise.span_ns() as f64 / 1e9);
    let kinds = [
        (of(rare), "too short for what came fewer than ten times"),
        (of(drifting), "not steady, one half differs from the other"),
        (of(heavy), "without the longest detours, whose lengths have a tail index below 2"),
    ];
    let said: Vec<String> = kinds
        .into_iter()
        .filter(|(sources, _)| !sources.is_empty())
        .map(|(sources, what)| format!("{what} ({})", some(&sources)))
        .collect();
    let span = if span_s < 10.0 { format!("{span_s:.2}") } else { format!("{span_s:.0}") };
    (!said.is_empty()).then(|| format!("this trace of {span} s is {}", said.join("; ")))
}

/// The first of some names, and how many more there are.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names[..names.len() - more].join(", ");
    if more == 0 { first } else { format!("{first} and {}", number_of(more as u64, "more source")) }
}

fn detours(noise: &NodeNoise) -> usize {
    noise.cpus().iter().map(|cpu| cpu.detours().len()).sum()
}

fn rare(noise: &NodeNoise) -> Option<String> {
    let n = detours(noise);
    (1..FEW).contains(&n).then(|| format!(", {}", number_of(n as u64, "time")))
}

/// Detours of the blocks of the two halves are compared by Student's test: those of a source that comes in bursts differ
/// from block to block, too.
fn drifting(noise: &NodeNoise) -> Option<String> {
    let mut counts = [0.0; BLOCKS];
    for d in noise.cpus().iter().flat_map(|cpu| cpu.detours()) {
        let block = u128::from(d.start_ns) * BLOCKS as u128 / u128::from(noise.span_ns().max(1));
        if let Some(count) = counts.get_mut(block as usize) {
            *count += 1.0;
        }
    }
    if detours(noise) < FEW {
        return None;
    }
    let (first, second) = counts.split_at(BLOCKS / 2);
    let n = first.len() as f64;
    let mean = |of: &[f64]| of.iter().sum::<f64>() / n;
    let variance = (crate::stats::variance(first) + crate::stats::variance(second)) / n;
    let (a, b) = (mean(first), mean(second));
    // a tick is so regular that any difference is certain
    let differs = (a - b).abs() > DRIFT * variance.sqrt() && a.max(b) > 1.5 * a.min(b);
    differs.then(String::new)
}

fn heavy(noise: &NodeNoise) -> Option<String> {
    if noise.longest_ns().unwrap_or(0) < LONG_NS {
        return None;
    }
    Tail::of([noise], 1.0).filter(Tail::is_certainly_heavy).map(|_| String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuNoise;
    use crate::noise::Detour;
    use crate::rng::Key;

    fn measured(name: &str, detours: impl IntoIterator<Item = (u64, u64)>) -> Measured {
        let detours = detours.into_iter().map(|(start_ns, duration_ns)| Detour { start_ns, duration_ns });
        let cpu = CpuNoise::new(20_000_000_000, detours).expect("some time");
        Measured { sources: vec![MeasuredSource::named(name, NodeNoise::new(vec![cpu]).expect("a CPU"))] }
    }

    fn ticks(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        (from..to).map(|n| (n * 4_000_000, 5_000))
    }

    #[test]
    fn a_steady_tick_gives_no_doubt() {
        assert_eq!(doubts(&measured("irq:local_timer", ticks(0, 5000))), None);
        assert_eq!(doubts(&Measured { sources: Vec::new() }), None);
    }

    #[test]
    fn rare_sources_and_their_number_are_in_one_line() {
        let mut all = measured("thread:rare", [(1_000, 5_000_000), (9_000_000_000, 5_000_000)]);
        for n in 0..5 {
            all.sources.extend(measured(&format!("thread:{n}"), [(5_000_000, 1_000)]).sources);
        }
        let line = doubts(&all).expect("rare ones");
        assert_eq!(
            line,
            "this trace of 20 s is too short for what came fewer than ten times (thread:rare, 2 times, thread:0, 1 \
             time, thread:1, 1 time and 3 more sources)"
        );
    }

    #[test]
    fn noise_of_one_half_and_heavy_tails_are_named() {
        let line = doubts(&measured("thread:backup", ticks(0, 2500))).expect("half of it");
        assert!(line.contains("not steady") && line.contains("(thread:backup)"), "{line}");
        let length = |n: u64| (2e4 * Key::new(3).uniform(n).powf(-1.0 / 1.2)) as u64;
        let line = doubts(&measured("thread:heavy", (0..400).map(|n| (n * 50_000_000, length(n)))));
        assert!(line.as_ref().is_some_and(|l| l.contains("tail index below 2 (thread:heavy)")), "{line:?}");
    }
}
