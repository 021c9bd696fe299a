//! The distribution of a curve's values, kept from its largest value downwards: what matters of a
//! million nodes is the far tail of one.

use crate::curve::{Curve, Segment};

/// How often a value is exceeded: exact for a piecewise-linear curve, no sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// Values, falling, and beside each the share of time the curve is at or above it (rising to 1).
    /// A value that is held for a while stands there twice: a jump.
    steps: Vec<(f64, f64)>,
}

impl Tail {
    /// The distribution of `curve` at a uniformly random instant; `None` for a curve without length.
    #[must_use]
    pub fn of(curve: &Curve) -> Option<Self> {
        let total: f64 = curve.segments().iter().map(|s| s.len).sum();
        if total <= 0.0 {
            return None;
        }
        // value, mass held exactly there, change of density on the way down
        let mut events: Vec<(f64, f64, f64)> = Vec::with_capacity(2 * curve.segments().len());
        for &Segment { len, from, to } in curve.segments() {
            let (low, high) = (from.min(to), from.max(to));
            if high - low > 1e-9 {
                let density = len / (high - low) / total;
                events.push((high, 0.0, density));
                events.push((low, 0.0, -density));
            } else {
                events.push((high, len / total, 0.0));
            }
        }
        events.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let mut steps: Vec<(f64, f64)> = Vec::new();
        let (mut above, mut density, mut last) = (0.0, 0.0, f64::NAN);
        for chunk in events.chunk_by(|a, b| a.0 == b.0) {
            let value = chunk[0].0;
            if density > 1e-15 {
                above += density * (last - value);
            }
            steps.push((value, above));
            let mass: f64 = chunk.iter().map(|e| e.1).sum();
            if mass > 0.0 {
                above += mass;
                steps.push((value, above));
            }
            density += chunk.iter().map(|e| e.2).sum::<f64>();
            last = value;
        }
        Some(Self { steps })
    }

    /// Always nought.
    #[must_use]
    pub fn nothing() -> Self {
        Self { steps: vec![(0.0, 1.0)] }
    }

    /// The value exceeded with probability `p`.
    #[must_use]
    pub fn exceeded_with(&self, p: f64) -> f64 {
        let i = self.steps.partition_point(|s| s.1 < p);
        match (i.checked_sub(1).map(|j| self.steps[j]), self.steps.get(i)) {
            (Some((v0, p0)), Some(&(v1, p1))) if p1 > p0 => v0 + (v1 - v0) * (p - p0) / (p1 - p0),
            (_, Some(&(v, _))) | (Some((v, _)), None) => v,
            (None, None) => 0.0,
        }
    }

    /// Probability of a value above `value`.
    #[must_use]
    pub fn above(&self, value: f64) -> f64 {
        let i = self.steps.partition_point(|s| s.0 > value);
        match (i.checked_sub(1).map(|j| self.steps[j]), self.steps.get(i)) {
            (Some((v0, p0)), Some(&(v1, p1))) if v0 > v1 => p0 + (p1 - p0) * (v0 - value) / (v0 - v1),
            (_, Some(&(_, p))) => p,
            (Some((_, p)), None) => p,
            (None, None) => 0.0,
        }
    }

    /// The largest of `n` independent draws, from one uniform number `u` in (0, 1): the inverse of Fⁿ.
    /// As quick for a million nodes as for two.
    #[must_use]
    pub fn largest_of(&self, n: u64, u: f64) -> f64 {
        match n {
            0 => 0.0,
            // 1 − u^(1/n) without losing the small probabilities that large n asks for
            _ => self.exceeded_with(-(u.ln() / n as f64).exp_m1()),
        }
    }

    /// The largest value.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.steps.first().map_or(0.0, |s| s.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{CpuNoise, NodeNoise};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn tail(seed: u64, work_ns: u64) -> Tail {
        let cpu = CpuNoise::leibniz(2_000_000, 30_000_000, 3_000_000, 5_000_000_000, seed).expect("valid");
        Tail::of(&Curve::delay(&NodeNoise::new(vec![cpu]).expect("one"), work_ns)).expect("not empty")
    }

    #[test]
    fn a_uniform_rest_is_uniform() {
        // a detour of 100 in 1000, work of nothing: the rest is uniform on 0..100, one time in ten
        let noise = NodeNoise::new(vec![CpuNoise::periodic(1000, 100).expect("valid")]).expect("one");
        let t = Tail::of(&Curve::delay(&noise, 0)).expect("not empty");
        assert!((t.above(0.0) - 0.1).abs() < 1e-12 && (t.above(50.0) - 0.05).abs() < 1e-12);
        assert!((t.exceeded_with(0.025) - 75.0).abs() < 1e-9);
        assert_eq!((t.exceeded_with(0.5), t.largest(), t.above(100.0)), (0.0, 100.0, 0.0));
    }

    #[test]
    fn the_largest_of_n_is_distributed_as_n_draws_are() {
        let t = tail(3, 50_000);
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for n in [1u64, 2, 7, 40] {
            let mean = |xs: &[f64]| xs.iter().sum::<f64>() / xs.len() as f64;
            let quick: Vec<f64> = (0..20_000).map(|_| t.largest_of(n, rng.random::<f64>())).collect();
            let brute: Vec<f64> = (0..20_000)
                .map(|_| (0..n).map(|_| t.exceeded_with(rng.random::<f64>())).fold(0.0, f64::max))
                .collect();
            let deviation = brute.iter().map(|x| (x - mean(&brute)).powi(2)).sum::<f64>() / 20_000.0;
            let error = (2.0 * deviation / 20_000.0).sqrt();
            let apart = (mean(&quick) - mean(&brute)).abs();
            assert!(apart < 4.5 * error, "n {n}: {} against {} (± {error})", mean(&quick), mean(&brute));
        }
    }

    proptest! {
        #[test]
        fn both_directions_agree(seed in 0u64..20, p in 1e-6..0.999f64) {
            let t = tail(seed, 10_000);
            let v = t.exceeded_with(p);
            // equal on slopes; on a jump the probability lies inside it
            prop_assert!(t.above(v) <= p + 1e-9 && t.above(v - 1e-3) >= p - 1e-9, "{v} {p} {}", t.above(v));
        }

        #[test]
        fn more_nodes_are_never_faster(seed in 0u64..20, u in 1e-9..1.0f64, n in 1u64..1_000_000) {
            let t = tail(seed, 10_000);
            prop_assert!(t.largest_of(n + 1, u) >= t.largest_of(n, u));
        }
    }
}
