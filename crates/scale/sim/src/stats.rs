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
    (mean, Some(student_t95(values.len() - 1) * (variance(values) / n).sqrt()))
}

/// Variance of what `values` are a sample of; 0 for fewer than two.
#[must_use]
pub fn variance(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)
}

/// Values of a run from which on its neighbours tell how alike they are.
const LONG: usize = 16;

/// The same of runs of values that follow one another, as iterations do: where neighbours are alike, they say less than as
/// many independent ones; where a long one is followed by a short one, they say more. Long runs tell by the means of
/// overlapping batches of neighbours (Meketon and Schmeiser, "Overlapping batch means: something for nothing?", Winter
/// Simulation Conference 1984). Short ones cannot tell that values say more; that they say less, by one serial covariance
/// (Law, "Simulation modeling and analysis", section 4.4).
#[must_use]
pub fn mean_ci95_in_order(runs: &[Vec<f64>]) -> (f64, Option<f64>) {
    let found = in_order(runs);
    let half = (found.freedom > 0).then(|| student_t95(found.freedom) * found.variance.sqrt());
    (found.mean, half)
}

/// A mean, its variance, and the degrees of freedom of the variance.
pub(crate) struct InOrder {
    mean: f64,
    pub(crate) variance: f64,
    freedom: usize,
}

/// The mean of runs of values that follow one another.
pub(crate) fn in_order(runs: &[Vec<f64>]) -> InOrder {
    let values = runs.concat();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if runs.iter().map(Vec::len).min().is_some_and(|n| n >= LONG) {
        return by_batches(runs, mean);
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let neighbours =
        runs.iter().flat_map(|r| r.windows(2)).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>();
    let alike = if squares > 0.0 { (neighbours / squares).clamp(0.0, 1.0) } else { 0.0 };
    let variance = variance(&values) / n.max(1.0) * (1.0 + 2.0 * alike);
    InOrder { mean, variance, freedom: values.len().saturating_sub(1) }
}

/// The same by batches about as long as there are of them.
fn by_batches(runs: &[Vec<f64>], mean: f64) -> InOrder {
    let (mut squares, mut batches, mut apart, mut count) = (0.0, 0.0, 0.0, 0.0);
    for run in runs {
        let size = (run.len() as f64).sqrt() as usize;
        for batch in run.windows(size) {
            let of_batch = batch.iter().sum::<f64>() / size as f64;
            squares += size as f64 * (of_batch - mean).powi(2);
            batches += 1.0;
        }
        apart += run.len() as f64 / size as f64;
        count += run.len() as f64;
    }
    // batches that overlap say half as much again as those that do not
    let freedom = (1.5 * (apart - 1.0)).max(1.0) as usize;
    InOrder { mean, variance: squares / batches * apart / (apart - 1.0) / count, freedom }
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
    fn intervals_of_values_in_order_cover_whether_neighbours_are_alike_or_not() {
        use crate::rng::Key;
        // values that keep a share of the last one: the mean is 0
        for keeps in [-0.9, -0.5, 0.0, 0.5] {
            let run = |key: Key| {
                let mut last = 0.0;
                let value = |n: u64| {
                    last = keeps * last + key.uniform(n) - 0.5;
                    last
                };
                (0..68).map(value).collect::<Vec<f64>>().split_off(20)
            };
            let (mut covered, mut wide) = (0, 0.0);
            for seed in 0..200 {
                let (mean, half) = mean_ci95_in_order(&[run(Key::new(seed)), run(Key::new(seed + 1000))]);
                let half = half.expect("many values");
                covered += u32::from(mean.abs() <= half);
                wide += half / 200.0;
            }
            // of the mean of 96 such values
            let sure = 1.98 * (1.0 / 12f64 / 96.0).sqrt() / (1.0 - keeps);
            assert!(covered >= 176, "{keeps}: {covered} of 200 cover");
            assert!(wide < 1.6 * sure, "{keeps}: {wide} instead of {sure}");
        }
    }

    #[test]
    fn quantiles_count_weights() {
        let w = Weighted::new([(30, 1), (10, 98), (20, 1)]);
        assert_eq!([0.0, 0.5, 0.98, 0.99, 0.999, 1.0].map(|q| w.quantile(q)), [10, 10, 10, 20, 30, 30]);
        assert_eq!(Weighted::default().quantile(0.5), 0);
    }
}
