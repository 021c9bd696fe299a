// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formulas: optimal intervals, expected times, the risk of a double checkpoint. All times are seconds.

/// Young's interval: work between two checkpoints, `sqrt(2 δ M)` (Young, "A first order approximation to the optimum
/// checkpoint interval", CACM 17(9), 1974).
#[must_use]
pub fn young(cost_s: f64, mtbf_s: f64) -> f64 {
    (2.0 * cost_s * mtbf_s).sqrt()
}

/// Daly's interval: work between two checkpoints (Daly, "A higher order estimate of the optimum checkpoint interval for
/// restart dumps", FGCS 22(3), 2006, equation 37).
#[must_use]
pub fn daly(cost_s: f64, mtbf_s: f64) -> f64 {
    if cost_s >= 2.0 * mtbf_s {
        return mtbf_s;
    }
    let ratio = cost_s / (2.0 * mtbf_s);
    young(cost_s, mtbf_s) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - cost_s
}

/// Expected time to complete `span_s` without a failure within it, if a failure is followed by `recovery_s`, which may
/// fail too: `M e^(R/M) (e^(t/M) − 1)`, exact for exponential failures (Daly 2006, equation 13). Infinite where the
/// exponential function is.
#[must_use]
pub fn expected_span(span_s: f64, recovery_s: f64, mtbf_s: f64) -> f64 {
    mtbf_s * (recovery_s / mtbf_s).exp() * (span_s / mtbf_s).exp_m1()
}

/// Expected time of `work_s` in intervals of `interval_s` with a checkpoint of `cost_s` after each but the last.
#[must_use]
pub fn expected_wall(work_s: f64, interval_s: f64, cost_s: f64, recovery_s: f64, mtbf_s: f64) -> f64 {
    let interval_s = interval_s.min(work_s);
    let whole = ((work_s / interval_s - 1e-9).ceil() - 1.0).max(0.0);
    let last = work_s - whole * interval_s;
    // 0 times infinity is no number
    let spans = |count: f64, span_s: f64| {
        if count > 0.0 && span_s > 0.0 { count * expected_span(span_s, recovery_s, mtbf_s) } else { 0.0 }
    };
    spans(whole, interval_s + cost_s) + spans(1.0, last)
}

/// Probability that in `time_s` some node fails within `window_s` of its buddy, so that both copies of a state are lost:
/// `1 − e^(−n t w / θ²)` for `nodes` nodes of MTBF `node_mtbf_s`, which is the risk of Dongarra, Hérault and Robert,
/// "Revisiting the double checkpointing algorithm", APDCM 2013, section IV, for a small `w / θ`. Exponential failures.
#[must_use]
pub fn both_lost(nodes: u64, node_mtbf_s: f64, window_s: f64, time_s: f64) -> f64 {
    let again = -(-window_s / node_mtbf_s).exp_m1();
    -(-(nodes as f64) * time_s / node_mtbf_s * again).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dalys_interval_is_the_published_one() {
        // δ = 5 min, M = 24 h, by hand from equation 37
        let (d, m) = (300.0_f64, 86_400.0_f64);
        let by_hand = (2.0 * d * m).sqrt() * (1.0 + (d / (2.0 * m)).sqrt() / 3.0 + d / (2.0 * m) / 9.0) - d;
        assert!((daly(d, m) - by_hand).abs() < 1e-9);
        assert_eq!(daly(10.0, 5.0), 5.0);
    }

    #[test]
    fn the_risk_is_that_of_pairs() {
        // (1 − 2 λ² t w)^(n/2), as published
        let (n, theta, w, t) = (10_000_u64, 1e8_f64, 60.0, 6e5);
        let published = 1.0 - (1.0 - 2.0 * t * w / theta.powi(2)).powf(n as f64 / 2.0);
        assert!((both_lost(n, theta, w, t) / published - 1.0).abs() < 1e-4);
    }

    #[test]
    fn an_expected_time_beyond_all_numbers_is_infinite() {
        for interval_s in [1e-12, 1e-6, 1.0, 1e9] {
            assert_eq!(expected_wall(6e5, interval_s, 3.0, 17.0, 1e-13), f64::INFINITY, "{interval_s}");
        }
    }

    proptest! {
        #[test]
        fn dalys_interval_costs_the_least_within_one_in_two_hundred(
            cost in 1.0..100.0_f64, times in 20.0..1e5_f64, off in 0.5..2.0_f64,
        ) {
            let mtbf = cost * times;
            let per_work = |tau: f64| expected_span(tau + cost, 0.0, mtbf) / tau;
            let best = daly(cost, mtbf);
            prop_assert!(per_work(best) <= per_work(best * off) * 1.005);
        }

        #[test]
        fn expected_times_are_at_least_the_work(work in 1.0..1e6_f64, tau in 1.0..1e5_f64, mtbf in 1e3..1e9_f64) {
            prop_assert!(expected_wall(work, tau, 1.0, 10.0, mtbf) >= work * (1.0 - 1e-9));
        }
    }
}
