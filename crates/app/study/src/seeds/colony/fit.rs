// SPDX-License-Identifier: MIT OR Apache-2.0
//! The begin and the wake-ups of the noise daemons: fitted on half of the report's figures, tested on the other half.
//!
//! The first half gives the parameters behind all figures, [`Chosen::default`].

use std::num::NonZeroU64;

use colony_sim::words::number_of;

use super::model::{self, Chosen};
use super::{Context, DUTY, Experiment, Ours, Published};
use crate::results::Basis;
use crate::{Params, StudyError};

const MS: u64 = 1_000_000;
/// Begins of the daemons, milliseconds after the job.
const BEGINS_MS: std::ops::RangeInclusive<u64> = 0..=400;
/// Steps between the begins that are tried first, and between those around the best of them.
const STEPS_MS: [u64; 2] = [50, 10];
/// Ticks, milliseconds; 0: a daemon wakes at any instant.
const TICKS_MS: [u64; 3] = [0, 4, 10];
/// Parameters whose error is larger than the least one by no more than this fit as well.
const ALIKE: f64 = 0.005;

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Fig. 6: the unmodified run under 21 % noise.
    Run,
    /// Fig. 8: allreduce under 2 % noise, unmodified over coordinated.
    Allreduce,
    /// Fig. 9: the same of glob.
    Glob,
    /// Fig. 3: mean gain of a step of the duty cycle.
    DutyCycle,
}

impl Figure {
    const ALL: [Self; 4] = [Self::Run, Self::Allreduce, Self::Glob, Self::DutyCycle];

    const fn name(self) -> &'static str {
        match self {
            Self::Run => "Fig. 6 (3175.7 s)",
            Self::Allreduce => "Fig. 8 (1.1×)",
            Self::Glob => "Fig. 9 (1.12×)",
            Self::DutyCycle => "Fig. 3 (3.33% a step)",
        }
    }

    /// Seconds, ratio, or the factor of a step.
    const fn published(self) -> f64 {
        match self {
            Self::Run => 3175.7,
            Self::Allreduce => 1.1,
            Self::Glob => 1.12,
            Self::DutyCycle => 0.0333,
        }
    }

    fn simulated(self, params: &Params, chosen: &Chosen) -> Result<f64, StudyError> {
        let unmodified = |percent| model::total(params, chosen, &chosen.unmodified(percent), 8192);
        let coordinated = |duty, nodes| {
            model::total(params, chosen, &chosen.coordinated(2.0, chosen.windows(duty)?), nodes)
        };
        Ok(match self {
            Self::Run => unmodified(21.0)?.ns / 1e9,
            // glob on all nodes of the block is the same operation
            Self::Allreduce | Self::Glob => unmodified(2.0)?.ns / coordinated(DUTY, 8192)?.ns,
            Self::DutyCycle => {
                let (least, most) = (coordinated(0x000f_4000, 16_384)?, coordinated(DUTY, 16_384)?);
                ((least.ns / most.ns).ln() / 3.0).exp_m1()
            }
        })
    }
}

/// Parameters, and the errors of all figures with them: ours over the published value, less 1.
#[derive(Clone, Debug)]
struct Tried {
    begin_ms: u64,
    tick_ms: u64,
    errors: [f64; Figure::ALL.len()],
}

impl Tried {
    fn new(params: &Params, begin_ms: u64, tick_ms: u64) -> Result<Self, StudyError> {
        let chosen = Chosen {
            daemons_begin_ns: begin_ms * MS,
            tick_ns: NonZeroU64::new(tick_ms * MS),
            ..Chosen::default()
        };
        let mut errors = [0.0; Figure::ALL.len()];
        for (error, figure) in errors.iter_mut().zip(Figure::ALL) {
            *error = figure.simulated(params, &chosen)? / figure.published() - 1.0;
        }
        Ok(Self { begin_ms, tick_ms, errors })
    }

    fn error(&self, figure: Figure) -> f64 {
        self.errors[figure as usize]
    }

    /// Root of the mean square of the errors of `half`.
    fn misfit(&self, half: &[Figure]) -> f64 {
        let squares: f64 = half.iter().map(|&figure| self.error(figure).powi(2)).sum();
        (squares / half.len() as f64).sqrt()
    }
}

/// The two halves: which figures the parameters are fitted to.
const HALVES: [[Figure; 2]; 2] = [[Figure::Run, Figure::Allreduce], [Figure::Glob, Figure::DutyCycle]];

/// Fits the parameters to each half. The rows have the parameters and the errors of all figures.
pub(super) fn both_halves(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let mut tried = Vec::new();
    for tick_ms in TICKS_MS {
        for begin_ms in BEGINS_MS.step_by(STEPS_MS[0] as usize) {
            tried.push(Tried::new(c.params, begin_ms, tick_ms)?);
        }
    }
    let mut rows = Vec::new();
    for half in HALVES {
        around_the_best(c.params, &half, &mut tried)?;
        rows.extend(fitted_to(e, half, &tried));
    }
    Ok(rows)
}

/// The parameters that fit `half` best; of equal ones those tried first.
fn best<'a>(half: &[Figure], tried: &'a [Tried]) -> Option<&'a Tried> {
    tried.iter().min_by(|a, b| a.misfit(half).total_cmp(&b.misfit(half)))
}

/// Tries the begins around the best one, in shorter steps.
fn around_the_best(params: &Params, half: &[Figure], tried: &mut Vec<Tried>) -> Result<(), StudyError> {
    let Some(&Tried { begin_ms: middle, tick_ms, .. }) = best(half, tried) else { return Ok(()) };
    let [wide, step] = STEPS_MS;
    let (from, to) = (middle.saturating_sub(wide), (middle + wide).min(*BEGINS_MS.end()));
    for begin_ms in (from..=to).step_by(step as usize) {
        if tried.iter().all(|t| (t.begin_ms, t.tick_ms) != (begin_ms, tick_ms)) {
            tried.push(Tried::new(params, begin_ms, tick_ms)?);
        }
    }
    Ok(())
}

fn fitted_to(e: &Experiment, half: [Figure; 2], tried: &[Tried]) -> Vec<Published> {
    let Some(best) = best(&half, tried) else { return Vec::new() };
    let fit = format!("fit to {}", half.map(Figure::name).join(" and "));
    let alike: Vec<&Tried> = tried.iter().filter(|t| t.misfit(&half) <= best.misfit(&half) + ALIKE).collect();
    let note = format!(
        "simulated; {} of begin and tick were tried until here, {} of them fit these two figures alike (within {} %); Figs. 8 and \
         9 are one operation on all nodes, so one of them follows from the other",
        number_of(tried.len() as u64, "pair"),
        alike.len(),
        100.0 * ALIKE
    );
    let row = |what: String, ours| e.row(format!("{fit}: {what}"), ours, &note);
    let mut rows = vec![
        row("begin of the daemons after the job".into(), Ours::Ns((best.begin_ms * MS) as f64)),
        row("time between two ticks".into(), Ours::Ns((best.tick_ms * MS) as f64)),
    ];
    for figure in Figure::ALL {
        let basis = if half.contains(&figure) { Basis::Fitted } else { Basis::Predicted };
        let name = format!("{}, {}", figure.name(), basis.name());
        rows.push(row(format!("{name}: error"), Ours::Share(best.error(figure))));
        let errors = || alike.iter().map(|t| t.error(figure));
        let farthest = errors().max_by(|a, b| a.abs().total_cmp(&b.abs()));
        if let (Basis::Predicted, Some(farthest)) = (basis, farthest) {
            let what = format!("{name}: largest error of the pairs that fit alike");
            rows.push(row(what, Ours::Share(farthest)));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(begin_ms: u64, errors: [f64; 4]) -> Tried {
        Tried { begin_ms, tick_ms: 4, errors }
    }

    #[test]
    fn parameters_are_chosen_by_the_figures_of_their_half_alone() {
        let all = [tried(0, [0.3, 0.0, 0.0, 0.0]), tried(50, [0.0, 0.01, 0.9, 0.9])];
        let [first, second] = HALVES.map(|half| best(&half, &all).expect("one").begin_ms);
        assert_eq!((first, second), (50, 0));
    }

    #[test]
    fn every_figure_is_in_one_half() {
        for figure in Figure::ALL {
            assert_eq!(HALVES.iter().filter(|half| half.contains(&figure)).count(), 1, "{figure:?}");
        }
    }
}
