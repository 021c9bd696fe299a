// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detours beyond the last bucket of a histogram. The file has their number, the longest of each CPU, and the average of all detours.

/// Bounds, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) low_ns: f64,
    pub(super) high_ns: f64,
}

/// The average of all detours of a CPU, as the file prints it, in units of `unit_ns`. rtla prints it with two decimals, older versions as the
/// whole part; `None` for a CPU without detours, which has a dash.
pub(super) fn average(word: &str, unit_ns: u64) -> Option<Option<Bounds>> {
    if word == "-" {
        return Some(None);
    }
    let value = word.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)?;
    let decimals = word.split_once('.').map_or(0, |(_, part)| part.len().min(9) as i32);
    let step = 10f64.powi(-decimals);
    let (low, high) =
        if decimals == 0 { (value, value + 1.0) } else { (value - step / 2.0, value + step / 2.0) };
    Some(Some(Bounds { low_ns: low.max(0.0) * unit_ns as f64, high_ns: high * unit_ns as f64 }))
}

/// The detours of a CPU beyond the last bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beyond {
    pub(super) cpu: u16,
    /// At least one.
    pub(super) count: u64,
    /// The end of the last bucket.
    pub(super) from_ns: u64,
    pub(super) longest_ns: u64,
    /// Bounds of their sum, the longest included, if the file has an average.
    pub(super) sum: Option<Bounds>,
}

impl Beyond {
    /// Bounds of the mean of all but the longest; `None` if the file says no more than the lengths between which they are.
    fn mean_of_others(&self) -> Option<Bounds> {
        let others = self.count.checked_sub(1).filter(|n| *n > 0)? as f64;
        let (from, longest) = (self.from_ns as f64, self.longest_ns as f64);
        let sum = self.sum?;
        let low_ns = ((sum.low_ns - longest) / others).max(from);
        let high_ns = ((sum.high_ns - longest) / others).min(longest);
        (low_ns <= high_ns && high_ns - low_ns < 0.9 * (longest - from)).then_some(Bounds { low_ns, high_ns })
    }

    /// Lengths of all of them. Those that are not known lie evenly around their mean, or between the last bucket and the longest.
    pub(super) fn lengths_ns(&self) -> impl Iterator<Item = u64> {
        let (from, longest) = (self.from_ns as f64, self.longest_ns as f64);
        let mean = self.mean_of_others().map_or((from + longest) / 2.0, |m| (m.low_ns + m.high_ns) / 2.0);
        let reach = (mean - from).min(longest - mean).max(0.0);
        let others = self.count.saturating_sub(1);
        let place = move |i: u64| (i as f64 + 0.5) / others as f64;
        (0..others)
            .map(move |i| (mean - reach + 2.0 * reach * place(i)).round() as u64)
            .chain(std::iter::once(self.longest_ns))
    }
}

/// The note on the assumptions that were made; `None` without any.
pub(super) fn note(all: &[Beyond]) -> Option<String> {
    let assumed: Vec<&Beyond> = all.iter().filter(|b| b.count > 1).collect();
    let first = assumed.first()?;
    let count = assumed.iter().fold(0u64, |sum, b| sum.saturating_add(b.count));
    let of_cpus = match assumed.len() {
        1 => format!("CPU {}", first.cpu),
        n => format!("{n} CPUs"),
    };
    let known: Vec<(u16, Bounds)> =
        assumed.iter().filter_map(|b| Some((b.cpu, b.mean_of_others()?))).collect();
    let us = |ns: f64| ns / 1e3;
    let derived = known.first().map(|(cpu, m)| {
        let (low, high) = (us(m.low_ns), us(m.high_ns));
        format!("the average of all detours leaves them a mean ({low:.0} to {high:.0} µs on CPU {cpu}), and they lie evenly around its middle")
    });
    let spread = (known.len() < assumed.len()).then(|| {
        let of = assumed.iter().find(|b| b.mean_of_others().is_none()).unwrap_or(first);
        let (low, high) = (us(of.from_ns as f64), us(of.longest_ns as f64));
        format!(
            "no average bounds them closer, and they lie evenly between {low:.0} and {high:.0} µs on CPU {}",
            of.cpu
        )
    });
    let assumptions = match (derived, spread) {
        (Some(derived), Some(spread)) => {
            let n = known.len();
            format!("on {n} of these CPUs, {derived}; on the others, {spread}")
        }
        (derived, spread) => derived.or(spread).unwrap_or_default(),
    };
    Some(format!(
        "{count} detours of {of_cpus} are beyond the last bucket, and only the longest of a CPU is known. For the others, {assumptions}: the \
         stolen time is uncertain. More buckets (`-E` of rtla) show them"
    ))
}
