//! The projection step: noise of this node, or made after the seeds' description, to many nodes.

use colony_sim::{
    BaseTime, Coordinated, CpuNoise, MaxDelay, Model, NodeNoise, Point, Program, Scenario, Scheduler,
};
use colony_time::Windows;

use crate::results::{Bucket, Scaling, ScalingCurve, SchedulerKind};
use crate::{Params, StudyError};

/// Most values a histogram is spread to.
const LATENESS_SAMPLES: usize = 1000;

/// A noise level and what was measured of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Leibniz noise, per cent; 0 is the node's own alone.
    pub percent: f64,
    /// Noise without coordination.
    pub noise: NodeNoise,
    /// Noise in favored windows, on favored time; `None` where it was not measured.
    pub residual: Option<NodeNoise>,
    /// Lateness of edges; may be empty.
    pub edge_lateness_ns: Vec<u64>,
}

impl Level {
    /// The seeds' noise daemon, as described and not measured: calculations of random length, 500 ms of
    /// sleep, and turns of 10 ms with the job (a tick of the kernel of the time: single operations took
    /// "from about 4 microseconds to over 9900 microseconds").
    ///
    /// # Errors
    /// [`StudyError::Sim`] for a level that leaves the job no time.
    pub fn described(percent: f64, seed: u64) -> Result<Self, StudyError> {
        const PAUSE_NS: u64 = 500_000_000;
        let mean_ns = (percent / 100.0 * PAUSE_NS as f64) as u64;
        let noise = match mean_ns {
            0 => NodeNoise::quiet(),
            _ => {
                NodeNoise::new(vec![CpuNoise::leibniz(mean_ns, PAUSE_NS, 10_000_000, 400 * PAUSE_NS, seed)?])?
            }
        };
        Ok(Self { percent, noise, residual: None, edge_lateness_ns: Vec::new() })
    }

    /// What the nodes' schedulers do about it under `windows`.
    #[must_use]
    pub fn coordinated(&self, windows: Windows) -> Scheduler {
        Scheduler::Coordinated(Coordinated {
            windows,
            residual: self.residual.clone(),
            edge_lateness_ns: self.edge_lateness_ns.clone(),
        })
    }
}

/// `allreduce` on Blue Gene/L's collective network, up and down the tree.
#[must_use]
pub fn allreduce() -> Program {
    Program::Collective { base: BaseTime::blue_gene_allreduce(), stages: 2 }
}

/// Projects `program` under `noise` and `scheduler` to `nodes`.
///
/// # Errors
/// [`StudyError::Sim`] where the scenario makes no sense.
pub fn points(
    params: &Params,
    program: Program,
    noise: &NodeNoise,
    scheduler: Scheduler,
    nodes: &[u64],
) -> Result<Vec<Point>, StudyError> {
    let scenario = Scenario {
        program,
        noise: noise.clone(),
        scheduler,
        nodes: nodes.to_vec(),
        ops: params.projected_ops,
        seed: params.seed,
    };
    Ok(MaxDelay.project(&scenario)?.points)
}

/// The scaling curves of all levels, unmodified and coordinated, and the warnings of the model.
///
/// # Errors
/// As [`points`].
pub fn scaling(
    params: &Params,
    levels: &[Level],
    noise_from: &str,
    command: &str,
) -> Result<(Scaling, Vec<String>), StudyError> {
    let windows = params.windows()?;
    let (mut curves, mut warnings) = (Vec::new(), Vec::new());
    for level in levels {
        for kind in [SchedulerKind::Unmodified, SchedulerKind::Coordinated] {
            let scheduler = match kind {
                SchedulerKind::Unmodified => Scheduler::Unmodified,
                SchedulerKind::Coordinated => level.coordinated(windows),
            };
            let projection = MaxDelay.project(&Scenario {
                program: allreduce(),
                noise: level.noise.clone(),
                scheduler,
                nodes: params.nodes.clone(),
                ops: params.projected_ops,
                seed: params.seed,
            })?;
            warnings.extend(
                projection.warnings.iter().map(|w| format!("projection with {} % noise: {w}", level.percent)),
            );
            curves.push(ScalingCurve {
                noise_percent: level.percent,
                scheduler: kind,
                points: projection.points,
            });
        }
    }
    let scaling = Scaling {
        command: command.into(),
        model: MaxDelay.name().into(),
        assumptions: MaxDelay.assumptions().iter().map(|&a| a.into()).collect(),
        noise_from: noise_from.into(),
        base_from:
            "allreduce without noise as published for Blue Gene/L, 8.3 µs on 512 and 11.6 µs on 16,384 \
                    nodes (ANL 2005)"
                .into(),
        curves,
    };
    Ok((scaling, warnings))
}

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
        let params = Params { projected_ops: 2000, ..Params::default() };
        let levels = [0.0, 2.0].map(|p| Level::described(p, 1).expect("leaves time"));
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
