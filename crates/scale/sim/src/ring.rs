// SPDX-License-Identifier: MIT OR Apache-2.0
//! "Imagine for a moment a ring of p processors" (ANL 2005): where delays add up instead of overlapping.

/// Mean delay of one trip around a ring of `processors`, each hit with `probability` by a detour of
/// `detour_ns` just before it passes the message on. Nanoseconds.
///
/// The paper's own figures, for 0.2 % and 100 K processors: 10 µs detours cost 2 ms, 100 ms detours 20 s.
#[must_use]
pub fn mean_delay_ns(processors: u64, probability: f64, detour_ns: f64) -> f64 {
    processors as f64 * probability * detour_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ring_holds() {
        assert!((mean_delay_ns(100_000, 0.002, 10_000.0) - 2_000_000.0).abs() < 1e-6);
        assert!((mean_delay_ns(100_000, 0.002, 100_000_000.0) - 20e9).abs() < 1e-3);
    }
}
