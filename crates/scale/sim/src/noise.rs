// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise of one node, as plain numbers: per CPU the detours over an observed span.
//!
//! The span is read as a circle: work that runs over its end goes on at its beginning.

use serde::{Deserialize, Serialize};

use crate::SimError;

/// A detour on its CPU's own timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detour {
    /// Start, nanoseconds from the start of the observation.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
}

/// The detours of one CPU: in order, disjoint, inside the span, and not all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct CpuNoise {
    span_ns: u64,
    detours: Vec<Detour>,
}

#[derive(Deserialize)]
struct Raw {
    span_ns: u64,
    detours: Vec<Detour>,
}

impl TryFrom<Raw> for CpuNoise {
    type Error = SimError;
    fn try_from(raw: Raw) -> Result<Self, SimError> {
        Self::new(raw.span_ns, raw.detours)
    }
}

impl CpuNoise {
    /// Noise observed for `span_ns`. Detours may come in any order; those that overlap are joined, those
    /// that reach over the span are cut.
    ///
    /// # Errors
    /// [`SimError::Span`] without a span, [`SimError::AlwaysTaken`] where no time is left for the program.
    pub fn new(span_ns: u64, detours: impl IntoIterator<Item = Detour>) -> Result<Self, SimError> {
        if span_ns == 0 {
            return Err(SimError::Span);
        }
        let mut all: Vec<Detour> =
            detours.into_iter().filter(|d| d.start_ns < span_ns && d.duration_ns > 0).collect();
        all.sort_unstable_by_key(|d| d.start_ns);
        let mut joined: Vec<Detour> = Vec::with_capacity(all.len());
        for mut d in all {
            d.duration_ns = d.duration_ns.min(span_ns - d.start_ns);
            match joined.last_mut() {
                Some(last) if last.start_ns + last.duration_ns >= d.start_ns => {
                    let end = (last.start_ns + last.duration_ns).max(d.start_ns + d.duration_ns);
                    last.duration_ns = end - last.start_ns;
                }
                _ => joined.push(d),
            }
        }
        let noise = Self { span_ns, detours: joined };
        if noise.stolen_ns() >= span_ns {
            return Err(SimError::AlwaysTaken { span_ns });
        }
        Ok(noise)
    }

    /// A CPU nothing ever takes away.
    ///
    /// # Errors
    /// [`SimError::Span`] for a span of nothing.
    pub fn quiet(span_ns: u64) -> Result<Self, SimError> {
        Self::new(span_ns, [])
    }

    /// One detour of `length_ns` each `interval_ns` (the injected detours of ANL 2005).
    ///
    /// # Errors
    /// As [`CpuNoise::new`].
    pub fn periodic(interval_ns: u64, length_ns: u64) -> Result<Self, SimError> {
        Self::new(interval_ns, [Detour { start_ns: 0, duration_ns: length_ns }])
    }

    /// Length of the CPU's observation.
    #[must_use]
    pub const fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// The detours, by start.
    #[must_use]
    pub fn detours(&self) -> &[Detour] {
        &self.detours
    }

    /// Stolen time: the sum of all detours.
    #[must_use]
    pub fn stolen_ns(&self) -> u64 {
        self.detours.iter().map(|d| d.duration_ns).sum()
    }
}

/// The noise of a node: that of its CPUs that the job uses, observed at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<CpuNoise>", into = "Vec<CpuNoise>")]
pub struct NodeNoise(Vec<CpuNoise>);

impl NodeNoise {
    /// The noise of a node's CPUs; start times of all count from the same instant.
    ///
    /// # Errors
    /// [`SimError::NoCpu`] without any, [`SimError::Spans`] where spans differ.
    pub fn new(cpus: Vec<CpuNoise>) -> Result<Self, SimError> {
        let first = cpus.first().ok_or(SimError::NoCpu)?.span_ns;
        match cpus.iter().find(|c| c.span_ns != first) {
            Some(other) => Err(SimError::Spans(first, other.span_ns)),
            None => Ok(Self(cpus)),
        }
    }

    /// A node without noise.
    #[must_use]
    pub fn quiet() -> Self {
        Self(vec![CpuNoise { span_ns: 1_000_000_000, detours: Vec::new() }])
    }

    /// The CPUs.
    #[must_use]
    pub fn cpus(&self) -> &[CpuNoise] {
        &self.0
    }

    /// Length of the node's observation.
    #[must_use]
    pub fn span_ns(&self) -> u64 {
        self.0.first().map_or(0, |c| c.span_ns)
    }

    /// Stolen share of the CPUs' time, 0 to 1.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        let stolen: f64 = self.0.iter().map(|c| c.stolen_ns() as f64 / c.span_ns as f64).sum();
        stolen / self.0.len().max(1) as f64
    }

    /// The longest detour, nanoseconds; `None` without one.
    #[must_use]
    pub fn longest_ns(&self) -> Option<u64> {
        self.0.iter().flat_map(CpuNoise::detours).map(|d| d.duration_ns).max()
    }

    /// True if no time was stolen.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.iter().all(|c| c.detours.is_empty())
    }
}

impl TryFrom<Vec<CpuNoise>> for NodeNoise {
    type Error = SimError;
    fn try_from(cpus: Vec<CpuNoise>) -> Result<Self, SimError> {
        Self::new(cpus)
    }
}

impl From<NodeNoise> for Vec<CpuNoise> {
    fn from(noise: NodeNoise) -> Self {
        noise.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(start_ns: u64, duration_ns: u64) -> Detour {
        Detour { start_ns, duration_ns }
    }

    #[test]
    fn detours_are_ordered_joined_and_cut() {
        let n = CpuNoise::new(100, [d(90, 50), d(10, 5), d(12, 10), d(200, 1), d(50, 0)]).expect("valid");
        assert_eq!(n.detours(), [d(10, 12), d(90, 10)]);
        assert_eq!(n.stolen_ns(), 22);
    }

    #[test]
    fn impossible_noise_is_refused() {
        assert_eq!(CpuNoise::quiet(0), Err(SimError::Span));
        assert_eq!(CpuNoise::new(10, [d(0, 10)]), Err(SimError::AlwaysTaken { span_ns: 10 }));
        assert_eq!(NodeNoise::new(vec![]), Err(SimError::NoCpu));
        let (a, b) = (CpuNoise::quiet(5).expect("valid"), CpuNoise::quiet(6).expect("valid"));
        assert_eq!(NodeNoise::new(vec![a, b]), Err(SimError::Spans(5, 6)));
    }
}
