// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of collectives without noise, by the number of nodes.

use serde::{Deserialize, Serialize};

use crate::SimError;

/// Time of a collective on `n` nodes without noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseTime {
    /// A latency model: `fixed_ns + level_ns · log2 n`.
    Log2 {
        /// Cost whatever the number of nodes, nanoseconds.
        fixed_ns: f64,
        /// Cost of each doubling.
        level_ns: f64,
    },
    /// Measured times `(nodes, ns)`, straight lines over log2 n between them; below the first its value,
    /// above the last the last line goes on.
    Measured(Vec<(u64, f64)>),
}

impl BaseTime {
    /// The hardware barrier of Blue Gene/L: "from about 1 microsecond to 1.3 microseconds" on 512 and
    /// 16,384 nodes (ANL 2005).
    #[must_use]
    pub fn blue_gene_barrier() -> Self {
        Self::Measured(vec![(512, 1_000.0), (16_384, 1_300.0)])
    }

    /// Allreduce on Blue Gene/L's collective network: 8.3 to 11.6 µs (ANL 2005).
    #[must_use]
    pub fn blue_gene_allreduce() -> Self {
        Self::Measured(vec![(512, 8_300.0), (16_384, 11_600.0)])
    }

    /// Allreduce with a user-defined operation, in software: 38 to 73 µs (ANL 2005).
    #[must_use]
    pub fn blue_gene_myallreduce() -> Self {
        Self::Measured(vec![(512, 38_000.0), (16_384, 73_000.0)])
    }

    /// Nanoseconds on `nodes` nodes.
    #[must_use]
    pub fn ns(&self, nodes: u64) -> f64 {
        let level = (nodes.max(1) as f64).log2();
        match self {
            Self::Log2 { fixed_ns, level_ns } => fixed_ns + level_ns * level,
            Self::Measured(points) => {
                let i = points.partition_point(|p| p.0 <= nodes).clamp(1, points.len().max(1));
                match (points.get(i - 1), points.get(i).or_else(|| points.get(i.wrapping_sub(2)))) {
                    (Some(&(n0, t0)), Some(&(n1, t1))) if nodes > n0 && n0 != n1 => {
                        let (l0, l1) = ((n0.max(1) as f64).log2(), (n1.max(1) as f64).log2());
                        t0 + (t1 - t0) * (level - l0) / (l1 - l0)
                    }
                    (Some(&(_, t)), _) => t,
                    _ => 0.0,
                }
            }
        }
    }

    /// # Errors
    /// [`SimError::Program`] where times are negative, no numbers, or fall with the nodes.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let check = |parameter, found: f64| match found.is_finite() && found >= 0.0 {
            true => Ok(()),
            false => Err(SimError::Program { parameter, found, least: 0.0 }),
        };
        match self {
            Self::Log2 { fixed_ns, level_ns } => {
                check("fixed time", *fixed_ns).and_then(|()| check("time per level", *level_ns))
            }
            Self::Measured(points) => {
                check("time on one node", points.first().map_or(f64::NAN, |p| p.1))?;
                let rising = points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
                let last = points.last().map_or(f64::NAN, |p| p.1);
                check("list of measured times", if rising { last } else { f64::NAN })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_times_are_met_between_and_beyond() {
        let b = BaseTime::blue_gene_barrier();
        assert_eq!((b.ns(1), b.ns(512), b.ns(16_384)), (1_000.0, 1_000.0, 1_300.0));
        assert!((b.ns(1024) - 1_060.0).abs() < 1e-9);
        assert!((b.ns(1 << 20) - 1_660.0).abs() < 1e-9);
        assert_eq!(BaseTime::Log2 { fixed_ns: 5.0, level_ns: 2.0 }.ns(8), 11.0);
        assert_eq!(BaseTime::Measured(vec![(2, 7.0)]).ns(1024), 7.0);
        assert!(BaseTime::Measured(vec![]).check().is_err());
        assert!(BaseTime::Measured(vec![(2, 7.0), (4, 6.0)]).check().is_err());
        assert!(BaseTime::Log2 { fixed_ns: -1.0, level_ns: 2.0 }.check().is_err());
    }
}
