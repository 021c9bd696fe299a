// SPDX-License-Identifier: MIT OR Apache-2.0
//! The projection step: noise of this node, or made after the seeds' description, to many nodes.

use colony_sim::NodeNoise;
use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Operation, Program};
use colony_sim::scheduler::{Coordinated, Preempt};
use colony_sim::simulate::{Outcome, Simulation, simulate_for};
use colony_sim::source::{Class, Model, Source, Trace};
use colony_sim::stats::variance;
use colony_sim::what_if::resampled;
use colony_sim::words::once;
use colony_time::Windows;
use rayon::prelude::*;

use crate::params::SHOWN_NODES;
use crate::results::{Bucket, Point, Scaling, ScalingCurve, SchedulerKind};
use crate::{Params, StudyError, simulated};

/// Most values a histogram is spread to.
const LATENESS_SAMPLES: usize = 1000;
/// Periods of coordinated windows that a projected point covers; one where that many have too many [`DETOURS`].
const PERIODS: u64 = 2;

/// A noise level and what was measured of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Leibniz noise, per cent; 0 is the node's own alone.
    pub percent: f64,
    /// Noise without coordination; `None`: made as the seeds describe it.
    pub noise: Option<NodeNoise>,
    /// Noise in favored windows, on favored time; `None` where it was not measured.
    pub residual: Option<NodeNoise>,
    /// Lateness of edges; may be empty.
    pub edge_lateness_ns: Vec<u64>,
}

/// The sleep of the seeds' noise daemon.
pub(crate) const DAEMON_SLEEP_NS: u64 = 500_000_000;

/// The seeds' noise daemon as described (Colony report, section 3.1.7): calculations of random length and
/// 500 ms of sleep, to `percent` of the sleep on average.
#[must_use]
pub fn daemon(percent: f64) -> Model {
    Model::leibniz((percent / 100.0 * DAEMON_SLEEP_NS as f64) as u64, DAEMON_SLEEP_NS)
}

impl Level {
    /// The seeds' noise daemon, as described and not measured.
    #[must_use]
    pub fn described(percent: f64) -> Self {
        Self { percent, noise: None, residual: None, edge_lateness_ns: Vec::new() }
    }

    /// Returns `true` if the noise that coordination leaves is known: none if the noise is a description, the
    /// measured rest otherwise.
    #[must_use]
    pub fn has_coordinated(&self) -> bool {
        self.noise.is_none() || self.residual.is_some()
    }

    fn source(&self) -> Option<Source> {
        match &self.noise {
            Some(noise) => Some(Source::new("measured", Trace::new(noise.clone()))),
            None if self.percent > 0.0 => Some(Source::new("thread:noise", daemon(self.percent))),
            None => None,
        }
    }

    /// A node on which all of it runs as it comes.
    #[must_use]
    pub fn unmodified(&self) -> Node {
        Node::new(self.source().into_iter().collect(), Preempt)
    }

    /// A node on which it waits for the regular windows; what was measured to be left in favored ones is
    /// held by nothing.
    #[must_use]
    pub fn coordinated(&self, windows: Windows) -> Node {
        let residual = self.residual.as_ref().map(|r| Source::new("residual", Trace::new(r.clone())));
        let sources = self.source().into_iter().chain(residual.map(|r| r.class(Class::Local)));
        let lateness = self.edge_lateness_ns.clone();
        Node::new(
            sources.collect(),
            Coordinated { edge_lateness_ns: lateness, ..Coordinated::exact(windows) },
        )
    }

    /// Detours of a CPU over time.
    fn detours_per_ns(&self) -> f64 {
        match &self.noise {
            Some(noise) => {
                let detours: usize = noise.cpus().iter().map(|c| c.detours().len()).sum();
                detours as f64 / noise.cpus().len().max(1) as f64 / noise.span_ns().max(1) as f64
            }
            None => 1.0 / DAEMON_SLEEP_NS as f64,
        }
    }

    fn ranks_per_node(&self) -> u32 {
        self.noise.as_ref().map_or(1, |n| n.cpus().len() as u32)
    }
}

/// `iterations` of `allreduce`, 8 bytes.
#[must_use]
pub fn allreduce(iterations: u64) -> Program {
    Program::collective(Operation::Allreduce, 8, iterations)
}

/// Blue Gene/L with so many ranks on each node.
///
/// # Errors
/// [`StudyError::Sim`] never, as the profile is one of ours.
pub fn blue_gene(ranks_per_node: u32) -> Result<Machine, StudyError> {
    Ok(Machine { ranks_per_node, ..Machine::named("bgl")? })
}

/// `program` on so many nodes of `machine`, once.
fn simulation(params: &Params, program: &Program, machine: &Machine, node: &Node, nodes: u32) -> Simulation {
    Simulation {
        program: program.clone(),
        machine: machine.clone(),
        node: node.clone(),
        nodes,
        begin_ns: None,
        repetitions: 1,
        seed: params.seed,
    }
}

/// Simulates `program` on each of `nodes` nodes of `machine`.
///
/// # Errors
/// [`StudyError::Sim`] where it makes no sense.
pub fn outcomes(
    params: &Params,
    program: &Program,
    machine: &Machine,
    node: &Node,
    nodes: &[u32],
) -> Result<Vec<Outcome>, StudyError> {
    nodes.iter().map(|&n| simulated::once(&simulation(params, program, machine, node, n))).collect()
}

/// A point without coordination: for as long as all ranks meet at most `detours`, so that thousands of measured ones a
/// second take seconds to replay.
fn unmodified(
    params: &Params,
    machine: &Machine,
    level: &Level,
    nodes: u32,
    detours: f64,
) -> Result<Outcome, StudyError> {
    let ranks = f64::from(nodes) * f64::from(machine.ranks_per_node);
    let span_ns = detours / (level.detours_per_ns() * ranks).max(1e-12);
    let program = allreduce(params.projected_ops.into());
    let simulation = simulation(params, &program, machine, &level.unmodified(), nodes);
    Ok(simulate_for(&simulation, span_ns as u64)?.0)
}

/// A point with coordination: for as long as some periods take, one if all ranks meet more than `detours` in them.
fn coordinated(
    params: &Params,
    machine: &Machine,
    level: &Level,
    nodes: u32,
    windows: Windows,
    detours: f64,
) -> Result<Outcome, StudyError> {
    let simulation = simulation(params, &allreduce(MOST), machine, &level.coordinated(windows), nodes);
    let ranks = f64::from(nodes) * f64::from(machine.ranks_per_node);
    let span_ns = PERIODS * windows.period_ns();
    let is_too_much = nodes > LARGE || level.detours_per_ns() * ranks * span_ns as f64 > detours;
    let periods = if is_too_much { 1 } else { PERIODS };
    Ok(simulate_for(&simulation, periods * windows.period_ns())?.0)
}

/// Nodes that are so many that one period shows the mean.
const LARGE: u32 = 4096;

/// More operations than fit into these periods.
const MOST: u64 = 10_000_000;

/// Most detours of a point without coordination, on all ranks together.
const DETOURS: f64 = 1e7;
/// Traces that the measured ones are resampled to for an interval, the part of the nodes they are simulated on in windows, the
/// detours met in each simulation, and Student's t for the spread of so many.
const TRACES: u32 = 8;
const TRACE_PART: u32 = 4;
const TRACE_DETOURS: f64 = 2e6;
const STUDENT_T: f64 = 2.365;

/// Factor between a mean and the ends of its 95 % interval: the simulation is repeated with traces that other measurements of
/// the node could have been (block bootstrap), and the spread of the logarithms is taken, as few rare detours decide such means.
/// In windows, a period has so many operations that this is done on a part of the nodes. `None` if the noise was not
/// measured, or leaves no time in too many of these traces.
fn spread_factor(
    params: &Params,
    machine: &Machine,
    level: &Level,
    windows: Option<Windows>,
    nodes: u32,
) -> Result<Option<f64>, StudyError> {
    let Some(noise) = &level.noise else { return Ok(None) };
    let of = |number: u32| -> Result<Option<f64>, StudyError> {
        let remade =
            |noise: &NodeNoise, stream: u64| resampled(noise, params.seed.wrapping_add(stream), number);
        let Ok(noise) = remade(noise, 0) else { return Ok(None) };
        let residual = level.residual.as_ref().map(|r| remade(r, 1)).transpose();
        let Ok(residual) = residual else { return Ok(None) };
        let level = Level { noise: Some(noise), residual, ..level.clone() };
        let params = Params { seed: params.seed.wrapping_add(u64::from(number) + 1), ..params.clone() };
        let outcome = match windows {
            None => unmodified(&params, machine, &level, nodes, TRACE_DETOURS)?,
            Some(windows) => {
                coordinated(&params, machine, &level, (nodes / TRACE_PART).max(1), windows, TRACE_DETOURS)?
            }
        };
        Ok(Some(outcome.mean_ns.max(1.0).ln()))
    };
    let logs = (0..TRACES).into_par_iter().map(of).collect::<Result<Vec<_>, StudyError>>()?;
    let logs: Vec<f64> = logs.into_iter().flatten().collect();
    if logs.len() < TRACES as usize / 2 {
        return Ok(None);
    }
    Ok(Some((STUDENT_T * variance(&logs).sqrt()).exp()))
}

/// The scaling curves of all levels, unmodified and coordinated, and the warnings of the simulation.
///
/// # Errors
/// As [`outcomes`].
pub fn scaling(
    params: &Params,
    levels: &[Level],
    noise_from: &str,
    command: &str,
) -> Result<(Scaling, Vec<String>), StudyError> {
    let windows = params.windows()?;
    let worst = levels.iter().map(|l| l.percent).fold(0.0, f64::max);
    let kinds = [SchedulerKind::Unmodified, SchedulerKind::Coordinated];
    let curves: Vec<(&Level, SchedulerKind)> = levels
        .iter()
        .flat_map(|level| kinds.map(|kind| (level, kind)))
        .filter(|(level, kind)| *kind == SchedulerKind::Unmodified || level.has_coordinated())
        .collect();
    // the points on most nodes take longest, so they begin first
    let mut points: Vec<(usize, u32)> =
        (0..curves.len()).flat_map(|curve| params.nodes.iter().map(move |&nodes| (curve, nodes))).collect();
    points.sort_by_key(|&(_, nodes)| std::cmp::Reverse(nodes));
    let point = |&(curve, nodes): &(usize, u32)| -> Result<(usize, Point, Vec<String>), StudyError> {
        let (level, kind) = curves[curve];
        let machine = blue_gene(level.ranks_per_node())?;
        let windows = (kind == SchedulerKind::Coordinated).then_some(windows);
        let outcome = match windows {
            None => unmodified(params, &machine, level, nodes, DETOURS)?,
            Some(windows) => coordinated(params, &machine, level, nodes, windows, DETOURS)?,
        };
        let mut point = Point::from(&outcome);
        if point.nodes == SHOWN_NODES && level.percent == worst {
            let factor = spread_factor(params, &machine, level, windows, nodes)?;
            point.low_ns = factor.map(|factor| outcome.mean_ns / factor);
            point.high_ns = factor.map(|factor| outcome.mean_ns * factor);
        }
        let name = format!("projection with {} % noise, {}", level.percent, kind.name());
        Ok((curve, point, outcome.warnings.iter().map(|w| format!("{name}: {w}")).collect()))
    };
    let found = points.par_iter().with_max_len(1).map(point).collect::<Result<Vec<_>, StudyError>>()?;
    let warnings: Vec<String> = found.iter().flat_map(|(_, _, warnings)| warnings.clone()).collect();
    let of_curve = |curve: usize| {
        let mut points: Vec<Point> =
            found.iter().filter(|(of, _, _)| *of == curve).map(|(_, point, _)| *point).collect();
        points.sort_by_key(|p| p.nodes);
        points
    };
    let curves = curves
        .iter()
        .enumerate()
        .map(|(place, (level, scheduler))| ScalingCurve {
            noise_percent: level.percent,
            scheduler: *scheduler,
            points: of_curve(place),
        })
        .collect();
    let warnings = once(&warnings).into_iter().cloned().collect();
    let scaling = Scaling {
        command: command.into(),
        model: "level-engine/1".into(),
        measured: levels.iter().all(|l| l.noise.is_some()),
        assumptions: ASSUMPTIONS.iter().map(|&a| a.into()).collect(),
        noise_from: noise_from.into(),
        base_from:
            "allreduce without noise as published for Blue Gene/L, 8.3 µs on 512 and 11.6 µs on 16,384 \
                    nodes (ANL 2005)"
                .into(),
        curves,
    };
    Ok((scaling, warnings))
}

const ASSUMPTIONS: &[&str] = &[
    "Nodes are alike: each replays the measured noise from a random instant, independent of the others; its CPUs \
     are delayed together as they were measured.",
    "An allreduce goes up the tree and down: in both, every rank needs its CPU for 0.2 µs, and all wait for the last; \
     the network adds no noise.",
    "A detour in progress costs its rest, one met on the way all of it, and those met meanwhile too.",
    "Coordinated: what is measured without coordination waits for the regular window and goes first there, in order, \
     as long as the window lasts; what does not end goes on in the next one. What was measured in favored windows \
     comes on top, always.",
    "Coordinated: clocks agree as well as the measured edge lateness says.",
];

/// Values spread as a histogram is, at most a thousand, each in the middle of its bucket; the largest
/// bucket that holds anything is always among them.
#[must_use]
pub fn spread(histogram: &[Bucket]) -> Vec<u64> {
    let total: u64 = histogram.iter().map(|b| b.count).sum();
    let wanted = total.min(LATENESS_SAMPLES as u64);
    let (mut seen, mut out) = (0u64, Vec::new());
    for b in histogram.iter().filter(|b| b.count > 0) {
        seen += b.count;
        let until = (u128::from(seen) * u128::from(wanted)).div_ceil(u128::from(total)) as usize;
        out.resize(until.max(out.len()), b.low_ns.midpoint(b.high_ns));
    }
    if let (Some(last), Some(b)) = (out.last_mut(), histogram.iter().rfind(|b| b.count > 0)) {
        *last = b.low_ns.midpoint(b.high_ns);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_spread_in_proportion_and_keeps_its_end() {
        let b = |low_ns, count| Bucket { low_ns, high_ns: low_ns + 2, count };
        assert_eq!(spread(&[]), Vec::<u64>::new());
        assert_eq!(spread(&[b(0, 2), b(10, 0), b(20, 1)]), [1, 1, 21]);
        let many = spread(&[b(0, 999_999), b(10, 1)]);
        assert_eq!((many.len(), many[0], many.last().copied()), (1000, 1, Some(11)));
    }

    #[test]
    fn coordination_wins_at_every_projected_node_count() {
        let params = Params { projected_ops: 300, nodes: vec![1024, 16_384], ..Params::default() };
        let levels = [0.0, 2.0].map(Level::described);
        let (s, _) = scaling(&params, &levels, "described", "colony study").expect("sound");
        let means = |k| {
            let c = s.curve(2.0, k).expect("there");
            c.points.iter().map(|p| p.mean_ns).collect::<Vec<_>>()
        };
        let (u, c) = (means(SchedulerKind::Unmodified), means(SchedulerKind::Coordinated));
        assert!(u.iter().zip(&c).all(|(u, c)| u > c), "{u:?} {c:?}");
        let quiet = s.curve(0.0, SchedulerKind::Unmodified).expect("there");
        assert!(quiet.points.iter().all(|p| (p.slowdown - 1.0).abs() < 1e-9));
    }
}
