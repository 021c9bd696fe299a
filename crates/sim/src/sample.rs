//! Weighted samples of operation times, and the uniform numbers they are drawn with.

use rand::{RngExt, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// `count` uniform numbers in (0, 1), one from each of `count` equal strata, in random order: far less
/// scatter of the mean than independent ones.
pub(crate) fn stratified(count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut u: Vec<f64> = (0..count)
        .map(|k| ((k as f64 + rng.random::<f64>()) / count as f64).max(f64::MIN_POSITIVE))
        .collect();
    u.shuffle(rng);
    u
}

/// Values with weights.
#[derive(Default)]
pub(crate) struct Samples(Vec<(f64, f64)>);

impl Samples {
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        if weight > 0.0 {
            self.0.push((value, weight));
        }
    }

    /// Sorts; the quantiles need it.
    pub(crate) fn finish(mut self) -> Self {
        self.0.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        self
    }

    fn weight(&self) -> f64 {
        self.0.iter().map(|s| s.1).sum()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().map(|s| s.0 * s.1).sum::<f64>() / self.weight()
    }

    /// Smallest value that at least the share `q` of the weight does not exceed.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let wanted = q * self.weight();
        let mut seen = 0.0;
        self.0
            .iter()
            .find(|s| {
                seen += s.1;
                seen >= wanted * (1.0 - 1e-12)
            })
            .map_or_else(|| self.largest(), |s| s.0)
    }

    pub(crate) fn largest(&self) -> f64 {
        self.0.last().map_or(0.0, |s| s.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn weights_count() {
        let mut s = Samples::default();
        s.add(10.0, 1.0);
        s.add(1.0, 99.0);
        s.add(5.0, 0.0);
        let s = s.finish();
        assert!((s.mean() - 1.09).abs() < 1e-12);
        assert_eq!(
            (s.quantile(0.5), s.quantile(0.99), s.quantile(0.999), s.largest()),
            (1.0, 1.0, 10.0, 10.0)
        );
    }

    #[test]
    fn every_stratum_is_hit_once() {
        let mut u = stratified(1000, &mut ChaCha8Rng::seed_from_u64(1));
        u.sort_unstable_by(f64::total_cmp);
        assert!(u.iter().enumerate().all(|(k, u)| (u * 1000.0).floor() as usize == k));
    }
}
