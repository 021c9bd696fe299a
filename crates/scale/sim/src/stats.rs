// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of results.

/// Mean of `values` and half the width of its 95 % confidence interval (Student's t); `None` for fewer
/// than two values.
#[must_use]
pub fn mean_ci95(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, None);
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, Some(student_t95(values.len() - 1) * (variance / n).sqrt()))
}

/// The same of runs of values that follow one another, as iterations do: where neighbours are alike, they say less
/// than as many independent ones (the variance of a mean with one serial covariance: Law, "Simulation modeling and
/// analysis", section 4.4).
#[must_use]
pub fn mean_ci95_in_order(runs: &[Vec<f64>]) -> (f64, Option<f64>) {
    let values = runs.concat();
    let (mean, ci95) = mean_ci95(&values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let neighbours =
        runs.iter().flat_map(|r| r.windows(2)).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>();
    let alike = if squares > 0.0 { (neighbours / squares).clamp(0.0, 1.0) } else { 0.0 };
    (mean, ci95.map(|half| half * (1.0 + 2.0 * alike).sqrt()))
}

/// The 97.5th percentile of Student's t with `freedom` degrees of freedom, within 0.0005: tabulated up
/// to 10, then Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
fn student_t95(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match TABLE.get(freedom.max(1) - 1) {
        Some(&t) => t,
        None => {
            let (z, v) = (1.959_964_f64, freedom as f64);
            let g1 = (z.powi(3) + z) / 4.0;
            let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
            let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
            z + g1 / v + g2 / v.powi(2) + g3 / v.powi(3)
        }
    }
}

/// Times that came up so many times each.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    /// Rising, each with how many are no longer.
    sorted: Vec<(u64, u64)>,
}

impl Weighted {
    /// From `(time, count)` in any order.
    #[must_use]
    pub fn new(times: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<(u64, u64)> = times.into_iter().filter(|t| t.1 > 0).collect();
        sorted.sort_unstable();
        let mut sum = 0;
        for t in &mut sorted {
            sum += t.1;
            t.1 = sum;
        }
        Self { sorted }
    }

    /// The shortest time that at least the share `q` of all is no longer than; 0 without any times.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        let all = self.sorted.last().map_or(0, |t| t.1);
        let rank = ((q * all as f64).ceil() as u64).clamp(1, all.max(1));
        let at = self.sorted.partition_point(|t| t.1 < rank);
        self.sorted.get(at).map_or(0, |t| t.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Seeds of which a test asks every interval, `usual` unless `COLONY_SEEDS` says another number: 200 take some
    /// minutes.
    pub(crate) fn seeds(usual: u64) -> u64 {
        std::env::var("COLONY_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
    }

    #[test]
    fn intervals_are_students() {
        let (mean, half) = mean_ci95(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(mean, 3.0);
        assert!((half.expect("five values") - 1.963).abs() < 0.001);
        assert_eq!(mean_ci95(&[7.0]), (7.0, None));
        for (freedom, t) in [(11, 2.201), (30, 2.042), (100, 1.984), (1_000_000, 1.960)] {
            assert!((student_t95(freedom) - t).abs() < 0.0005, "{freedom}");
        }
    }

    #[test]
    fn quantiles_count_weights() {
        let w = Weighted::new([(30, 1), (10, 98), (20, 1)]);
        assert_eq!([0.0, 0.5, 0.98, 0.99, 0.999, 1.0].map(|q| w.quantile(q)), [10, 10, 10, 20, 30, 30]);
        assert_eq!(Weighted::default().quantile(0.5), 0);
    }
}
