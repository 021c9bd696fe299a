// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of the benchmark, as JSON has it.

use serde::Serialize;

use super::params::Params;
use super::published::{PROCESSORS, times};
use super::simulate::Simulated;
use super::told::{Checkpoint, Floor};

/// Checkpoints of several sizes, and their floors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointBench {
    /// [`CheckpointBench::SCHEMA`].
    pub schema: &'static str,
    /// What was measured.
    pub params: Params,
    /// The name of this node.
    pub host: String,
    /// CPUs that the processes may use; none if the system does not say.
    pub cpus: Option<u32>,
    /// What the simulated times assume.
    pub assumptions: Vec<&'static str>,
    /// One run for each size.
    pub runs: Vec<Run>,
}

impl CheckpointBench {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.bench.checkpoint/1";
}

/// One size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Bytes of state of a PE.
    pub bytes: u64,
    /// Bytes of the images of all PEs, once.
    pub image_bytes: u64,
    /// Bytes of them that were sent to buddies.
    pub sent_bytes: u64,
    /// From the end of a round to quiescence.
    pub quiet: Spread,
    /// From quiescence until all second copies are there.
    pub copy: Spread,
    /// One copy and the exchange of the same bytes, without the runtime.
    pub floor: Spread,
    /// Seconds of the copy in the shortest floor.
    pub floor_memcpy_s: f64,
    /// The least `copy` over the least `floor`.
    pub ratio: f64,
    /// Published times.
    pub published: Vec<Published>,
    /// Seconds of a PE for all but the transfer, for the simulation.
    pub local_s: f64,
    /// Simulated times.
    pub simulated: Vec<Simulated>,
}

/// A published time: Table 1 of the HPC-Colony progress report of 2006.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Processors of Blue Gene/L.
    pub processors: u64,
    /// Seconds of a checkpoint; none if the table does not have this size.
    pub seconds: Option<f64>,
}

/// Repetitions of one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The least, in seconds.
    pub least_s: f64,
    /// The median, in seconds; of an even number, the mean of the two in the middle.
    pub median_s: f64,
    /// All that count, in order.
    pub all_s: Vec<f64>,
}

impl Spread {
    /// Of these times; none without any.
    fn of(all_s: Vec<f64>) -> Option<Self> {
        let mut sorted = all_s.clone();
        sorted.sort_by(f64::total_cmp);
        let (least_s, middle) = (*sorted.first()?, sorted.len() / 2);
        let median_s = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(Self { least_s, median_s, all_s })
    }
}

impl Run {
    /// Of the checkpoints and floors of one run. The first of each does not count. `None` if there are no others.
    pub(super) fn of(
        params: &Params,
        bytes: u64,
        checkpoints: &[Checkpoint],
        floors: &[Floor],
    ) -> Option<Self> {
        let (checkpoints, floors) = (checkpoints.get(1..)?, floors.get(1..)?);
        let quiet = Spread::of(checkpoints.iter().map(|c| c.quiet_s).collect())?;
        let copy = Spread::of(checkpoints.iter().map(|c| c.copy_s).collect())?;
        let floor = Spread::of(floors.iter().map(|f| f.total_s).collect())?;
        let shortest = floors.iter().min_by(|a, b| a.total_s.total_cmp(&b.total_s))?;
        let last = checkpoints.last()?;
        // the transfer takes as long as the bytes that are sent
        let share = params.changed.map_or(1.0, |_| last.sent as f64 / last.bytes.max(1) as f64);
        let exchange_s = shortest.total_s - shortest.memcpy_s;
        let local_s = (copy.least_s - exchange_s * share).max(shortest.memcpy_s * share);
        let sent = (bytes as f64 * share) as u64;
        let network = &params.network;
        Some(Self {
            bytes,
            image_bytes: last.bytes,
            sent_bytes: last.sent,
            ratio: copy.least_s / floor.least_s,
            quiet,
            copy,
            floor,
            floor_memcpy_s: shortest.memcpy_s,
            published: (PROCESSORS.iter().zip(times(bytes)))
                .map(|(&processors, seconds)| Published { processors, seconds })
                .collect(),
            local_s,
            simulated: PROCESSORS.iter().map(|&pes| network.simulate(pes, sent, local_s)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::tests::small;
    use super::*;

    #[test]
    fn the_first_checkpoint_and_the_first_floor_do_not_count() {
        let checkpoint = |copy_s| Checkpoint { bytes: 2000, sent: 900, quiet_s: copy_s / 8.0, copy_s };
        let floor = |total_s| Floor { memcpy_s: total_s / 4.0, total_s };
        let checkpoints = [0.5, 8.0, 6.0, 16.0].map(checkpoint);
        let floors = [1.0, 4.0, 8.0].map(floor);
        let run = Run::of(&small(), 80_000, &checkpoints, &floors).expect("a run");
        assert_eq!((run.copy.least_s, run.copy.median_s, run.quiet.least_s), (6.0, 8.0, 0.75));
        assert_eq!((run.floor.least_s, run.floor.median_s, run.floor_memcpy_s), (4.0, 6.0, 1.0));
        assert_eq!((run.ratio, run.local_s), (1.5, 3.0));
        assert_eq!((run.image_bytes, run.sent_bytes), (2000, 900));
        assert_eq!(run.published[1].seconds, Some(0.377_770_4));
        assert_eq!(run.simulated.iter().map(|s| s.pes).collect::<Vec<_>>(), PROCESSORS);
        assert!(run.simulated.iter().all(|s| s.total_s > run.local_s));
        let params = Params { changed: Some(1), ..small() };
        let some = Run::of(&params, 80_000, &checkpoints, &floors).expect("a run");
        assert!((some.local_s - (6.0 - 3.0 * 0.45)).abs() < 1e-9, "{}", some.local_s);
        assert_eq!(Run::of(&small(), 80_000, &checkpoints[..1], &floors), None);
        assert_eq!(Run::of(&small(), 80_000, &checkpoints, &[]), None);
    }
}
