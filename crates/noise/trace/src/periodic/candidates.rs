// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periods worth a closer look.

/// Rates timers usually run at, in Hz.
const USUAL_HZ: [f64; 10] = [1.0, 2.0, 4.0, 10.0, 50.0, 100.0, 200.0, 250.0, 300.0, 1000.0];

/// Number of neighbours to which a detour's distance is taken: as many foreign detours may lie between two ticks.
const LAGS: usize = 8;

/// Widths of a class of distances, as a share of the distance: sharp timers, and those with jitter. With each, how
/// many classes that stand out are tried, and by what share of itself a period from one may be wrong.
const CLASSES: [(f64, usize, f64); 2] = [(0.01, 10, 4e-3), (0.06, 6, 2.5e-2)];

/// Detours that are looked at, in stretches all over the run.
const STRETCHES: usize = 20;
const STRETCH: usize = 1000;

/// A period to try, and by which share of itself it may be wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) period: f64,
    pub(super) error: f64,
}

/// Candidates for instants `at` (ascending, nanoseconds).
pub(super) fn candidates(at: &[f64]) -> Vec<Candidate> {
    let span = at.last().unwrap_or(&0.0) - at.first().unwrap_or(&0.0);
    let usual = USUAL_HZ.iter().map(|hz| Candidate { period: 1e9 / hz, error: 3e-4 });
    usual
        .chain(distances(at))
        .filter(|c| c.period >= 1e3 && c.period * super::MIN_TICKS as f64 <= span * 1.2)
        .collect()
}

/// Distances between detours that are commoner than chance would have them.
fn distances(at: &[f64]) -> Vec<Candidate> {
    let stretches: Vec<&[f64]> = if at.len() <= STRETCHES * STRETCH {
        vec![at]
    } else {
        (0..STRETCHES).map(|i| &at[i * (at.len() - STRETCH) / (STRETCHES - 1)..][..STRETCH]).collect()
    };
    let mut found: Vec<f64> = stretches
        .iter()
        .flat_map(|s| (1..=LAGS).flat_map(|lag| s.iter().zip(s.iter().skip(lag)).map(|(a, b)| b - a)))
        .filter(|d| *d >= 1e3)
        .collect();
    found.sort_unstable_by(f64::total_cmp);
    let looked_at: usize = stretches.iter().map(|s| s.len()).sum();
    let time: f64 = stretches.iter().map(|s| s[s.len() - 1] - s[0]).sum();
    let pairs_per_ns = looked_at as f64 * looked_at as f64 / time.max(1.0);
    let of = |(width, most, error)| {
        peaks(&found, pairs_per_ns, width, most).into_iter().map(move |period| Candidate { period, error })
    };
    CLASSES.into_iter().flat_map(of).collect()
}

/// Medians of the classes of sorted distances that stand out most from chance.
fn peaks(sorted: &[f64], pairs_per_ns: f64, width: f64, most: usize) -> Vec<f64> {
    let class = |d: f64| (d.ln() / width) as usize;
    let classes: Vec<(usize, &[f64])> =
        sorted.chunk_by(|a, b| class(*a) == class(*b)).map(|c| (class(c[0]), c)).collect();
    // a peak on the border of two classes counts in both
    let mut ranked: Vec<(f64, f64)> = (0..classes.len())
        .filter_map(|i| {
            let (number, here) = classes[i];
            let next = classes.get(i + 1).filter(|n| n.0 == number + 1).map_or(&[][..], |n| n.1);
            let count = (here.len() + next.len()) as f64;
            let d = here.iter().chain(next).nth((here.len() + next.len()) / 2)?;
            let expected = pairs_per_ns * d * width * 2.0;
            (count >= 4.0).then_some(((count - expected) / (expected + 1.0).sqrt(), *d))
        })
        .collect();
    ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut chosen: Vec<f64> = Vec::new();
    for (score, d) in ranked {
        if score < 3.0 || chosen.len() >= most {
            break;
        }
        if chosen.iter().all(|c| (d / c).ln().abs() > 1.5 * width) {
            chosen.push(d);
        }
    }
    chosen
}
