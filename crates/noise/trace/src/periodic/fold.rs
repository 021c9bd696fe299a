// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for locked periods: fold, refine, count ticks.

use super::candidates::{Candidate, candidates};
use super::{Events, Found, MIN_TICKS, Period, center_and_spread, lengths, ln_tail, vector_strength};

/// Instants that are looked at while periods are compared, in stretches all over the run; the one that wins is
/// measured on all.
const STRETCHES: usize = 32;
const STRETCH: usize = 1_024;

/// Instants in one fold while a period is refined.
const FOLDED: usize = 2_048;

/// Bins of a fold while a period is refined, and when its phase is looked for.
const COARSE: usize = 64;
const FINE: usize = 4_096;

/// Widths of a tick that are tried, in bins of [`FINE`]: from 0.02 % to 9 % of the period to either side.
const WIDTHS: [usize; 6] = [1, 4, 16, 64, 192, 384];

/// Ticks further off than this share of the period are none.
const WIDEST: f64 = 0.12;

/// Below this share of ticks seen, a period says nothing.
const MIN_OCCUPANCY: f64 = 0.1;

/// Best fits that are measured on all events until one passes.
const MEASURED: usize = 4;

/// Logarithm of the largest chance accepted (1e-5), after correction for the trials.
pub(super) const LN_P: f64 = -11.5;

/// Logarithm of the number of periods, phases and widths tried, at most.
const LN_TRIALS: f64 = 19.4;

/// Ticks at `phase + k · period`, give or take `width`.
#[derive(Clone, Copy, Debug)]
struct Comb {
    period: f64,
    phase: f64,
    width: f64,
}

/// The quality of a comb's fit.
#[derive(Clone, Copy, Debug)]
struct Fit {
    comb: Comb,
    /// Share of the ticks that have a detour beside them.
    occupancy: f64,
    /// Ticks hit beyond those that random detours would hit.
    excess: f64,
    ln_p: f64,
}

impl Fit {
    /// A comb twice as dense hits the same ticks: the sparser explains better.
    fn score(&self) -> f64 {
        self.excess * self.occupancy.powf(1.5)
    }
}

impl Comb {
    /// The tick next to `t` and the distance from it.
    fn nearest(&self, t: f64) -> (i64, f64) {
        let k = ((t - self.phase) / self.period).round();
        (k as i64, t - self.phase - k * self.period)
    }

    /// Ticks with a detour beside them, and for each the detour: the closest.
    fn hits(&self, at: &[f64]) -> Vec<(i64, usize)> {
        let mut hits: Vec<(i64, usize)> = Vec::new();
        let mut off = f64::INFINITY;
        for (i, &t) in at.iter().enumerate() {
            let (k, d) = self.nearest(t);
            if d.abs() > self.width {
                continue;
            }
            match hits.last_mut() {
                Some(last) if last.0 == k && d.abs() >= off => continue,
                Some(last) if last.0 == k => *last = (k, i),
                _ => hits.push((k, i)),
            }
            off = d.abs();
        }
        hits
    }

    /// Number of ticks in the time of the stretches.
    fn ticks(&self, stretches: &[&[f64]]) -> f64 {
        let in_one = |s: &&[f64]| {
            let first = ((s[0] - self.width - self.phase) / self.period).ceil();
            let last = ((s[s.len() - 1] + self.width - self.phase) / self.period).floor();
            (last - first + 1.0).max(0.0)
        };
        stretches.iter().map(in_one).sum()
    }

    /// Chance that a tick has a detour beside it where detours are at random.
    fn chance(&self, stretches: &[&[f64]]) -> f64 {
        let count: usize = stretches.iter().map(|s| s.len()).sum();
        let time: f64 = stretches.iter().map(|s| s[s.len() - 1] - s[0]).sum();
        1.0 - (-(count as f64) * 2.0 * self.width / time.max(1.0)).exp()
    }

    fn fit(self, stretches: &[&[f64]]) -> Fit {
        let hits: usize = stretches.iter().map(|s| self.hits(s).len()).sum();
        let (ticks, q) = (self.ticks(stretches), self.chance(stretches));
        // a detour at the very end may be beside a tick that is not counted
        let hits = (hits as f64).min(ticks);
        Fit {
            comb: self,
            occupancy: hits / ticks.max(1.0),
            excess: hits - q * ticks,
            ln_p: ln_tail(hits, ticks, q) + LN_TRIALS,
        }
    }
}

/// Some of the instants, in stretches without gaps: whether a tick was left out can be seen in them.
fn stretches(at: &[f64]) -> Vec<&[f64]> {
    if at.len() <= STRETCHES * STRETCH {
        return vec![at];
    }
    (0..STRETCHES).map(|i| &at[i * (at.len() - STRETCH) / (STRETCHES - 1)..][..STRETCH]).collect()
}

/// The comb that explains most, if there is any.
pub(super) fn find(events: &Events) -> Option<Found> {
    let sample = stretches(&events.at);
    let try_near = |candidate| {
        let period = refine(&events.at, candidate);
        reduce(phase(&sample, period)?, &sample).filter(|f| f.ln_p < LN_P && f.occupancy >= MIN_OCCUPANCY)
    };
    let mut fits: Vec<Fit> = candidates(&events.at).into_iter().filter_map(try_near).collect();
    fits.sort_by(|a, b| b.score().total_cmp(&a.score()));
    // jitter blurs short distances more than long ones: what fits may be every 2nd or 3rd tick
    if let Some(best) = fits.first().copied() {
        let denser = [2.0, 3.0].map(|m| Candidate { period: best.comb.period / m, error: 1e-4 });
        fits.extend(denser.into_iter().filter_map(try_near));
        fits.sort_by(|a, b| b.score().total_cmp(&a.score()));
    }
    fits.into_iter().take(MEASURED).find_map(|fit| measure(events, fit.comb))
}

/// At most `most` of `at`, spread evenly but at random places, so that nothing periodic is favoured.
fn thin(at: &[f64], most: usize) -> Vec<f64> {
    if at.len() <= most {
        return at.to_vec();
    }
    let step = at.len() as f64 / most as f64;
    let random = |i: usize| {
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93)
    };
    (0..most)
        .map(|i| at[(((i as f64) + (random(i) >> 11) as f64 / (1u64 << 53) as f64) * step) as usize])
        .collect()
}

/// Sharpness of the fold of `at` at frequency `f`: large where few phases hold many instants.
fn sharpness(at: &[f64], f: f64) -> u64 {
    let mut bins = [0u32; COARSE];
    for t in at {
        bins[((t * f).fract() * COARSE as f64) as usize % COARSE] += 1;
    }
    // neighbours together: a sharp phase may lie on a border
    (0..COARSE).map(|i| u64::from(bins[i] + bins[(i + 1) % COARSE]).pow(2)).sum()
}

/// The period near a candidate at which the fold is sharpest, over windows that double until they are the run.
fn refine(at: &[f64], candidate: Candidate) -> f64 {
    let (first, span) = (at[0], at[at.len() - 1] - at[0]);
    let middle = at[at.len() / 2];
    let mut f = 1.0 / candidate.period;
    let events_per_ns = at.len() as f64 / span;
    let mut window = (64.0 * candidate.period).max(256.0 / events_per_ns).min(span);
    let mut reach = candidate.error * f;
    loop {
        let from = (middle - window / 2.0).min(first + span - window).max(first);
        let (a, b) = (at.partition_point(|t| *t < from), at.partition_point(|t| *t <= from + window));
        let inside = thin(&at[a..b], FOLDED);
        let last = window >= span;
        let step = if last { 0.03 } else { 0.1 } / window;
        let steps = (reach / step).ceil().clamp(6.0, 400.0) as i32;
        let tried = (-steps..=steps).map(|i| f + f64::from(i) * step).filter(|f| *f > 0.0);
        // of equally sharp ones the nearest to what was thought before
        let best = tried.max_by_key(|g| (sharpness(&inside, *g), -((g - f).abs() / step) as i64));
        f = best.unwrap_or(f);
        if last {
            return 1.0 / f;
        }
        reach = 0.15 / window;
        window = (2.0 * window).min(span);
    }
}

/// The phase and width at which a period's ticks are least likely by chance.
fn phase(sample: &[&[f64]], period: f64) -> Option<Fit> {
    let mut bins = vec![0u32; FINE];
    for t in sample.iter().copied().flatten() {
        bins[((t / period).fract() * FINE as f64) as usize % FINE] += 1;
    }
    let fits = WIDTHS.iter().map(|&half| {
        let bin = densest(&bins, half);
        let comb = Comb {
            period,
            phase: (bin as f64 + 0.5) / FINE as f64 * period,
            width: half as f64 / FINE as f64 * period,
        };
        comb.fit(sample)
    });
    let best = fits.min_by(|a, b| a.ln_p.total_cmp(&b.ln_p))?;
    Some(tighten(best.comb, sample).fit(sample))
}

/// The bin with most in it and `half` bins to either side.
fn densest(bins: &[u32], half: usize) -> usize {
    let n = bins.len();
    let mut sum: u32 = (0..=2 * half).map(|i| bins[(n + i - half) % n]).sum();
    let mut best = (sum, 0);
    for center in 1..n {
        sum = sum + bins[(center + half) % n] - bins[(n + center - half - 1) % n];
        best = best.max((sum, center));
    }
    best.1
}

/// Moves a comb to the middle of its ticks and makes it as wide as they scatter.
fn tighten(comb: Comb, sample: &[&[f64]]) -> Comb {
    let generous = Comb { width: (2.0 * comb.width).min(WIDEST * comb.period), ..comb };
    let of =
        |s: &&[f64]| generous.hits(s).iter().map(|&(_, i)| generous.nearest(s[i]).1).collect::<Vec<f64>>();
    let mut off: Vec<f64> = sample.iter().flat_map(of).collect();
    let (center, spread) = center_and_spread(&mut off);
    let width = (5.0 * spread).max(0.002 * comb.period).min(WIDEST * comb.period);
    Comb { phase: comb.phase + center, width, ..comb }
}

/// A comb whose hits are all on every 2nd, 3rd, … tick is a sparser one.
fn reduce(mut fit: Fit, sample: &[&[f64]]) -> Option<Fit> {
    'again: loop {
        let hits: Vec<i64> = sample.iter().flat_map(|s| fit.comb.hits(s)).map(|(k, _)| k).collect();
        if hits.len() < MIN_TICKS {
            return None;
        }
        for m in [2i64, 3, 5, 7, 11, 13] {
            let mut counts = vec![0.0; m as usize];
            for k in &hits {
                counts[k.rem_euclid(m) as usize] += 1.0;
            }
            let by_chance = fit.comb.chance(sample) * fit.comb.ticks(sample) / m as f64;
            let beyond: Vec<f64> = counts.iter().map(|c| (c - by_chance).max(0.0)).collect();
            let (residue, most) = beyond
                .iter()
                .enumerate()
                .max_by(|a, b| a.1.total_cmp(b.1))
                .map_or((0, 0.0), |(r, n)| (r, *n));
            let needed = if hits.len() < 30 { 0.99 } else { 0.9 };
            if most >= MIN_TICKS as f64 * 0.9 && most >= needed * beyond.iter().sum::<f64>() {
                let sparser = Comb {
                    period: fit.comb.period * m as f64,
                    phase: fit.comb.phase + residue as f64 * fit.comb.period,
                    ..fit.comb
                };
                fit = sparser.fit(sample);
                continue 'again;
            }
        }
        return Some(fit);
    }
}

/// Measures a comb on all events: a straight line through its ticks gives period and phase, what is off the
/// line the jitter.
fn measure(events: &Events, comb: Comb) -> Option<Found> {
    let at = &events.at;
    let comb = line(comb, at, &comb.hits(at))?;
    let comb = tighten(comb, &[at]);
    let hits = comb.hits(at);
    let comb = line(comb, at, &hits)?;
    let fit = comb.fit(&[at]);
    if hits.len() < MIN_TICKS || fit.occupancy < MIN_OCCUPANCY || fit.ln_p >= LN_P {
        return None;
    }
    let mut off: Vec<f64> = hits.iter().map(|&(_, i)| comb.nearest(at[i]).1).collect();
    let locked = !wanders(&off, comb.period);
    let members: Vec<usize> = hits.iter().map(|h| h.1).collect();
    let (median_ns, stolen_ns) = lengths(events, &members);
    // what lasts longer than a period does not come once a period: it only begins with a timer's tick
    if median_ns as f64 >= comb.period {
        return None;
    }
    let period = Period {
        hz: 1e9 / comb.period,
        period_ns: comb.period,
        phase_ns: comb.phase.rem_euclid(comb.period),
        count: members.len(),
        occupancy: fit.occupancy.min(1.0),
        median_ns,
        stolen_ns,
        jitter_ns: center_and_spread(&mut off).1,
        locked,
        strength: vector_strength(&thin(at, STRETCHES * STRETCH), comb.period),
        ln_p: fit.ln_p,
    };
    Some(Found { period, members })
}

/// True if ticks drift around their instants instead of scattering: each is near the one before (von Neumann's ratio),
/// though all together they are spread widely.
fn wanders(off: &[f64], period: f64) -> bool {
    let square = |v: f64| v * v;
    let spread = off.iter().copied().map(square).sum::<f64>();
    let steps = off.windows(2).map(|w| square(w[1] - w[0])).sum::<f64>();
    (spread / off.len() as f64).sqrt() > 0.01 * period && steps < 0.5 * spread
}

/// The comb through its hits by least squares.
fn line(comb: Comb, at: &[f64], hits: &[(i64, usize)]) -> Option<Comb> {
    let n = hits.len() as f64;
    let k0 = hits.iter().map(|h| h.0 as f64).sum::<f64>() / n;
    let t0 = hits.iter().map(|h| at[h.1]).sum::<f64>() / n;
    let (mut kk, mut kt) = (0.0, 0.0);
    for (k, i) in hits {
        let dk = *k as f64 - k0;
        kk += dk * dk;
        kt += dk * (at[*i] - t0);
    }
    let period = kt / kk;
    // fewer than two ticks make no line
    period.is_finite().then_some(Comb { period, phase: t0 - k0 * period, ..comb })
}
