// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detours at regular distances that do not keep their phase.

use super::fold::LN_P;
use super::{Events, Found, MIN_TICKS, Period, center_and_spread, lengths, ln_tail, vector_strength};

/// Distances this near to the commonest are the same, as a share of it.
const NEAR: f64 = 0.12;

/// The share of all distances that must be the same.
const MIN_SHARE: f64 = 0.4;

/// The share of the run that such distances must fill.
const MIN_FILLED: f64 = 0.3;

/// Logarithm of the number of distances tried, at most.
const LN_TRIALS: f64 = 7.0;

/// The commonest distance from one detour to the next, if most have it and chance does not explain that.
pub(super) fn find(events: &Events) -> Option<Found> {
    let at = &events.at;
    let mut distances: Vec<f64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    if distances.len() < 2 * MIN_TICKS {
        return None;
    }
    let span = at[at.len() - 1] - at[0];
    distances.sort_unstable_by(f64::total_cmp);
    let period = commonest(&distances)?;
    let near = |d: f64| (d - period).abs() <= NEAR * period;
    let (n, mut same): (f64, Vec<f64>) =
        (distances.len() as f64, distances.iter().copied().filter(|d| near(*d)).collect());
    let (count, mean) = (same.len() as f64, span / n);
    let by_chance = (-(1.0 - NEAR) * period / mean).exp() - (-(1.0 + NEAR) * period / mean).exp();
    let ln_p = ln_tail(count, n, by_chance) + LN_TRIALS;
    let filled = count * period / span;
    if ln_p >= LN_P || count < MIN_SHARE * n || filled < MIN_FILLED {
        return None;
    }
    let (_, jitter_ns) = center_and_spread(&mut same);
    let members: Vec<usize> = (0..at.len())
        .filter(|&i| (i > 0 && near(at[i] - at[i - 1])) || (i + 1 < at.len() && near(at[i + 1] - at[i])))
        .collect();
    let (median_ns, stolen_ns) = lengths(events, &members);
    let period = Period {
        hz: 1e9 / period,
        period_ns: period,
        phase_ns: at[*members.first()?].rem_euclid(period),
        count: members.len(),
        occupancy: filled.min(1.0),
        median_ns,
        stolen_ns,
        jitter_ns,
        locked: false,
        strength: vector_strength(at, period),
        ln_p,
    };
    Some(Found { period, members })
}

/// The middle of the densest stretch of sorted distances, a stretch being as wide as [`NEAR`] allows.
fn commonest(sorted: &[f64]) -> Option<f64> {
    let mut from = 0;
    let mut best = (0, 0..0);
    for (to, d) in sorted.iter().enumerate() {
        while sorted[from] * (1.0 + NEAR) < d * (1.0 - NEAR) {
            from += 1;
        }
        if to - from >= best.0 {
            best = (to - from, from..to + 1);
        }
    }
    let dense = sorted.get(best.1)?;
    dense.get(dense.len() / 2).copied().filter(|d| *d > 0.0)
}
