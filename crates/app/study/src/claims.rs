// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gain that a study may claim for coordinated windows: none if the noise levels contradict each other, or if the figures
//! are not known well enough to be told apart.

use crate::format::{self, noise_name};
use crate::params::SHOWN_NODES;
use crate::results::{Cell, Point, Results, SchedulerKind};

/// A ratio of two times with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The time without windows over that with windows.
    pub times: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Gain {
    /// `11.8× (8.1–17×) faster`.
    #[must_use]
    pub fn text(&self) -> String {
        let of = |times: f64, low: f64, high: f64| {
            format!("{} ({}–{})", format::times(times), format::number(low), format::times(high))
        };
        match self.times >= 1.0 {
            true => format!("{} faster", of(self.times, self.low, self.high)),
            false => format!("{} slower", of(1.0 / self.times, 1.0 / self.high, 1.0 / self.low)),
        }
    }
}

/// A time and the factor between it and an end of its 95 % interval.
#[derive(Clone, Copy)]
struct Known {
    ns: f64,
    factor: f64,
}

impl Known {
    fn point(p: &Point) -> Option<Self> {
        Some(Self { ns: p.mean_ns, factor: p.high_ns? / p.mean_ns.max(1.0) })
    }

    fn cell(c: &Cell) -> Option<Self> {
        Some(Self { ns: c.mean_ns, factor: 1.0 + c.mean_ci95_ns? / c.mean_ns.max(1.0) })
    }
}

/// The projected mean with its interval.
#[must_use]
pub fn mean(p: &Point) -> String {
    match (p.low_ns, p.high_ns) {
        (Some(low), Some(high)) => {
            format!("{} ({} to {})", format::time(p.mean_ns), format::time(low), format::time(high))
        }
        _ => format::time(p.mean_ns),
    }
}

/// The gain of windows on [`SHOWN_NODES`] nodes.
///
/// # Errors
/// The reason not to claim one, without a full stop.
pub fn projected(results: &Results, percent: f64) -> Result<Gain, String> {
    let scaling = results.scaling.as_ref().ok_or("the noise was not projected")?;
    let at = |percent, kind| scaling.curve(percent, kind).and_then(|c| c.at(SHOWN_NODES));
    let of = |percent| Some((percent, at(percent, SchedulerKind::Unmodified)?.mean_ns));
    ascending(results.params.noise_percent.iter().copied().filter_map(of))?;
    let known = |kind| at(percent, kind).and_then(Known::point);
    gain(known(SchedulerKind::Unmodified), known(SchedulerKind::Coordinated))
}

/// The gain of windows for `allreduce` on this node.
///
/// # Errors
/// As [`projected`].
pub fn measured(results: &Results, percent: f64) -> Result<Gain, String> {
    let of = |percent| Some((percent, results.cell(percent, SchedulerKind::Unmodified)?.mean_ns));
    ascending(results.params.noise_percent.iter().copied().filter_map(of))?;
    let known = |kind| results.cell(percent, kind).and_then(Known::cell);
    gain(known(SchedulerKind::Unmodified), known(SchedulerKind::Coordinated))
}

/// More noise cannot cost less: then something else than the injected noise decides the times.
fn ascending(levels: impl Iterator<Item = (f64, f64)>) -> Result<(), String> {
    let mut levels: Vec<(f64, f64)> = levels.collect();
    levels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let falls = levels.windows(2).find(|pair| pair[1].1 < pair[0].1);
    match falls {
        Some([less, more]) => Err(format!(
            "{} takes {} and {} only {}, so other noise than the injected one decides these times",
            noise_name(less.0),
            format::time(less.1),
            noise_name(more.0),
            format::time(more.1)
        )),
        _ => Ok(()),
    }
}

fn gain(unmodified: Option<Known>, coordinated: Option<Known>) -> Result<Gain, String> {
    let (Some(u), Some(c)) = (unmodified, coordinated) else {
        return Err("the measurements are too few for an interval".into());
    };
    let times = u.ns / c.ns.max(1.0);
    // errors of two independent measurements
    let factor = u.factor.ln().hypot(c.factor.ln()).exp();
    let found = Gain { times, low: times / factor, high: times * factor };
    if found.low <= 1.0 && found.high >= 1.0 {
        return Err(format!("it could be {}, but the 95 % interval contains 1", found.text()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_has_the_errors_of_both_times_and_none_is_claimed_within_them() {
        let known = |ns, factor| Some(Known { ns, factor });
        let found = gain(known(1000.0, 1.1), known(100.0, 1.0)).expect("far apart");
        assert!((found.times - 10.0).abs() < 1e-9 && (found.high - 11.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.text(), "10× (9.09–11×) faster");
        let wide = gain(known(300.0, 2.0), known(100.0, 3.0)).expect_err("cannot be told");
        assert!(wide.contains("contains 1"), "{wide}");
        assert!(gain(known(300.0, 1.1), None).expect_err("unknown").contains("too few"));
        // a loss is a result, too
        assert!(gain(known(100.0, 1.1), known(300.0, 1.1)).expect("known").text().ends_with("slower"));
    }

    #[test]
    fn levels_that_contradict_each_other_are_named() {
        assert!(ascending([(0.0, 1e6), (2.0, 1e6), (21.0, 3e6)].into_iter()).is_ok());
        let wrong = ascending([(21.0, 199e6), (0.0, 1e6), (2.0, 779e6)].into_iter()).expect_err("falls");
        assert!(wrong.starts_with("2 % noise takes 779 ms and 21 % noise only 199 ms"), "{wrong}");
    }
}
